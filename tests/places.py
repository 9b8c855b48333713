"""Where things are."""

from pathlib import Path

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
BENCH = ROOT / "bench"

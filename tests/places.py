"""Where things are."""

from pathlib import Path

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
BENCH = ROOT / "bench"

DOC_PAGES = sorted(page for page in DOCS.rglob("*.md") if "_build" not in page.parts)
"""All pages of the documentation."""

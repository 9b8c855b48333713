"""Keep runs in the repository, reduced to the needs of tables and curves.

    python bench/keep_runs.py RUNS/cartpole RUNS/appo-longer

Each folder is copied to ``bench/history/runs/`` under its own name. Of each run, these are kept: config.json without
the host and the path of the interpreter, status.json without processes and roles, and from metrics.jsonl the
evaluations and the marks of a resume. Lines are unchanged; paths are relative to ``bench/history``.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from penstock.runs.files import json_bytes
from penstock.runs.metrics import METRICS
from penstock.runs.reading import RecordedRun, find_runs
from penstock.runs.state import STATUS
from penstock.runs.vacancy import CONFIG

KEPT = Path(__file__).parent / "history" / "runs"


def keep(run: RecordedRun, place: Path) -> None:
    """Write the kept parts of a run."""
    place.mkdir(parents=True, exist_ok=True)
    config = json.loads((run.directory.path / CONFIG).read_text())
    made = config["run"]
    made["machine"].pop("host", None)
    for each in (made, *made.get("resumed", [])):
        each["command"] = "penstock " + each["command"].partition("penstock.cli ")[2]
    config["run_dir"] = path = str(place.relative_to(KEPT.parent))
    (place / CONFIG).write_bytes(json_bytes(config))
    status = {name: value for name, value in run.status.items() if name not in ("process", "roles")}
    status["run_dir"] = path
    (place / STATUS).write_bytes(json_bytes(status))
    lines = run.directory.metrics.read_text().splitlines(keepends=True)
    kept = [line for line in lines if '"evaluation/' in line or '"resumed"' in line]
    (place / METRICS).write_text("".join(kept))


def main() -> None:
    """Keep the runs of some folders."""
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("folders", nargs="+", type=Path, metavar="RUNS")
    for folder in flags.parse_args().folders:
        for run in find_runs([folder]):
            keep(run, KEPT / folder.name / run.name)
        print(f"kept: {KEPT / folder.name}")


if __name__ == "__main__":
    main()

"""Messages per second through the ring next to faster-fifo 1.5.2, and round trips between two roles of the engine.

    python bench/ipc.py --install-peers

Both libraries take turns, in separate processes. The Python that has faster-fifo is named by --faster-fifo or by
$PENSTOCK_BENCH_FASTER_FIFO, or is that of the environment that --install-peers made. Without it, only Penstock is
measured.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from comparing.commands import ended
from comparing.fifo import FasterFifo
from comparing.ipc import Flags, check, run
from comparing.peers import FASTER_FIFO


def measure(flags: Flags, given: Path | None, install: bool) -> bool:
    """Measure, also faster-fifo if it is installed; return whether all comparable marks are met.

    Raises
    ------
    BenchUsageError
        A flag is not legal.
    BenchError
        faster-fifo cannot be installed or measured.
    """
    check(flags)
    python = FASTER_FIFO.find(given, install)
    library = FasterFifo(python) if python is not None else None
    if library is not None and library.version != FASTER_FIFO.version:
        print(f"warning: this is faster-fifo {library.version}; the marks are meant for {FASTER_FIFO.version}")
    is_met = run(flags, library)
    if library is None:
        print(FASTER_FIFO.how_to_get())
    return is_met


def main() -> None:
    """Parse the flags and measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faster-fifo", type=Path, help="Python that has faster-fifo 1.5.2")
    parser.add_argument("--install-peers", action="store_true", help="install faster-fifo if it is missing")
    parser.add_argument("--rounds", type=int, default=Flags.rounds)
    parser.add_argument("--quick", action="store_true", help="two short rounds, to see that everything works")
    parser.add_argument("--json", type=Path, help="file for every round, with machine, versions and commit")
    own = parser.parse_args()
    flags = Flags(own.rounds, own.quick, own.json)
    ended(lambda: measure(flags, own.faster_fifo, own.install_peers))


if __name__ == "__main__":
    main()

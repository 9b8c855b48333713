"""The replay library next to cpprb 11.0.0 (and TorchRL): a table of operations.

    python bench/replay.py --install-peers

`comparing/replay.py` describes the measurement. The Python that has cpprb is named by --cpprb or $PENSTOCK_BENCH_CPPRB,
or is that of the environment that --install-peers made. --torchrl names a Python that has TorchRL, whose prioritized
buffer is also measured.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from comparing.commands import ended
from comparing.replay import Flags, run


def main() -> None:
    """Parse the flags and measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cpprb", type=Path, help="Python that has cpprb 11.0.0")
    parser.add_argument("--install-peers", action="store_true", help="install cpprb if it is missing")
    parser.add_argument("--torchrl", type=Path, help="Python that has torchrl")
    parser.add_argument("--rounds", type=int, default=Flags.rounds)
    parser.add_argument("--capacities", type=float, nargs="*", default=[], help="further sizes, such as 1e4 1e5 1e7")
    parser.add_argument("--quick", action="store_true", help="small buffers and two short rounds")
    parser.add_argument("--json", type=Path, help="file for every round, with machine, versions and commit")
    own = parser.parse_args()
    flags = Flags(
        own.cpprb, own.install_peers, own.torchrl, own.rounds, tuple(own.capacities), own.quick, own.json
    )
    ended(lambda: run(flags))


if __name__ == "__main__":
    main()

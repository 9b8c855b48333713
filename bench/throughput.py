"""Steps per second that APPO learns from, next to libraries that do the same work in the same run.

    python bench/throughput.py --workload cartpole pong pong-bfloat16 --install-peers

The measurement of `penstock bench throughput` with further contestants: Sample Factory, Stable-Baselines3 and a bare
loop over CartPole's environments, each with a mark. Contestants take turns, in rotating order. The Python of a library
is named by its flag or environment variable, or is that of the environment that --install-peers made in the user's
cache directory.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from comparing.commands import ended
from comparing.peers import SAMPLE_FACTORY, STABLE_BASELINES3
from comparing.rivals import contestants_of

from penstock.bench import BenchUsageError
from penstock.bench.throughput import Flags, check, run


def measure(flags: Flags, sample_factory: Path | None, stable_baselines3: Path | None, install: bool) -> bool:
    """Measure with all installed libraries; return whether all comparable marks are met.

    Raises
    ------
    BenchUsageError, ConfigError
        A flag is not legal, or peers are to be measured beside a GPU.
    BenchError
        A library cannot be installed or measured.
    """
    if flags.device != "cpu":
        raise BenchUsageError(
            f"--device {flags.device}: other libraries are measured on the CPU only; "
            f"penstock bench throughput --device {flags.device} measures Penstock and pure simulation"
        )
    check(flags)
    given = {SAMPLE_FACTORY: sample_factory, STABLE_BASELINES3: stable_baselines3}
    contestants, missing = contestants_of(flags.workload, given, install)
    is_met = run(flags, contestants)
    for peer in missing:
        print(peer.how_to_get())
    return is_met


def main() -> None:
    """Parse the flags and measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workload", nargs="+", default=list(Flags.workload), help="as for penstock bench throughput")
    parser.add_argument("--device", default=Flags.device, help='"cpu"')
    parser.add_argument("--simulation", action="store_true", help="measure pure simulation, too")
    parser.add_argument("--peers", action="store_true", help="measure all installed libraries (always on)")
    parser.add_argument("--sample-factory", type=Path, help="Python that has Sample Factory 2.1.1")
    parser.add_argument("--stable-baselines3", type=Path, help="Python that has Stable-Baselines3")
    parser.add_argument("--install-peers", action="store_true", help="install the libraries that are missing")
    parser.add_argument("--rounds", type=int, default=Flags.rounds)
    parser.add_argument("--seconds", type=float, default=Flags.seconds, help="of each contestant in each round")
    parser.add_argument("--json", type=Path, help="file for every round, with machine, versions, settings and commit")
    own = parser.parse_args()
    flags = Flags(tuple(own.workload), own.device, own.simulation, own.rounds, own.seconds, own.json)
    ended(lambda: measure(flags, own.sample_factory, own.stable_baselines3, own.install_peers))


if __name__ == "__main__":
    main()

"""The `penstock` commands that pages show, and their parsers."""

import re
import shlex
from pathlib import Path

from penstock.algorithms import load_algorithm
from penstock.bench import autotune, cluster, ideal, throughput
from penstock.bench.arguments import parse
from penstock.dashboard import command as dashboard
from penstock.exchange import command as exchange
from penstock.export import command as export
from penstock.flags import DoctorFlags, EvalFlags, InfoFlags, parse_changes, parse_config, parse_flags
from penstock.search import command as search
from penstock.search import population_command as pbt
from penstock.studies import compare, plan, plot, report, table, tag, watch


def commands(page: Path, program: str) -> list[list[str]]:
    """Every use of a program in a page's indented and fenced blocks, split into arguments."""
    text = page.read_text().replace("\\\n", " ")
    lines = re.findall(rf"^(?: {{4}})?({program} .*)$", text, re.MULTILINE)
    return [shlex.split(line, comments=True) for line in lines]


def read(command: list[str]) -> None:
    """Read a command's flags as the program does, and no more; raises, or exits, if they are wrong."""
    match command[1:]:
        case ["train", algorithm, "--help"]:
            load_algorithm(algorithm)
        case ["train", algorithm, *flags]:
            parse_config(load_algorithm(algorithm).Config, flags, prog="penstock train")
        case ["eval", *flags]:
            parse_flags(EvalFlags, flags, prog="penstock eval")
        case ["hub", "push", *flags]:
            parse_flags(exchange.PushFlags, flags, prog="penstock hub push")
        case ["hub", "pull", *flags]:
            parse_flags(exchange.PullFlags, flags, prog="penstock hub pull")
        case ["import-sb3", *flags]:
            parse_flags(exchange.ImportFlags, flags, prog="penstock import-sb3")
        case ["info", *flags]:
            parse_flags(InfoFlags, flags, prog="penstock info")
        case ["resume", _, *flags]:
            config = load_algorithm("appo").Config
            parse_changes(config, config(env="CartPole-v1").to_json(), flags, prog="penstock resume")
        case ["autotune", *flags]:
            parse(flags, autotune._own_flags())
        case ["search", "--show", *flags]:
            search._shown_flags().parse_args(["--show", *flags])
        case ["search", *flags]:
            parse(flags, search._own_flags())
        case ["pbt", *flags]:
            space = flags.index("--space")
            parse([*flags[:space], *flags[space + 2 :]], pbt.own_flags())
        case ["runs", "diff", _, _]:
            pass
        case ["runs", *flags]:
            parse_flags(table.Flags, flags, prog="penstock runs")
        case ["dashboard", *flags]:
            parse_flags(dashboard.Flags, flags, prog="penstock dashboard")
        case ["tag", *flags]:
            parse_flags(tag.Flags, flags, prog="penstock tag")
        case ["watch", *flags]:
            parse_flags(watch.Flags, flags, prog="penstock watch")
        case ["report", *flags]:
            parse_flags(report.Flags, flags, prog="penstock report")
        case ["plot", *flags]:
            parse_flags(plot.Flags, flags, prog="penstock plot")
        case ["compare", *flags]:
            behind = flags[flags.index("--") + 1 :] if "--" in flags else flags
            parse_flags(compare.Flags, behind, prog="penstock compare")
        case ["export", *flags]:
            parse_flags(export.Flags, flags, prog="penstock export")
        case ["multirun", *flags]:
            asked = plan.read([flag for flag in flags if flag != "--file" and not flag.endswith(".toml")])
            plan.plan(asked)
        case ["bench", "ideal", *flags]:
            parse(flags, ideal._own_flags())
        case ["bench", "cluster", *flags]:
            parse(flags, cluster._own_flags())
        case ["bench", "throughput", *flags]:
            parse_flags(throughput.Flags, flags, prog="penstock bench throughput")
        case ["doctor", *flags]:
            parse_flags(DoctorFlags, flags, prog="penstock doctor")
        case rest:
            raise AssertionError(f"penstock has no command {rest}")

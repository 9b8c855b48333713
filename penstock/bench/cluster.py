"""Costs of runs on nodes, the rates that a model predicts from them, and measured rates.

penstock bench cluster appo --env CartPole-v1 [every flag of the algorithm] [--max-nodes 4] [--rounds 3]
                       [--bench-seconds 6] [--json FILE]

Without an address, nodes are parts of this machine and share its cores. Trainings on 1, 2, ... nodes take turns, round
after round. docs/how-it-works/scaling.md has the model and a result.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import linear_regression, median
from typing import TYPE_CHECKING, Any

from penstock.bench import BenchError, BenchUsageError
from penstock.bench.arguments import own_parser, parse, require_counts, require_positive
from penstock.bench.scaling import ROLLOUT, Constants, Machines, Setting, StreamCosts, predict, versions_sent
from penstock.runs.formatting import counted
from penstock.runs.machine import describe, machine_facts

if TYPE_CHECKING:
    from penstock.algorithms.bases.algorithm import Algorithm
    from penstock.bench.nodes_run import NodesRun
    from penstock.config import Config

FEWER_LANES = 4  # divisor of the lanes in one run; the difference gives the cost of a call for all lanes
NODES = (10, 100, 1000)
SLOWER = (0.0, 1e-3, 1e-2)  # core-seconds added to an environment's measured step
MEANING = {
    "lane": "rollout worker, per step", "call": "rollout worker, per step of all its lanes at once",
    "learn": "learner, per step", "send_block": "node sends a block", "send_byte": "node sends a byte of it",
    "receive_block": "home receives a block", "receive_byte": "home receives a byte of it",
    "tell": "home sends a node a version of the weights, and grants", "tell_byte": "home sends a byte of a version",
    "hear": "node receives these", "hear_byte": "node receives a byte of a version",
    "host": "host and Ray, per second of each node", "supervisor": "supervisor, per second",
    "supervise": "supervisor, per second and node", "trip": "round trip of a slot, without a wait (no CPU time)",
    "reduce_byte": "learners average a byte of gradients (no CPU time)",
}  # fmt: skip


def command(args: list[str]) -> bool:
    """Measure and print constants, predictions and measurements; return True, because there is no target.

    Raises
    ------
    BenchUsageError, ConfigError
        The request is not legal.
    BenchError, TrainingFailed, EnvironmentFailure
        A measured training failed.
    """
    arguments = parse(args, _own_flags())
    if arguments is None:
        return True
    require_counts(arguments.own, "max_nodes", "rounds", "node_cores", "home_cores", "learners")
    require_positive(arguments.own, "bench_seconds", "gigabits")
    config = arguments.config
    _require_segments(arguments.algorithm, config)
    if config.backend != "ray":
        config = dataclasses.replace(config, backend="ray")
    facts = measured(arguments.algorithm, config, arguments.own)
    print(text(facts))
    if arguments.own.json is not None:
        arguments.own.json.write_text(json.dumps(facts, indent=1) + "\n")
    return True


def measured(algorithm: type[Algorithm], config: Config, own: argparse.Namespace) -> dict[str, Any]:
    """Measure everything; return the contents of the JSON file."""
    from penstock.bench.nodes_run import run_on_nodes
    from penstock.bench.streaming import stream_costs
    from penstock.engine.backends.launcher import kept
    from penstock.ipc import available_cores

    machine = machine_facts()
    print(describe(machine), flush=True)
    costs = stream_costs()
    fewer = max(1, config.num_envs_per_worker // FEWER_LANES)
    is_simulated = config.address is None
    with _cluster(config, own.max_nodes) as there, kept():
        kinds = {str(n): dataclasses.replace(there, nodes=n) for n in range(1, own.max_nodes + 1)}
        if fewer < config.num_envs_per_worker:
            kinds["fewer lanes"] = dataclasses.replace(kinds["1"], num_envs_per_worker=fewer)
        runs: dict[str, list[NodesRun]] = {name: [] for name in kinds}
        for turn in range(own.rounds):
            for name in sorted(kinds, key=lambda name: ([*kinds].index(name) - turn) % len(kinds)):
                run = run_on_nodes(algorithm, kinds[name], seconds=own.bench_seconds)
                runs[name].append(run)
                nodes = "1 node with fewer lanes" if name == "fewer lanes" else f"nodes: {name}"
                print(f"round {turn + 1} of {own.rounds}, {nodes}: {run.rate:,.0f} steps/s", flush=True)
    constants = constants_of(runs, costs)
    setting = setting_of(runs["1"], there.workers_per_node, algorithm.synchronous)
    return {
        "machine": machine, "algorithm": algorithm.name(), "config": config.to_json(), "rounds": own.rounds,
        "seconds": own.bench_seconds, "is_simulated": is_simulated, "cores": available_cores(),
        "constants": dataclasses.asdict(constants), "setting": dataclasses.asdict(setting),
        "large": {"node_cores": own.node_cores, "home_cores": own.home_cores, "gigabits": own.gigabits,
                  "learners": own.learners},
        "runs": {name: [dataclasses.asdict(run) for run in of_name] for name, of_name in runs.items()},
    }  # fmt: skip


@contextmanager
def _cluster(config: Config, max_nodes: int) -> Iterator[Config]:
    """Return the config with a cluster: its own, or a simulated one."""
    if config.address is not None:
        yield config
        return
    try:
        from penstock.engine.nodes.cluster import simulated
    except ModuleNotFoundError as error:
        raise BenchUsageError('nodes need Ray, which is not installed: pip install "penstock[cluster]"') from error
    config = dataclasses.replace(config, num_workers=config.num_workers or 1)
    assert config.num_workers is not None
    with ExitStack() as nodes:
        try:
            address = nodes.enter_context(simulated(max_nodes, config.num_workers))
        except Exception as error:  # Ray raises no narrower type
            raise BenchError(f"Ray could not start simulated nodes: {error}") from error
        yield dataclasses.replace(config, address=address)


def constants_of(runs: dict[str, list[NodesRun]], costs: StreamCosts) -> Constants:
    """Return the model's constants, as medians of rounds.

    The cost of a step comes from one node, with all lanes and with fewer. The cost per version is the CPU time of
    sender and receiver beyond blocks and bytes. The supervisor's cost per node is the slope of a line through all runs.
    """
    of_one, fewer = runs["1"], runs.get("fewer lanes", [])
    step = median(run.cost("rollout") for run in of_one)
    lane, call = step, 0.0
    if fewer:
        lanes, few = of_one[0].lanes, fewer[0].lanes
        more = median(run.cost("rollout") for run in fewer) - step
        call = min(step * lanes, max(0.0, more / (1.0 / few - 1.0 / lanes)))
        lane = step - call / lanes
    by_nodes = [of_name for name, of_name in runs.items() if name.isdigit()]
    supervisor, supervise = _line([
        (of_name[0].nodes, median(run.cpu.get("supervisor", 0.0) for run in of_name)) for of_name in by_nodes
    ])  # fmt: skip
    return Constants(
        lane=lane,
        call=call,
        learn=median(run.cost("learner") for run in of_one),
        host=median((run.cpu.get("host", 0.0) + run.cpu["ray"]) / run.nodes for run in by_nodes[-1]),
        supervisor=supervisor,
        supervise=supervise,
        **vars(costs)
        | {
            "tell": median(_per_version(run, "receiver", costs) for of_name in by_nodes for run in of_name),
            "hear": median(_per_version(run, "sender", costs) for of_name in by_nodes for run in of_name),
        },
    )


def _per_version(run: NodesRun, kind: str, costs: StreamCosts) -> float:
    """Return CPU seconds of receiver or senders per version and node, without those of blocks and bytes."""
    at_home = kind == "receiver"
    block, byte = (costs.receive_block, costs.receive_byte) if at_home else (costs.send_block, costs.send_byte)
    least, of_byte = (costs.tell, costs.tell_byte) if at_home else (costs.hear, costs.hear_byte)
    of_blocks = block / (run.lanes * run.segment) + byte * run.step_nbytes
    versions = run.nodes * run.versions_sent / run.steps_per_version  # sent, per step
    return max(least, (run.cost(kind) - of_blocks) / versions - of_byte * run.weights_nbytes)


def _line(points: list[tuple[int, float]]) -> tuple[float, float]:
    """Return intercept and slope of a least-squares line through points, neither below 0."""
    xs, ys = [x for x, _ in points], [y for _, y in points]
    if len(points) < 2:
        return 0.0, ys[0] / xs[0]
    slope, height = linear_regression(xs, ys)
    if slope < 0.0:
        return median(ys), 0.0
    return (height, slope) if height >= 0.0 else linear_regression(xs, ys, proportional=True)[::-1]


def setting_of(runs: list[NodesRun], workers: int, takes_turns: bool) -> Setting:
    """Return the setting of the measured run, for one node."""
    run = runs[0]
    return Setting(
        1, workers, run.lanes, run.slots, run.segment, run.step_nbytes, run.weights_nbytes,
        median(one.steps_per_version for one in runs), takes_turns=takes_turns, batch=run.batch,
    )  # fmt: skip


# -- output ------------------------------------------------------------------------------------------------------------


def text(facts: dict[str, Any]) -> str:
    """Return all tables of the measurements, in Markdown."""
    constants, setting = Constants(**facts["constants"]), Setting(**facts["setting"])
    return "\n\n".join([
        about(facts), constants_table(constants), nodes_table(facts, constants, setting),
        large_table(facts, constants, setting),
    ])  # fmt: skip


def about(facts: dict[str, Any]) -> str:
    """Describe the measurement in a paragraph."""
    s, config = facts["setting"], facts["config"]
    nodes = "simulated nodes, parts of this machine" if facts["is_simulated"] else "nodes of a cluster"
    return (
        f"{facts['algorithm']} on {config['env']}: {nodes}, each with {counted(s['workers'], 'rollout worker')} of "
        f"{s['lanes']} lanes; {s['step_nbytes']:,.0f} bytes per step, {s['weights_nbytes']:,} bytes of weights, "
        f"{s['steps_per_version']:,.0f} steps between two versions; medians of {counted(facts['rounds'], 'round')} of "
        f"{facts['seconds']:g} s; on {describe(facts['machine'])}"
    )


def constants_table(constants: Constants) -> str:
    """Return the table of the constants."""
    rows = [(name, meaning, _seconds(getattr(constants, name))) for name, meaning in MEANING.items()]
    return _table(("constant", "cost of", "measured"), rows)


def nodes_table(facts: dict[str, Any], constants: Constants, setting: Setting) -> str:
    """Return predictions for the measured numbers of nodes, beside measurements."""
    rows = []
    for name, runs in facts["runs"].items():
        rates = [run["rate"] for run in runs]
        lanes, cores = runs[0]["lanes"], median(run["cores"] for run in runs)
        found = predict(
            constants,
            dataclasses.replace(setting, nodes=runs[0]["nodes"], lanes=lanes, slots=runs[0]["slots"]),
            _machines_here(facts, setting, cores),
        )
        rows.append((
            name if name.isdigit() else f"1, {lanes} lanes", f"{cores:.2f}", f"{found.rate:,.0f}", found.limit,
            f"{median(rates):,.0f}", f"{min(rates):,.0f} to {max(rates):,.0f}", f"{median(rates) / found.rate:.2f}",
        ))  # fmt: skip
    head = ("nodes", "cores left", "predicted steps/s", "limited by", "measured", "rounds", "measured / predicted")
    return _table(head, rows)


def _machines_here(facts: dict[str, Any], setting: Setting, cores: float) -> Machines:
    """Return the measured machines: parts of this one, or separate ones with a core per worker and one to spare."""
    if facts["is_simulated"]:
        return Machines(setting.workers, facts["cores"], shared_cores=cores)
    return Machines(setting.workers + 1, facts["cores"])


def large_table(facts: dict[str, Any], constants: Constants, setting: Setting) -> str:
    """Return predictions for larger clusters, with environments as slow as this one and slower."""
    large, rows = facts["large"], []
    cores = large["node_cores"]
    machines = Machines(cores, large["home_cores"], bandwidth=1e9 / 8 * large["gigabits"])
    for slower in SLOWER:
        costs = dataclasses.replace(constants, lane=constants.lane + slower)
        for nodes in NODES:
            of_large = dataclasses.replace(setting, nodes=nodes, workers=cores, learners=large["learners"])
            found = predict(costs, of_large, machines)
            following = found.parts[1]
            rows.append((
                f"{1e3 * slower:g} ms more" if slower else "as measured", f"{nodes:,}",
                f"{found.rate:,.0f}" if found.rate > 0 else "not possible",
                found.limit, f"{following.name}, at {following.bound:,.0f}",
                f"{min(1.0, found.load(ROLLOUT)):.1%}",
                f"{versions_sent(costs, of_large, machines, found.rate):.1%}",
            ))  # fmt: skip
    head = ("a step of the environment", "nodes", "predicted steps/s", "breaks first", "would break next",
            "rollout workers busy", "versions that a node gets")  # fmt: skip
    told = (
        f"Nodes of {counted(cores, 'core')}, a home node of {large['home_cores']}, {large['gigabits']:g} Gbit/s at "
        f"home, {counted(large['learners'], 'learner')} of one core:"
    )
    return f"{told}\n\n{_table(head, rows)}"


def _seconds(value: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value / 1e-9:.3g} ns"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, ("---",) * len(head), *rows))


# -- flags -------------------------------------------------------------------------------------------------------------


def _own_flags() -> argparse.ArgumentParser:
    parser, add = own_parser("penstock bench cluster", "flags of the bench itself")
    add("--max-nodes", type=int, default=4, metavar="N", help="train on 1, 2, ... N nodes (4)")
    add("--rounds", type=int, default=3, metavar="N", help="train on each number of nodes N times, in turns (3)")
    add("--bench-seconds", type=float, default=6.0, metavar="S", help="measure each training for S seconds (6)")
    add("--node-cores", type=int, default=16, metavar="N", help="predict for nodes of N cores (16)")
    add("--home-cores", type=int, default=16, metavar="N", help="predict for a home node of N cores (16)")
    add("--gigabits", type=float, default=10.0, metavar="G", help="predict for a network of G Gbit/s at home (10)")
    add("--learners", type=int, default=1, metavar="N", help="predict for N learners (1)")
    add("--json", type=Path, metavar="FILE", help="write all measurements to this new file")
    return parser


def _require_segments(algorithm: type[Algorithm], config: Config) -> None:
    from penstock.engine.nodes.transport import transport_class
    from penstock.engine.paths import data_path

    transport = transport_class(data_path(algorithm, config))
    if isinstance(transport, str):
        raise BenchUsageError(f"{algorithm.name()} cannot use nodes: {transport}")
    if transport.unit != "segments":
        raise BenchUsageError(
            f"{algorithm.name()} sends {transport.unit} from its nodes, but the model describes segments: measure "
            "appo, ppo, impala or a2c"
        )

"""Which machines of a cluster stand for the nodes of a run, and what of home's they leave to the learner."""

import itertools
from types import SimpleNamespace

import pytest

from penstock.algorithms.appo import APPO
from penstock.config import Config, ConfigError
from penstock.engine.nodes import joining, placing
from penstock.engine.nodes.choosing import Machine, Place, Wanted, choose, cores_at_home, nodes_wanted
from penstock.engine.nodes.node import Node
from penstock.engine.roster import share_threads

SETTINGS = {"env": "CartPole-v1", "backend": "ray", "address": "auto"}


def chosen(machines, wanted, taken=()):
    """Ids of the machines that were chosen, by place."""
    return {place: machine.id for place, machine in choose(machines, wanted, taken).items()}


def machine(id_, cores=8, *resources, is_home=False):
    return Machine(id_, f"host-{id_}", cores, frozenset(resources), is_home=is_home)


def settled(machines, **settings):
    """The config of a run on such a cluster."""
    cluster = SimpleNamespace(machines=lambda: machines, grows=False, name="of a test")
    return joining.settle(APPO.Config(**{**SETTINGS, **settings}), cluster)


MACHINES = [machine("a", 4), machine("b", 8, "gpu_box"), machine("c", 2)]


def test_a_machine_has_the_cores_and_the_resource_and_is_chosen_once():
    assert chosen(MACHINES[::-1], [Wanted(4), Wanted(4, ("gpu_box",))]) == {0: "a", 1: "b"}
    assert len(chosen(MACHINES, [Wanted(4)] * 3)) == 2
    assert chosen(MACHINES, [Wanted(4, ("gpu_box",))], taken={"b"}) == {}
    both = machine("d", 4, "gpu_box", "GPU")
    assert chosen([*MACHINES, both], [Wanted(4, ("gpu_box",)), Wanted(4, ("gpu_box", "GPU"))]) == {0: "b", 1: "d"}
    assert chosen(MACHINES, [Wanted(4, ("gpu_box", "GPU"))]) == {}


def test_what_other_runs_have_reserved_is_not_chosen_and_idle_machines_come_first():
    half, full, idle = (Machine(id_, id_, 8, {"GPU"}, busy=busy) for id_, busy in (("a", 4), ("b", 8), ("c", 0)))
    assert chosen([half, full, idle], [Wanted(4)]) == {0: "c"}
    assert chosen([half, full, idle], [Wanted(4)] * 3).keys() == {0, 1}
    assert chosen([half, full], [Wanted(8)]) == {}
    assert chosen([half.idle(), full.idle()], [Wanted(8)] * 2).keys() == {0, 1}
    used = Machine("d", "d", 8, {"GPU"}, used={"GPU"})
    assert chosen([used, idle], [Wanted(1, ("GPU",))]) == {0: "c"} and chosen([used], [Wanted(1, ("GPU",))]) == {}
    assert Wanted(1, ("GPU",), learns=True).bundle(half) == {"CPU": 4, "GPU": 1}
    assert Wanted(2, ("x",)).bundle(half) == {"CPU": 2, "x": 0.001}
    assert [str(each) for each in (half, idle)] == ["a (8 cores, 4 free)", "c (8 cores)"]


def test_every_node_has_a_machine_where_that_can_be():
    x, y, both = machine("a", 8, "x"), machine("b", 2, "y"), machine("c", 8, "x", "y")
    wanted = [Wanted(2, ("y",)), Wanted(8, ("x",))]
    assert chosen([both, x, y], wanted) == {0: "b", 1: "a"} or chosen([both, x, y], wanted) == {0: "b", 1: "c"}
    # The larger one comes first, and would take what the other alone can have.
    assert chosen([both, x], wanted) == {0: "c", 1: "a"}
    assert chosen([both], wanted) == {1: "c"}
    # Two have to move for the third.
    chain = [machine("a", 8, "x"), machine("b", 8, "x", "y"), machine("c", 8, "y", "z")]
    assert chosen(chain[::-1], [Wanted(8, ("y",)), Wanted(8, ("z",)), Wanted(8, ("x",))]).keys() == {0, 1, 2}


def test_as_many_nodes_have_machines_as_any_way_of_choosing_gives_them():
    kinds = [machine("", cores, *resources) for cores in (1, 2) for resources in ((), ("x",), ("y",), ("x", "y"))]
    asks = [Wanted(cores, resources) for cores in (1, 2) for resources in ((), ("x",), ("y",))]
    for of_machines in itertools.combinations(kinds, 3):
        there = [machine(str(n), each.cores, *each.resources) for n, each in enumerate(of_machines)]
        for wanted in itertools.product(asks, repeat=3):
            best = max(sum(map(Wanted.fits, wanted, order)) for order in itertools.permutations(there))
            found = choose(there, wanted)
            assert len(found) == len({each.id for each in found.values()}) == best, (there, wanted)
            assert all(wanted[place].fits(each) for place, each in found.items())


def test_a_cluster_of_a_thousand_machines_is_no_work():
    machines = [machine(f"{n:04}", 8) for n in range(999)]
    assert len(choose(machines, [Wanted(8)] * 1_000)) == 999


def test_home_learns_already_and_steps_lanes_only_where_no_other_machine_will_do():
    home, other = machine("a", 8, "GPU", is_home=True), machine("b", 8)
    assert chosen([home, other], [Wanted(8)]) == {0: "b"}
    assert chosen([home, other], [Wanted(8), Wanted(8)]).keys() == {0, 1}
    assert chosen([home, other], [Wanted(8), Wanted(1, learns=True)]) == {0: "a", 1: "b"}
    assert chosen([home], [Wanted(1, ("GPU",), learns=True)]) == {}
    # Another is not sent home for one that could go there.
    named = machine("c", 8, "x")
    assert chosen([home, named, other], [Wanted(8), Wanted(8, ("x",))]) == {0: "b", 1: "c"}


def test_the_first_node_has_a_core_more_where_the_evaluator_is_on_it():
    settings = {"env": "CartPole-v1", "backend": "ray", "nodes": 2}
    assert [each.cores for each in nodes_wanted(Config(**settings), 4)] == [4, 4]
    wanted = nodes_wanted(Config(**settings, evaluator="node"), 4)
    assert [each.cores for each in wanted] == [5, 4]
    assert chosen(MACHINES, wanted) == {0: "b", 1: "a"}


def test_nodes_with_a_learner_come_after_those_with_lanes_and_need_a_gpu_where_the_run_has_some():
    def resources_wanted(**more):
        settings = {"env": "CartPole-v1", "backend": "ray", "nodes": {"a": 2}, "num_learners": 4}
        return [each.resources for each in nodes_wanted(Config(**settings, **more), 8)]

    assert resources_wanted(learner_nodes=2) == [("a",), ("a",), (), ()]
    assert resources_wanted(learner_nodes=2, device="cuda") == [("a",), ("a",), ("GPU",), ("GPU",)]
    assert resources_wanted(learner_nodes={"b": 1}, device="cuda") == [("a",), ("a",), ("b", "GPU")]
    assert resources_wanted(learner_nodes={"GPU": 1}, device="cuda")[-1] == ("GPU",)
    some = nodes_wanted(Config(env="CartPole-v1", backend="ray", num_learners=2, learner_nodes=1, evaluator="node"), 8)
    assert some == [Wanted(9), Wanted(1, learns=True)]


def test_of_a_range_the_least_number_of_nodes_comes_first_and_no_other_is_sent_home():
    away, home = machine("a"), machine("b", is_home=True)
    some = {"nodes": "1:3", "num_workers": 8, "num_learners": 2, "learner_nodes": 1}
    wanted = nodes_wanted(Config(env="CartPole-v1", backend="ray", **some), 8)
    assert [each.is_optional for each in wanted] == [False, True, True, False]
    assert chosen([home, away], wanted) == {0: "b", 3: "a"}
    assert chosen([home, away, machine("c")], wanted).keys() == {0, 3}
    assert chosen([away, machine("c"), machine("d")], wanted).keys() == {0, 1, 3}


class Fake:
    """A cluster whose machines are all free."""

    grows = False

    def __init__(self, *machines):
        self._machines = machines

    def machines(self):
        return list(self._machines)

    def reaches(self, machine):
        return True

    def reserve(self, wanted, name):
        return [Place(machine, each.cores, None, 0) for each, machine in wanted]

    def release(self, places):
        pass


class Host:
    def __init__(self, machine):
        self.machine = machine

    def kill(self):
        pass


def test_an_optional_node_stays_away_from_home_while_a_lost_one_waits_for_its_return(monkeypatch):
    monkeypatch.setattr(placing, "PLACE_INTERVAL", 0.0)
    config = APPO.Config(**SETTINGS, nodes="2:4", num_workers=8)
    nodes = [Node(number, wanted) for number, wanted in enumerate(nodes_wanted(config, 8))]
    cluster = Fake(machine("a"), machine("b"), machine("c", is_home=True))
    host = lambda _, place: Host(place.machine)  # noqa: E731
    placement = placing.Placement(cluster, host, nodes, config, 1, lambda *_: None)
    placement.begin()
    where = lambda: [node.host and node.host.machine.id for node in nodes]  # noqa: E731
    assert where() == ["a", "b", None, None]
    nodes[1].lose()
    placement.without(nodes[1])
    placement.place()
    assert where() == ["a", None, None, None]
    nodes[1].not_before = 0.0
    placement.place()
    assert where() == ["a", "b", None, None]


def test_a_run_of_a_range_of_nodes_begins_with_the_least_number():
    assert settled([machine("a", 6), machine("b", 4)], nodes="2:9").num_workers == 4
    config = settled([machine("a")], nodes="1:4", num_workers=2)
    assert (config.nodes, config.least_nodes, config.num_nodes, config.nodes_requested) == ("1:4", 1, 4, "1 to 4")
    with pytest.raises(ConfigError, match=r"nodes='2:4' asks for at least 2 nodes with 8 cores"):
        settled([machine("a")], nodes="2:4", num_workers=8)


@pytest.mark.parametrize("nodes", ["64:2", "0:4", "0:0", "2:", ":4", "2-64", "-1:4"])
def test_ranges_of_nodes_that_cannot_be_are_refused(nodes):
    with pytest.raises(ConfigError, match=r"nodes='.*' is not legal.*\"LEAST:MOST\""):
        APPO.Config(**SETTINGS, nodes=nodes)


def test_an_evaluator_is_not_on_a_node_that_may_go():
    with pytest.raises(ConfigError, match=r"evaluator=\"node\" plays on the first node, which may leave with nodes="):
        APPO.Config(**SETTINGS, nodes="1:2", evaluator="node")


ALL = {"nodes": "all", "num_workers": 8}
ONE_LEARNS = {**ALL, "num_learners": 2, "learner_nodes": 1}


@pytest.mark.parametrize(
    ("machines", "settings", "nodes"),
    [
        ([machine("a"), machine("b"), machine("c", 2)], ALL, 2),
        ([machine("a"), machine("b"), machine("c", 2)], ONE_LEARNS, 2),  # one with too few cores for lanes can learn
        ([machine("a"), machine("b"), machine("c", 2, is_home=True)], ONE_LEARNS, 1),  # unless it is home
        ([machine("a"), machine("b", is_home=True)], ONE_LEARNS, 1),
        ([machine("a"), machine("b"), machine("c", 2)], {**ONE_LEARNS, "num_workers": None}, 2),
        ([machine("a"), machine("b", 8, "x"), machine("c", 2)], {**ONE_LEARNS, "learner_nodes": {"x": 1}}, 1),
        ([machine("a", 9), machine("b")], {**ALL, "evaluator": "node"}, 2),
    ],
)  # fmt: skip
def test_all_nodes_are_those_that_can_step_lanes_while_each_learner_has_one(machines, settings, nodes):
    assert settled(machines, **settings).nodes == nodes


def test_the_number_of_all_nodes_is_said_with_the_machines_that_are_not_used(monkeypatch, capsys):
    monkeypatch.setattr(joining, "FREE_SECONDS", 0.0)
    busy = Machine("b", "host-b", 8, frozenset(), busy=6)
    assert settled([machine("a"), busy, machine("c", 2)], **ALL).nodes == 1
    assert capsys.readouterr().err == (
        "nodes='all': 1 node of the cluster of a test; not used: host-b (8 cores, 2 free), host-c (2 cores)\n"
    )


def test_a_cluster_with_no_place_for_a_learner_but_home_is_refused_with_the_reason():
    machines = [machine("a"), machine("b", 8, "GPU", is_home=True)]
    settings = {"nodes": 1, "num_workers": 8, "num_learners": 2, "learner_nodes": 1, "device": "cuda"}
    said = (
        r"nodes=1 and learner_nodes=1 ask for 2 nodes with 8 cores, for num_workers=8; .* has host-a \(8 cores\), "
        r"host-b \(8 cores, home\) with GPU; home has the first learner, and cannot have another node's: ask"
    )
    with pytest.raises(ConfigError, match=said):
        settled(machines, **settings)
    assert settled(machines, **{**settings, "device": "cpu"}).num_nodes == 1


@pytest.mark.parametrize(
    ("machines", "settings", "cores"),
    [
        ([machine("a", 16), machine("b", 16, is_home=True)], {"nodes": 1}, 0),
        ([machine("a", 16), machine("b", 16, is_home=True)], {"nodes": 2}, 4),
        ([machine("a", 16), machine("b", 16, is_home=True)], {"nodes": 1, "num_learners": 2, "learner_nodes": 1}, 4),
        ([machine("a", 16, is_home=True)], {"nodes": 1, "address": None, "evaluator": "node"}, 5),
    ],
)
def test_what_a_node_has_of_homes_cores_the_learners_at_home_have_not(machines, settings, cores, monkeypatch):
    config = APPO.Config(**{**SETTINGS, "num_workers": 4, **settings})
    assert cores_at_home(config, machines) == cores
    monkeypatch.setattr("penstock.engine.roster.whole_cores", lambda: 16)
    evaluator = 1 if config.evaluator == "home" else 0
    assert share_threads(config, 8, False, cores_of_nodes=cores) == (1, 16 - cores - evaluator)

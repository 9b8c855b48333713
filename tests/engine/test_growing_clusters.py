"""Clusters to which an autoscaler adds machines: what is asked for, and for what a run waits before it begins."""

from penstock.algorithms.appo import APPO
from penstock.engine.nodes import joining
from penstock.engine.nodes.choosing import Machine, Wanted, bundles_of, in_words, missing

ONE = Machine("a", "amber", 16, {"sampler"})


class Growing:
    """A cluster that has a machine as soon as it was asked for some."""

    name, grows = "of a test", True

    def __init__(self):
        self.asked = []

    def machines(self):
        return [ONE] if self.asked else []

    def want(self, bundles):
        self.asked.append(bundles)


def test_a_machine_that_stands_for_a_node_is_asked_for_as_a_whole_so_that_what_is_missing_has_no_room_there():
    wanted = [Wanted(8, ("sampler",)), Wanted(8, ("sampler",)), Wanted(4), Wanted(1, ("sampler", "GPU"))]
    bundles = bundles_of(wanted, {0: ONE})
    assert bundles == [{"CPU": 16}, {"CPU": 8, "sampler": 0.001}, {"CPU": 4}, {"CPU": 1, "sampler": 0.001, "GPU": 1}]
    left = missing(bundles, {0: ONE})
    assert in_words([*left, {"CPU": 4}]) == (
        "1 node with 8 cores and sampler, 2 nodes with 4 cores, 1 node with 1 core and sampler and GPU"
    )


def test_a_run_waits_for_the_first_node_of_a_cluster_that_grows_and_says_for_what(monkeypatch, capsys):
    monkeypatch.setattr(joining, "LOOK_SECONDS", 0.0)
    cluster = Growing()
    config = APPO.Config(env="CartPole-v1", backend="ray", nodes={"sampler": 3}, num_workers=2)
    assert joining.settle(config, cluster) == config
    assert cluster.asked == [[{"CPU": 2, "sampler": 0.001}] * 3]
    said = capsys.readouterr().err
    assert said == "waiting for the cluster of a test to grow; requested: 3 nodes with 2 cores and sampler\n"

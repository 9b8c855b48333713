"""All updates of a batch: in order, with callbacks before and after, and non-finite ones skipped."""

import math
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch

from penstock.algorithms.bases.segment import SegmentUpdater
from penstock.nn import GroupBroken


class Minibatch:
    def __init__(self, number, learn=True):
        self.number, self.learn = number, torch.tensor([learn])


class Minibatches(list):
    progress = 0.5


class Noting:
    """An algorithm and an optimiser that note their calls; minibatch 2 is not finite if requested."""

    def __init__(self, fails=False, enough=99):
        self.noted, self.rates, self._fails, self._enough = [], [], fails, enough

    config = SimpleNamespace(seed=0)

    def build_optimizer(self, model):
        return self

    def reason_not_to_repeat(self):
        return "its updates are noted"

    def auxiliary_networks(self):
        return ()

    def set_learning_rate(self, optimizer, progress):
        self.rates.append(progress)

    def autocast(self, device):
        return nullcontext()

    def begin(self, model, learning):
        pass

    def training_mode(self, model):
        return nullcontext()

    def prepare(self, model, batch):
        self.noted.append("prepare")

    def minibatches(self, batch, generator):
        return batch

    def gradient(self, model, minibatch, autocast, trained):
        loss = torch.tensor(math.nan if self._fails and minibatch.number == 2 else float(minibatch.number))
        if loss.isfinite():
            self.noted.append(minibatch.number)
        return loss, {"loss": loss, "grad_norm": torch.tensor(0.0)}

    def step(self):
        self.noted.append("step")

    def should_stop_early(self, metrics):
        return metrics["loss"] >= self._enough

    def update_layer_statistics(self, model, batch):
        self.noted.append("layers")

    def update_statistics(self, model, batch):
        self.noted.append("statistics")


def updater_of(noting):
    return SegmentUpdater(noting, torch.nn.Linear(1, 1))


def learn(noting, *batch):
    watch = {
        name: lambda *why, name=name: noting.noted.append((name, *why)) for name in ("begin", "updated", "skipped")
    }
    metrics = updater_of(noting).learn(Minibatches(batch), **watch)
    return {name: value.item() for name, value in metrics.items() if name != "grad_norm"}


def update(number):
    return [("begin",), number, "step", ("updated",)]


def test_minibatches_are_learned_in_order_and_their_metrics_averaged():
    noting = Noting()
    assert learn(noting, Minibatch(1), Minibatch(4)) == {"loss": 2.5}
    assert noting.noted == ["prepare", *update(1), *update(4), "layers", "statistics"]


def test_where_nothing_is_to_be_learned_no_update_begins():
    noting = Noting()
    assert learn(noting, Minibatch(1, learn=False)) == {}
    assert noting.noted == ["prepare", "layers", "statistics"]


def test_what_is_not_finite_is_left_out_and_keeps_the_batch_from_the_statistics():
    noting = Noting(fails=True)
    assert learn(noting, Minibatch(1), Minibatch(2), Minibatch(3)) == {"loss": 2.0}
    assert noting.noted == ["prepare", *update(1), ("begin",), ("skipped", "loss nan, gradient norm 0.0"), *update(3)]


def test_no_further_update_is_made_when_it_is_enough():
    noting = Noting(enough=1)
    assert learn(noting, Minibatch(1), Minibatch(3)) == {"loss": 1.0}
    assert noting.noted == ["prepare", *update(1), "layers", "statistics"]


@pytest.mark.parametrize("fails", [False, True])
def test_nobody_has_to_watch(fails):
    metrics = updater_of(Noting(fails)).learn(Minibatches([Minibatch(2)]))
    assert metrics.keys() == (set() if fails else {"loss", "grad_norm"})


def test_the_learning_rate_is_set_when_the_optimizer_is_made_and_once_per_batch():
    noting = Noting()
    learn(noting, Minibatch(1), Minibatch(3))
    assert noting.rates == [0.0, 0.5]


@pytest.mark.parametrize("what", ["prepare", "gradient"])
def test_where_another_learner_has_gone_the_computation_is_done_anew_and_the_update_is_made_once(what):
    noting, failed = Noting(), []
    compute = getattr(noting, what)

    def fail_once(*arguments, **named):
        if not failed:
            failed.append(what)
            raise GroupBroken("a learner of the group has died")
        return compute(*arguments, **named)

    setattr(noting, what, fail_once)
    assert learn(noting, Minibatch(1)) == {"loss": 1.0}
    assert failed and noting.noted == ["prepare", *update(1), "layers", "statistics"]

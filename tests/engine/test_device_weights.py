"""Weights that go from the learner to the inference in one process: whole, the newest, and shown to others in time."""

import threading

import numpy as np
import pytest
import torch

from penstock.algorithms.appo import APPO
from penstock.engine.acting.device_inference import InferenceWeights, LearnerWeights, WeightsExchange
from penstock.engine.acting.inference import SharedWeights
from tests.engine.collecting import FIRST_VERSION, Collecting


@pytest.fixture
def run():
    run = Collecting(APPO)
    yield run
    run.close()


class Ends:
    """The learner's and the inference's end of one exchange."""

    def __init__(self, run: Collecting) -> None:
        exchange = WeightsExchange()
        self.learns, self.acts = run.algorithm.build_model(), run.algorithm.build_model()
        self.learner = LearnerWeights(self.learns, run.arena, exchange)
        self.inference = InferenceWeights(self.acts, run.arena, exchange)
        self.learner.refresh()
        self.inference.refresh()

    def learn(self, value: float, version: int, steps: int) -> None:
        with torch.no_grad():
            for parameter in self.learns.parameters():
                parameter.fill_(value)
        self.learner.publish(version, steps)


def values(model):
    return {value for parameter in model.parameters() for value in parameter.detach().unique().tolist()}


def test_the_inference_begins_with_what_lies_in_the_block(run):
    ends = Ends(run)
    assert (ends.inference.version, ends.inference.steps) == (FIRST_VERSION, 0)
    for name, tensor in run.model.state_dict().items():
        assert torch.equal(ends.acts.state_dict()[name], tensor), name


def test_the_inference_takes_the_newest_weights_with_their_version_and_steps(run):
    ends = Ends(run)
    ends.learn(1.0, version=4, steps=100)
    ends.learn(2.0, version=5, steps=200)
    assert ends.inference.version == FIRST_VERSION, "nothing is taken before it is asked for"
    ends.inference.refresh()
    assert (ends.inference.version, ends.inference.steps) == (5, 200)
    assert values(ends.acts) == {2.0}


def test_what_the_learner_goes_on_to_change_does_not_change_what_it_has_published(run):
    ends = Ends(run)
    ends.learn(1.0, version=4, steps=100)
    with torch.no_grad():
        next(ends.learns.parameters()).fill_(7.0)
    ends.inference.refresh()
    assert values(ends.acts) == {1.0}


def test_the_block_gets_the_weights_when_they_are_to_be_shown_and_not_before(run):
    ends = Ends(run)
    ends.learn(1.0, version=4, steps=100)
    ends.learn(2.0, version=5, steps=200)
    assert run.arena.weights.version == FIRST_VERSION
    ends.learner.show()
    reader = SharedWeights(run.algorithm.build_model(), run.arena.weights)
    reader.refresh()
    assert (reader.version, reader.steps) == (5, 200)


def test_weights_that_are_shown_twice_are_written_to_the_block_once(run, monkeypatch):
    ends = Ends(run)
    written = []
    monkeypatch.setattr(SharedWeights, "publish", lambda self, version, steps: written.append(version))
    ends.learner.show()
    assert written == [], "the block holds them from the beginning"


@pytest.mark.timeout(60)
def test_weights_are_taken_whole_and_never_older_than_before_while_new_ones_are_left(run):
    exchange, size, last = WeightsExchange(), 200_000, 300
    exchange.leave(torch.zeros(size), 0, 0)

    def leave():
        for version in range(1, last + 1):
            exchange.leave(torch.full((size,), float(version)), version, 10 * version)

    thread = threading.Thread(target=leave)
    thread.start()
    seen, taken = [0], torch.zeros(size)
    while seen[-1] < last:
        version, steps = exchange.take(taken)
        assert taken.unique().tolist() == [float(version)] and steps == 10 * version
        seen.append(version)
    thread.join()
    assert np.all(np.diff(seen) >= 0)

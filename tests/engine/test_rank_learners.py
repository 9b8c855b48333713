"""Several learners that compute every update together come to the weights of one, each by its share of the work."""

import copy
import dataclasses
from contextlib import nullcontext

import pytest
import torch

from penstock.algorithms.a2c import A2C
from penstock.algorithms.appo import APPO
from penstock.algorithms.clear import CLEAR
from penstock.algorithms.crossq import CrossQ
from penstock.algorithms.dqn import DQN
from penstock.algorithms.flashsac import FlashSAC
from penstock.algorithms.impact import IMPACT
from penstock.algorithms.impala import IMPALA
from penstock.algorithms.ppo import PPO
from penstock.algorithms.pqn import PQN
from penstock.algorithms.r2d2 import R2D2
from penstock.algorithms.sac import SAC
from penstock.algorithms.td3 import TD3
from penstock.algorithms.tqc import TQC
from penstock.algorithms.xqc import XQC
from penstock.engine.groups.parcels import Kind, ParcelChannel, batch_in
from penstock.engine.groups.rank_learner import ReplayRankLearner, rank_learner
from penstock.experience.batch import SequenceBatch
from penstock.nn import sharing
from tests.algorithms import batches, transitions
from tests.nn.plain import CHOICE
from tests.nn.plain import TORQUE as TWO_TORQUES
from tests.nn.together import in_threads, of_group

PASSES = {"num_epochs": 2, "batch_size": 12}
MEMORY = {"memory": "gru", "burn_in": 2}
REPLAY = {"hidden_sizes": (8,), "batch_size": 16, "learning_starts": 16}
SEGMENTS = [
    (A2C, CHOICE, {"normalize_returns": True}),
    (PPO, CHOICE, {**PASSES, "normalize_returns": True}),
    (PPO, TWO_TORQUES, {**PASSES, **MEMORY}),
    (PPO, CHOICE, {**PASSES, "target_kl": 1e-6}),
    (APPO, CHOICE, {"num_minibatches": 2, "advantage_estimator": "vtrace", **PASSES}),
    (IMPALA, CHOICE, {"batch_size": 24}),
    (IMPACT, CHOICE, {"batch_size": 24}),
    (PQN, CHOICE, {**PASSES, "memory": "lstm"}),
]
REPLAYS = [
    (DQN, CHOICE, {"prioritized": True, "double": True, "normalize_observations": True}),
    (DQN, CHOICE, {"distributional": "iqn", "noisy": True}),
    (TD3, transitions.TORQUE, {}),
    (SAC, transitions.TORQUE, {}),
    (TQC, transitions.TORQUE, {"num_quantiles": 5}),
    (CrossQ, transitions.TORQUE, {"critic_hidden_sizes": (8,), "policy_delay": 1}),
    (FlashSAC, transitions.TORQUE, {"hidden_sizes": (8,), "critic_hidden_sizes": (8,), "return_bound": None}),
    (XQC, transitions.TORQUE, {"critic_hidden_sizes": (8,), "policy_delay": 1, "return_bound": None}),
]


def sequences(size):
    """Random sequences of 12 steps behind each other, of which the last steps of one are none."""
    generator = torch.Generator().manual_seed(1)
    valid = torch.ones(12, size, dtype=torch.bool)
    valid[-3:, 0] = False
    return SequenceBatch(
        obs=torch.randn(13, size, 2, generator=generator), first=torch.zeros(13, size, dtype=torch.bool),
        action=torch.randint(3, (12, size), generator=generator), reward=torch.randn(12, size, generator=generator),
        discount=torch.full((12, size), 0.99), valid=valid, memory=torch.zeros(size, 8),
        weights=torch.rand(size, generator=generator), number=1, progress=0.0,
    )  # fmt: skip


def lessons_of(algorithm, action, settings):
    """An algorithm, and three batches of its kind."""
    if hasattr(algorithm, "loss") or algorithm is PQN:
        made = batches.make(algorithm, action, **settings)
        valid = torch.ones(batches.T, batches.B, dtype=torch.bool)
        valid[2:, 1] = valid[3, 0] = False  # the shares of two learners hold different numbers of steps
        model = made.build_model() if algorithm is PQN else batches.make_model(made)
        actor = batches.make(PPO, action, **{k: v for k, v in settings.items() if k == "memory"})
        of = batches.make_model(actor) if algorithm is PQN else model
        found = [batches.collect(actor if algorithm is PQN else made, of, seed, valid) for seed in range(3)]
        return made, found
    if algorithm is R2D2:
        small = {"sequence_length": 8, "burn_in": 4, "sequence_overlap": 0, "memory_size": 4, **REPLAY}
        return transitions.make(algorithm, transitions.VECTOR, action, **small, **settings), [sequences(4)] * 3
    made = transitions.make(algorithm, transitions.VECTOR, action, **{**REPLAY, **settings})
    return made, [transitions.random_transitions(action, seed=n, number=n + 1) for n in range(3)]


def beginning(algorithm):
    """What all learners go on with."""
    torch.manual_seed(5)
    return {**rank_learner(of_group(algorithm)).whole_state(), "standing": {"steps": 0, "version": 0, "updates": 0}}


def learned(algorithm, lessons, before, group=None):
    """Weights and targets after the lessons, updates, and how many rows the network has seen meanwhile."""
    learner = rank_learner(of_group(algorithm))
    learner.take_state(copy.deepcopy(before))
    if isinstance(learner, ReplayRankLearner):  # Adam makes steps of what is no gradient, but the rounding of none
        transitions.descend_plainly(learner._algorithm)
    rows, model = [], learner._model
    counted = getattr(model, "critics", model.encoder)
    counted.register_forward_pre_hook(lambda module, given: rows.append(given[0].shape[-2]))
    for number, batch in enumerate(lessons):
        generator = torch.Generator().manual_seed(number).get_state()
        about = {"tuned": {}, "standing": learner._standing, "generator": generator}
        with nullcontext() if group is None else sharing(group):
            learner.learn(copy.deepcopy(batch), about)
    state = learner.whole_state()
    return {**state["weights"], **state["learning"].get("target", {})}, state["standing"]["updates"], sum(rows)


def compared(algorithm, lessons, size=2, breaks_at=None):
    """What one learner has learned, and what each of several; the last may go before its exchange of this number."""
    before = beginning(algorithm)
    alone = learned(algorithm, lessons, before)
    return alone, in_threads(size, lambda group: learned(algorithm, lessons, before, group), breaks_at)


def assert_alike(found, expected):
    """The same weights to rounding, after as many updates."""
    assert not isinstance(found, Exception), found
    assert found[1] == expected[1] > 0
    for name, tensor in expected[0].items():
        torch.testing.assert_close(found[0][name], tensor, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize(("algorithm", "action", "settings"), [*SEGMENTS, *REPLAYS, (R2D2, CHOICE, {})],
                         ids=lambda value: getattr(value, "__name__", ""))  # fmt: skip
def test_two_learners_learn_what_one_learns_each_from_half_of_the_rows(algorithm, action, settings):
    alone, several = compared(*lessons_of(algorithm, action, settings))
    for found in several:
        assert_alike(found, alone)
        assert 2 * found[2] == alone[2]


def test_rows_that_cannot_be_shared_out_evenly_are_learned_from_whole():
    alone, several = compared(*lessons_of(PPO, CHOICE, PASSES), size=3)  # 4 segments of 12 steps each in a minibatch
    for found in several:
        assert_alike(found, alone)
        assert alone[2] / 3 < found[2] < alone[2]  # targets are computed from segments, updates made from steps


@pytest.mark.parametrize("breaks_at", [0, 1, 2, 4, 7])
@pytest.mark.parametrize(("algorithm", "settings"), [(PPO, PASSES), (DQN, {})], ids=["PPO", "DQN"])
def test_a_learner_that_is_left_alone_loses_no_update(algorithm, settings, breaks_at):
    alone, (left, _) = compared(*lessons_of(algorithm, CHOICE, settings), breaks_at=breaks_at)
    assert_alike(left, alone)
    assert left[2] > alone[2] / 2


def test_a_batch_arrives_as_it_was_sent():
    _, (batch, *_) = lessons_of(CLEAR, CHOICE, {"batch_size": 24})
    batch.records = {"logits": torch.randn(batches.T, batches.B, 3), "value": torch.randn(batches.T, batches.B)}
    batch.obs = torch.randint(256, (batches.T + 1, batches.B, 5, 2), dtype=torch.uint8).transpose(2, 3)
    batch.progress = 0.25

    def send_or_receive(group):
        post = ParcelChannel(group)
        if group.rank == 0:
            post.send_batch(batch, {"standing": {"steps": 7}})
            return None
        kind, data = post.receive(0)
        assert kind is Kind.BATCH
        return batch_in(data, torch.device("cpu"))

    _, (received, about) = in_threads(2, send_or_receive)
    assert about == {"standing": {"steps": 7}}
    assert type(received) is type(batch)
    torch.testing.assert_close(dataclasses.asdict(received), dataclasses.asdict(batch), rtol=0, atol=0)

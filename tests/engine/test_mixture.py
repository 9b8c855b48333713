"""Runs whose batches are a mix: shares, steps that count, resuming, fences, and every source in processes."""

import json
import math
import os
import shutil
import signal
import threading
import time
from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch

import penstock
from penstock.algorithms.clear import CLEAR
from penstock.algorithms.impact import IMPACT
from penstock.algorithms.impala import IMPALA
from penstock.algorithms.laser import LASER
from penstock.bench.data_paths import measured_path
from penstock.config import ConfigError, make_config
from penstock.engine.paths.drawing import MOST_AHEAD, PATIENCE, DrawAhead
from penstock.engine.preparation import run_shape
from penstock.engine.trainer import Trainer
from penstock.envs.making import probe
from penstock.envs.spec import EnvSpec
from penstock.experience.arena import ExperienceArena
from penstock.runs.checkpoint import load_checkpoint
from tests.comparing import identical
from tests.engine.inside import learner_of, policy_of
from tests.engine.processes import TINY, Watched, pids_of, roles_of, wait_until

pytestmark = [pytest.mark.timeout(120), pytest.mark.usefixtures("kept_launcher")]

SMALL: dict[str, Any] = {
    "env": "CartPole-v1", "num_workers": 2, "num_envs_per_worker": 4, "segment_length": 8, "batch_size": 64,
    "hidden_sizes": (8,), "total_steps": 4_000, "backend": "serial", "eval_interval": 0, "run_dir": None,
}  # fmt: skip
HALF = ["queue:1/2", "uniform:1/2,capacity=20,min_size=10"]
KINDS = ("uniform", "reservoir", "prioritized", "attentive", "elite", "elite,insertion=elite,projection=4")


def source(kind):
    name, _, rest = kind.partition(",")
    return ["queue:1/2", f"{name}:1/2,capacity=20,min_size=10" + (f",{rest}" if rest else "")]


class Watching(IMPALA):
    """Remembers the batches that it has learned from."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.batches = []

    def prepare(self, model, batch):
        self.batches.append(batch.segments(torch.arange(batch.num_segments)))
        super().prepare(model, batch)


def watched(steps=1_000, **settings):
    with Trainer(Watching, **{**SMALL, **settings}) as trainer:
        trainer.train(steps, quiet=True)
        return policy_of(trainer).algorithm.batches, trainer.status


def test_with_a_queue_alone_a_run_is_what_it_is_without_sources():
    def weights(**settings):
        with penstock.IMPALA(**SMALL, seed=5, **settings) as algo:
            algo.train(600, quiet=True)
            return algo.get_parameters()[0], algo.status.experience

    (plain, shown), (queue, same) = weights(), weights(replay=["queue:1"])
    assert identical(plain, queue) and shown == same and "replay/prefetched" not in shown


@pytest.mark.parametrize("kind", KINDS)
def test_one_seed_gives_one_set_of_weights_bit_for_bit(kind):
    def weights():
        with penstock.IMPALA(**SMALL, seed=5, replay=source(kind)) as algo:
            algo.train(700, quiet=True)
            return algo.get_parameters()[0]

    assert identical(weights(), weights())


def test_each_batch_is_the_mix_that_its_sources_say_and_replayed_segments_have_been_fresh():
    batches, status = watched(1_200, replay=["queue:1/4", "uniform:1/2,capacity=20", "reservoir:1/4,capacity=20"])
    fresh = set()
    for batch in batches:
        assert batch.replayed.tolist() == [False] * 2 + [True] * 6 and batch.num_segments == 8
        assert batch.learn.sum() > 0.5 * 64
        fresh |= {batch.log_prob[:, b].numpy().tobytes() for b in range(2)}
    replayed = [batch.log_prob[:, b].numpy().tobytes() for batch in batches for b in range(2, 8)]
    later = [segment for segment in replayed if segment in fresh]
    assert len(batches) > 20 and len(later) > 0.7 * len(replayed), "others came while the stores filled"
    assert status.experience["replay/uniform/share"] == 0.5 and status.experience["replay/reservoir/share"] == 0.25
    assert status.experience["replay/uniform/segments"] == 20


def test_steps_are_the_fresh_ones_and_those_that_fill_count():
    batches, status = watched(1_000, replay=HALF)
    learned = sum(int((batch.learn[:, ~batch.replayed] > 0).sum()) for batch in batches)
    filled = status.steps - learned
    assert 10 * 8 * 0.8 <= filled <= 16 * 8, "ten segments, or as many as came at once"
    assert status.updates == len(batches)
    assert batches[0].progress == pytest.approx(filled / 4_000)


def test_a_large_policy_lag_masks_fresh_steps_and_not_replayed_ones():
    batches, status = watched(1_000, replay=["queue:1/2", "uniform:1/2,capacity=20,min_size=20"], max_policy_lag=1)
    last = batches[-1]
    ages = [status.experience[f"replay/uniform/age/{name}"] for name in ("min", "median", "max")]
    assert 0 <= ages[0] <= ages[1] <= ages[2] and ages[0] <= status.experience["replay/uniform/age"] <= ages[2]
    assert status.experience["replay/uniform/age"] >= 1 and (last.learn[:, last.replayed] > 0).all(0).any()


def test_a_source_drawn_by_priority_gives_weights_and_gets_new_priorities():
    batches, _ = watched(1_200, replay=source("prioritized"))
    weights = [set(batch.learn[:, batch.replayed].flatten().tolist()) - {0.0} for batch in batches]
    assert all(0.0 < w <= 1.0 for each in weights for w in each) and max(map(len, weights)) > 1
    assert all(set(batch.learn[:, ~batch.replayed].flatten().tolist()) <= {0.0, 1.0} for batch in batches)


@pytest.mark.parametrize(("kind", "memory"), [("prioritized", "none"), ("attentive", "none"), (KINDS[-1], "lstm")])
def test_sources_learn_in_processes(kind, memory):
    settings = {**SMALL, "backend": "local", "memory": memory, "memory_size": 6, "total_steps": 1_200}
    with penstock.IMPALA(**settings, replay=source(kind)) as algo:
        result = algo.train(quiet=True)
        processes = Watched(roles_of(algo))
        shown, name = algo.status.experience, kind.partition(",")[0]
        assert result.steps >= 1_200 and algo.status.updates > 20
        assert shown[f"replay/{name}/segments"] == 20 and shown[f"replay/{name}/uses"] > 0.5
        assert (shown["replay/prefetched"] > 0) == (name in ("attentive", "elite"))
    assert processes.left_after(10.0) == []


@pytest.mark.parametrize(
    ("algorithm", "settings"),
    [
        (penstock.CLEAR, {"replay": ["queue:1/2", "reservoir:1/2,capacity=20"], "inference": "central"}),
        (penstock.CLEAR, {"replay": ["queue:1/2", "reservoir:1/2,capacity=20"], "env": "Pendulum-v1"}),
        (penstock.LASER, {"replay": ["queue:1/4", "uniform:3/4,capacity=20"], "memory": "gru"}),
        (penstock.IMPACT, {"memory": "gru", "inference": "central"}),
        (penstock.IMPACT, {"env": "Pendulum-v1"}),
    ],
)
def test_the_algorithms_learn_in_processes_wherever_actions_are_chosen(algorithm, settings):
    with algorithm(**{**SMALL, "backend": "local", "total_steps": 1_500, **settings}) as algo:
        result = algo.train(quiet=True)
        assert result.steps >= 1_500 and algo.status.updates > 20
        assert all(math.isfinite(value) for name, value in algo.status.losses.items() if name != "explained_variance")


@pytest.mark.parametrize("save", [True, False])
def test_a_run_goes_on_with_its_segments_if_they_were_saved_and_fills_its_sources_if_not(save, tmp_path):
    path = tmp_path / "run"
    settings = {**SMALL, "run_dir": str(path), "total_steps": 1_000, "save_replay": save}
    with Trainer(CLEAR, **settings, replay=["queue:1/2", "reservoir:1/2,capacity=40,min_size=30"]) as trainer:
        trainer.train(quiet=True)
        assert trainer.status.experience["replay/reservoir/segments"] == 40
    with Trainer.resume(path, total_steps=1_100) as trainer:
        trainer.train(quiet=True)
        assert trainer.status.updates > 0 or not save
        told = "sources of replay are empty (reservoir: its contents were not saved (save_replay=False))"
        assert (told in (path / "log.txt").read_text()) != save
    if save:
        shutil.rmtree(path / "replay")
        with Trainer.resume(path, total_steps=1_200) as trainer:
            trainer.train(quiet=True)
        assert "reservoir: none were saved in" in (path / "log.txt").read_text()


def test_the_target_network_and_the_target_of_a_resumed_impact_come_back(tmp_path):
    path = tmp_path / "run"
    settings = {**SMALL, "run_dir": str(path), "total_steps": 500, "target_period": 10_000}
    with penstock.IMPACT(**settings) as algo:
        before = algo.get_parameters()[0]
        algo.train(quiet=True)
    with Trainer.resume(path, total_steps=700) as algo:
        algo.train(quiet=True)
        algo.save(tmp_path / "later")
    target = load_checkpoint(tmp_path / "later").state["target"]
    assert identical(target["policy_head.weight"], before["policy_head.weight"])


def test_weights_from_outside_fence_fresh_segments_and_leave_replayed_ones():
    with Trainer(Watching, **SMALL, replay=HALF) as trainer:
        trainer.train(600, quiet=True)
        held = trainer.status.experience["replay/uniform/segments"]
        old = {b.log_prob[:, i].numpy().tobytes() for b in policy_of(trainer).algorithm.batches for i in range(8)}
        weights = trainer.get_parameters()
        trainer.set_parameters(weights)
        policy_of(trainer).algorithm.batches.clear()
        trainer.train(64, quiet=True)
        first = policy_of(trainer).algorithm.batches[0]
        segments = [first.log_prob[:, i].numpy().tobytes() for i in range(8)]
        assert not any(segment in old for segment in segments[:4])
        assert any(segment in old for segment in segments[4:]) and held == 20


def test_what_a_run_says_of_its_sources_is_logged(tmp_path):
    path = tmp_path / "run"
    with Trainer(LASER, **{**SMALL, "run_dir": str(path)}, replay=["queue:1/4", "uniform:3/4,capacity=20"]) as trainer:
        trainer.train(1_000, quiet=True)
    last = json.loads((path / "metrics.jsonl").read_text().splitlines()[-1])
    assert last["replay/uniform/segments"] == 20 and last["replay/uniform/uses"] == pytest.approx(3.0, rel=0.3)
    assert 0.0 <= last["loss/irrelevant"] <= 1.0


def test_a_killed_rollout_worker_is_replaced_and_the_sources_go_on():
    settings = {**SMALL, **TINY, "backend": "local", "batch_size": 64, "total_steps": 10**9}
    killed = []

    def kill(status):
        if status.updates > 20 and not killed:
            killed.append(status.updates)
            os.kill(pids_of(trainer)["rollout-0"], signal.SIGKILL)
        return not (killed and status.updates > killed[0] + 40 and status.restarts)

    with Trainer(IMPALA, **settings, replay=["queue:1/2", "elite:1/2,capacity=20"]) as trainer:
        assert trainer.train(quiet=True, on_update=kill).stop_reason == "callback"
        assert trainer.status.restarts == 1


def test_sampling_uniformly_among_candidates_is_uniform():
    """With candidates=1 a comparing source draws every segment as often as any other, none twice in a batch."""
    with Trainer(Watching, **SMALL, replay=["queue:1/2", "elite:1/2,capacity=12,min_size=12,candidates=1"]) as trainer:
        trainer.train(200, quiet=True)
        learner = learner_of(trainer)
        counts = Counter[int]()
        for _ in range(1_500):
            ids = learner._drawing.take()[0]["ids"].tolist()
            assert len(set(ids)) == 4
            counts.update(ids)
    values = np.array(list(counts.values()))
    assert len(values) == 12 and ((values - 500) ** 2 / 500).sum() < 40, "chi-square of 11 degrees"


class Bell:
    def __init__(self):
        self.rings = 0

    def ring(self):
        self.rings += 1


def test_enough_is_drawn_ahead_for_no_process_to_wait():
    may_draw = threading.Event()

    def draw():
        may_draw.wait(20)
        return time.monotonic()

    ahead = DrawAhead(draw, Bell())
    assert ahead.take() is None and ahead.depth == 1
    for _ in range(3):
        assert ahead.take() is None
    assert ahead.depth == 2, "one wait is one wait, however often it is asked"
    may_draw.set()
    wait_until(lambda: ahead.take() is not None, "a batch is drawn")
    for _ in range(20 * PATIENCE):
        wait_until(lambda: len(ahead._ready) >= ahead.depth, "all are drawn")
        assert ahead.take() is not None
        if ahead.depth == 1:
            break
    assert ahead.depth == 1, "nobody has waited for long"
    for _ in range(100):
        while ahead.take() is not None:
            pass
    assert 1 < ahead.depth <= MOST_AHEAD
    ahead.close()
    assert not any(thread.name == "drawing" for thread in threading.enumerate())


def test_what_goes_wrong_in_drawing_ends_the_run_with_its_story():
    def draw():
        raise ValueError("nothing there")

    bell = Bell()
    ahead = DrawAhead(draw, bell)
    assert ahead.take() is None
    wait_until(lambda: bell.rings > 0, "drawing has failed")
    with pytest.raises(ValueError, match="nothing there"):
        ahead.take()
    ahead.close()


def test_segments_that_are_gone_are_not_chosen_and_the_others_are():
    """Rows are overwritten between the look and the choice: what was seen of the rest still decides."""
    sources = ["queue:1/2", "elite:1/2,capacity=12,min_size=12,candidates=3,anneal=1000,strategy=3"]
    with Trainer(IMPALA, **SMALL, replay=sources) as trainer:
        trainer.train(200, quiet=True)
        draw = learner_of(trainer)._draws[0]
        store, looks = draw._store, []

        class Vanishing:
            """Loses the two oldest rows after the look."""

            def __getattr__(self, name):
                return getattr(store, name)

            def read(self, rows, ids, fields=None):
                found, is_there = store.read(rows, ids, fields=fields)
                if fields is None:
                    is_there &= ~np.isin(ids, gone)
                else:
                    looks.append(len(rows))
                return found, is_there

        gone = store.buffer.live()[1][:2]
        draw._store = Vanishing()
        for _ in range(30):
            assert not np.isin(draw(0.0)["ids"], gone).any()
        assert len(looks) == 30 and draw.num_uniform == 0, "nothing is looked at twice"


def test_what_fills_the_sources_is_taken_into_the_normalisation_of_observations():
    with Trainer(Watching, **SMALL, replay=HALF) as trainer:
        trainer.train(600, quiet=True)
        steps, weights = trainer.status.steps, trainer.get_parameters()[0]
    (count,) = [value for name, value in weights.items() if name.endswith("input.moments.count")]
    assert count.item() == steps


def test_the_learning_of_impact_can_be_rehearsed_and_is_as_many_updates_as_a_run_makes():
    config = make_config(IMPACT.Config, {**SMALL, "batch_uses": 4})
    env = EnvSpec.resolve(config.env, {}, "make")
    observation, action, *_ = probe(env)
    algorithm = IMPACT(config, observation, action)
    arena = ExperienceArena.create(run_shape(algorithm, algorithm.build_model()))
    arena.columns["valid"][:] = True
    rehearsal = measured_path(algorithm).rehearsal(arena, algorithm)
    assert rehearsal.do() == 64 / 4
    rehearsal.close()


def test_a_disk_that_is_not_there_is_named_with_its_source():
    with pytest.raises(ConfigError, match="replay source 'uniform' cannot be made, with disk='/nowhere'"):
        Trainer(IMPALA, **SMALL, replay=["queue:1/2", "uniform:1/2,disk=/nowhere"])


class Featured(IMPALA):
    """Records how it saw each observation."""

    records = ("features",)


def test_features_may_be_recorded_without_a_source_that_compares_them():
    with Trainer(Featured, **SMALL) as trainer:
        trainer.train(200, quiet=True)
        assert trainer.status.updates > 0

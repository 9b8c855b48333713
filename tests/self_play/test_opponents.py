"""Runs in which guests play past versions of the policy, and the pool that these are in."""

import dataclasses
import json
import os
import signal
from collections import defaultdict
from typing import Any

import numpy as np
import pytest
import torch

import penstock
from penstock.config import ConfigError
from penstock.engine.acting.inference import STEPS_NBYTES
from penstock.engine.paths.segment_learner import SegmentLearner
from penstock.nn import place_
from penstock.runs.checkpoint import load_checkpoint
from penstock.runs.run_directory import RunDirectory
from penstock.self_play.inference import GuestInference
from tests.comparing import identical
from tests.engine.inside import opponents_of
from tests.engine.known import known_to
from tests.engine.processes import FOR_EVER, pids_of, wait_until
from tests.envs.counting import CountingEnv
from tests.self_play.guests import REPLAY, Three, Turns

pytestmark = [pytest.mark.timeout(90), pytest.mark.usefixtures("kept_launcher")]


class Long(Turns):
    """Games that outlast several entries."""

    def __init__(self) -> None:
        super().__init__(40)


SERIAL: dict[str, Any] = {
    "env": Turns, "num_workers": 1, "num_envs_per_worker": 2, "num_agents": 2, "segment_length": 4, "batch_size": 12,
    "hidden_sizes": (8,), "total_steps": 240, "seed": 3, "backend": "serial", "eval_interval": 0, "eval_episodes": 2,
    "run_dir": None, "opponents": "past", "opponent_pool": 3, "opponent_interval": 24, "num_epochs": 1,
}  # fmt: skip
ALONE = {**SERIAL, "opponent_share": 1.0, "batch_size": 8}
RUNS = [
    pytest.param(penstock.PPO, {"memory": "gru", "memory_size": 6, "opponent_sampling": "hard"}, id="ppo"),
    pytest.param(penstock.APPO, {"inference": "central", "num_groups": 2, "batch_size": 8}, id="appo"),
    pytest.param(penstock.A3C, {"env": Three, "num_agents": 3}, id="a3c"),
    pytest.param(penstock.DQN, REPLAY, id="dqn"),
]


@pytest.mark.parametrize(("algorithm", "more"), RUNS)
def test_one_seed_gives_one_set_of_weights_in_one_call_or_in_several(algorithm, more):
    found = []
    for calls in ((None,), (100, None)):
        with algorithm(**known_to(algorithm, {**SERIAL, **more})) as trainer:
            for steps in calls:
                trainer.train(steps, quiet=True)
            opponents = opponents_of(trainer)
            found.append((trainer.get_parameters()[0], opponents.to_json(0)))
            assert trainer.status.opponent_games > 10 and len(trainer.status.opponents) == 3
    (weights, pool), (again, same) = found
    assert identical(weights, again) and pool == same


# ---- acting and learning lanes


def test_guests_are_not_learned_from(monkeypatch):
    batches = []
    learn = SegmentLearner.learn
    monkeypatch.setattr(SegmentLearner, "learn", lambda self, batch: batches.append(batch) or learn(self, batch))
    with penstock.PPO(**ALONE) as trainer:
        trainer.train(quiet=True)
    seats = defaultdict(set)
    for batch in batches:
        assert batch.valid.shape[1] == 2  # one lane of each game
        for lane in range(2):
            for seat, game, tick in batch.obs[:-1, lane][batch.valid[:, lane]].tolist():
                seats[lane, game].add(seat)
                assert tick % 2 == seat
    assert {len(each) for each in seats.values()} == {1}, "of one seat of each game"
    assert {seat for each in seats.values() for seat in each} == {0.0, 1.0}, "of either, by turns"


@pytest.mark.long
@pytest.mark.parametrize("pool", [1, 3])
def test_an_opponent_stays_until_its_game_is_over_whoever_leaves_the_pool_meanwhile(pool, monkeypatch):
    played = defaultdict(list)
    answer = GuestInference.answer

    def watched(self, pending):
        rows = self._arena.requests.rows[pending.groups].reshape(-1)
        for lane in (rows >= 0).nonzero()[0].tolist():
            game = int(self._arena.columns["obs"][rows[lane], 1])
            place = self._pool.playing[lane]
            payload = np.zeros(self._pool.places[place].size, np.uint8)
            entry = self._pool.places[place].read_into(payload)
            played[lane, game].append((entry, payload.tobytes()))
        answer(self, pending)

    monkeypatch.setattr(GuestInference, "answer", watched)
    settings = {**ALONE, "env": Long, "opponent_pool": pool, "opponent_interval": 8, "total_steps": 1_200}
    with penstock.PPO(**settings) as trainer:
        trainer.train(quiet=True)
    assert len(played) > 40 and all(len(set(versions)) == 1 for versions in played.values())
    assert len({versions[0] for versions in played.values()}) > 5


def test_a_guest_acts_by_its_own_version_and_remembers_its_game(monkeypatch):
    states, versions = {}, set()
    answer = GuestInference.answer

    def watched(self, pending):
        answer(self, pending)
        columns, rows = self._arena.columns, self._arena.requests.rows[pending.groups].reshape(-1)
        for lane in (rows >= 0).nonzero()[0].tolist():
            block = self._pool.places[self._pool.playing[lane]]
            payload = np.zeros(block.size, np.uint8)
            versions.add(block.read_into(payload))
            model = self._algorithm.build_model()
            place_(model, torch.from_numpy(payload[:-STEPS_NBYTES].copy()))
            obs, first = (torch.from_numpy(columns[name][rows[lane : lane + 1]]) for name in ("obs", "first"))
            choice, states[lane] = model.act(obs, first, states.get(lane, model.initial_state(1)))
            noise = torch.from_numpy(self._arena.requests.noise.reshape(-1, 1)[lane : lane + 1])
            assert choice.sample(noise).item() == columns["action"][rows[lane]]

    monkeypatch.setattr(GuestInference, "answer", torch.no_grad()(watched))
    settings = {**ALONE, "memory": "gru", "memory_size": 6, "learning_rate": 0.1, "num_epochs": 4}
    with penstock.PPO(**settings, entropy_coef=0.0) as trainer:
        trainer.train(quiet=True)
    assert len(states) == 2 and len(versions) > 4


# ---- the pool


@pytest.fixture
def opponents():
    with penstock.PPO(**SERIAL) as trainer:
        yield opponents_of(trainer)


def numbers_in(opponents):
    return [entry.number for entry in opponents.pools[0].entries]


def test_the_oldest_leaves_but_for_the_very_first(opponents):
    found = []
    for steps in range(24, 24 * 6, 24):
        opponents.schedule(steps)
        found.append(numbers_in(opponents))
    assert found == [[0, 1], [0, 1, 2], [0, 2, 3], [0, 3, 4], [0, 4, 5]]
    opponents.schedule(24 * 6 - 1)
    assert numbers_in(opponents) == [0, 4, 5]


def test_nobody_enters_while_the_free_place_is_played(opponents):
    for steps in (24, 48, 72):
        opponents.schedule(steps)
    (versions,) = opponents.pools
    left = next(place for place in range(4) if place not in {entry.place for entry in versions.entries})
    versions.pool.playing[0] = left
    weights = versions.pool.state()["opponents"]["1"]
    opponents.schedule(96)
    assert numbers_in(opponents) == [0, 2, 3] and versions.pool.odds[left] == 0.0
    assert (versions.pool.state()["opponents"]["1"] == weights).all()
    versions.pool.playing[0] = versions.entries[0].place
    opponents.schedule(97)
    assert numbers_in(opponents) == [0, 3, 4]


def test_a_last_game_against_who_has_left_is_not_told_of_who_comes(opponents, monkeypatch):
    (versions,) = opponents.pools
    pool = versions.pool

    def ends_now(place):
        pool.results[0, place] += [0, 0, 1]
        return True

    monkeypatch.setattr(pool, "is_free", ends_now)
    opponents.schedule(24)
    opponents.schedule(25)
    assert numbers_in(opponents) == [0, 1] and not versions.entries[1].results.any()
    assert opponents.status(0)["opponent_games"] == 1


def test_results_are_taken_in_when_steps_were_learned_and_not_by_the_clock(opponents):
    opponents.pools[0].pool.results[0, 0] = [10, 0, 0]
    opponents.schedule(0)
    assert opponents.status(0)["opponent_games"] == 0 and opponents.rating(0) == 0.0
    opponents.schedule(1)
    assert opponents.status(0)["opponent_games"] == 10


def test_results_make_ratings_and_odds(opponents):
    (versions,) = opponents.pools
    versions.config = dataclasses.replace(versions.config, opponent_sampling="hard")
    versions.pool.results[0, 0] = [10, 0, 0]
    opponents.schedule(24)
    first, second = versions.entries
    recent = (1 - 0.99**10) / 0.01
    assert first.recent[0].tolist() == pytest.approx([recent, 0, 0]) and first.results.tolist() == [[10, 0, 0]]
    assert second.rating == opponents.rating(0) == pytest.approx(400 * np.log10(2 * recent + 1))
    won = (recent + 0.5) / (recent + 1)
    assert versions.pool.odds.tolist() == pytest.approx([(1 - won) ** 2, 0.25, 0, 0])
    status = opponents.status(0)
    assert (status["opponents"][0].wins, status["opponents"][0].score) == (10, pytest.approx(won))


# ---- saved, resumed, in processes


def test_a_run_goes_on_with_its_pool_its_ratings_and_its_matrix(tmp_path):
    settings = {**SERIAL, "run_dir": str(tmp_path / "run"), "total_steps": 1_000}
    with penstock.PPO(**settings) as trainer:
        trainer.train(240, quiet=True)
        opponents = opponents_of(trainer)
        (before,) = opponents.pools
        known, weights, status = opponents.to_json(0), before.pool.state()["opponents"], trainer.status
        odds = before.pool.odds.copy()
    checkpoint = load_checkpoint(RunDirectory.open(tmp_path / "run").checkpoints.latest().path)
    assert checkpoint.meta["matches"] == known and checkpoint.state["opponents"].keys() == weights.keys()
    with penstock.PPO.resume(tmp_path / "run") as trainer:
        (after,) = opponents_of(trainer).pools
        again = after.pool.state()["opponents"]
        places = {entry.number: entry.place for entry in after.entries}
        assert [entry.number for entry in after.entries] == [entry.number for entry in before.entries]
        assert all((again[str(number)] == weights[str(number)]).all() for number in places)
        assert (trainer.status.rating, trainer.status.opponents) == (status.rating, status.opponents)
        assert trainer.status.opponent_games == status.opponent_games and sorted(odds) == sorted(after.pool.odds)
        trainer.train(100, quiet=True)
        assert after.entries[-1].number > before.entries[-1].number
        results = sum(entry.results for entry in after.entries if entry.number == 0)
    lines = [json.loads(line) for line in (tmp_path / "run" / "matches.jsonl").read_text().splitlines()]
    against_first = [line for line in lines if line["opponent"] == 0]
    open_row = after.entries[0].lately[0]
    counts = [sum(line[name] for line in against_first) for name in ("wins", "draws", "losses")]
    assert (np.array(counts) + open_row).tolist() == results[0].tolist()
    assert all(line["player"] > line["opponent"] for line in lines) and len({line["player"] for line in lines}) > 5


def test_a_smaller_pool_keeps_the_first_and_the_newest(tmp_path):
    with penstock.PPO(**{**SERIAL, "run_dir": str(tmp_path / "run")}) as trainer:
        trainer.train(quiet=True)
        entries = opponents_of(trainer).pools[0].entries
    with penstock.PPO.resume(tmp_path / "run", opponent_pool=2, total_steps=500) as trainer:
        kept = opponents_of(trainer).pools[0].entries
        assert [entry.number for entry in kept] == [0, entries[-1].number]
        trainer.train(quiet=True)


@pytest.mark.long
def test_in_processes_guests_play_on_when_their_worker_and_who_acts_for_them_were_killed():
    settings = {**SERIAL, "backend": "local", "inference": "central", "num_workers": 2, "total_steps": FOR_EVER}
    with penstock.PPO(**{**settings, "batch_size": 24}) as trainer:
        trainer.train(48, quiet=True)
        roles, games = pids_of(trainer), trainer.status.opponent_games
        assert "policy-1" in roles and trainer.status.opponents
        for role in ("rollout-0", "policy-1"):
            os.kill(roles[role], signal.SIGKILL)

        def have_played_on():
            trainer.train(240, quiet=True)
            return trainer.status.restarts == 2 and trainer.status.opponent_games > games + 10

        wait_until(have_played_on, "both are replaced, and play")
        assert all(one.draws == 0 for one in trainer.status.opponents), "who goes second always wins"


# ---- what is refused


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"env": CountingEnv, "num_agents": None, "batch_size": 8}, "opponents='past': the environment has one agent"),
        ({"team_reward": "sum"}, "nobody to win against: use team_reward='own'"),
        ({"opponent_pool": 0}, "opponent_pool=0 is not legal"),
        ({"opponent_interval": 0}, "opponent_interval=0 is not legal"),
        ({"opponent_share": 0.0}, "opponent_share=0.0 is not legal"),
        ({"opponents": "pst"}, "did you mean 'past'"),
        ({"batch_size": 16}, "collect in segments of 4|less 1 guests in each"),
    ],
)
def test_what_does_not_fit_is_refused(more, message):
    with pytest.raises(ConfigError, match=message):
        penstock.PPO(**{**SERIAL, **more})

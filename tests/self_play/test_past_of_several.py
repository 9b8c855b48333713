"""Several policies, of which one at a time learns from games against past versions of the others."""

import json
import os
import signal
from typing import Any

import numpy as np
import pytest

import penstock
from penstock.config import ConfigError
from penstock.engine.endings import TrainingFailed
from penstock.runs.checkpoint import load_checkpoint
from penstock.runs.run_directory import RunDirectory
from tests.comparing import identical
from tests.engine.inside import arena_of, opponents_of, policies_of
from tests.engine.known import known_to
from tests.engine.processes import FOR_EVER, pids_of, wait_until
from tests.envs.cast import Cast
from tests.envs.counting import CountingLists
from tests.envs.two_sides import Gifts
from tests.self_play.guests import REPLAY, Three, Turns, always

LONG = pytest.mark.long
pytestmark = [pytest.mark.timeout(90), pytest.mark.usefixtures("kept_launcher")]

SERIAL: dict[str, Any] = {
    "env": Turns, "policies": {"red": {"agents": "player_0"}, "blue": {"agents": "player_1"}}, "num_workers": 1,
    "num_envs_per_worker": 4, "segment_length": 4, "batch_size": 4, "hidden_sizes": (8,), "total_steps": 960,
    "seed": 3, "backend": "serial", "eval_interval": 0, "run_dir": None, "opponents": "past", "opponent_pool": 3,
    "opponent_interval": 96, "num_epochs": 1,
}  # fmt: skip
OF_THREE = {"env": Three, "policies": {}, "num_policies": 3, "num_envs_per_worker": 6, "team_reward": "mean"}
RUNS = [
    pytest.param(penstock.PPO, {"memory": "gru", "memory_size": 6, "opponent_sampling": "hard"}, id="ppo", marks=LONG),
    pytest.param(
        penstock.APPO, {"inference": "central", "num_envs_per_worker": 8, "batch_size": 8}, id="appo in two groups"
    ),
    pytest.param(penstock.A3C, OF_THREE, id="a3c of three policies", marks=LONG),
    pytest.param(penstock.DQN, REPLAY, id="dqn"),
]


@pytest.mark.parametrize(("algorithm", "more"), RUNS)
def test_one_seed_gives_one_set_of_weights(algorithm, more):
    found = []
    for _ in range(2):
        with algorithm(**known_to(algorithm, {**SERIAL, **more})) as trainer:
            trainer.train(quiet=True)
            opponents, policies = opponents_of(trainer), trainer.status.policies
            found.append((trainer.get_parameters(), [opponents.to_json(number) for number in range(len(policies))]))
            assert all(policy.opponent_games > 10 for policy in policies)
            assert all(len(policy.opponents) == 3 * (len(policies) - 1) for policy in policies)
    (weights, pools), (again, same) = found
    assert pools == same and all(identical(weights[policy], again[policy]) for policy in weights)


# ---- pairings and learning lanes


@pytest.mark.parametrize(
    ("more", "groups", "lanes"),
    [
        ({}, 1, [3, 3, 1, 1]),
        ({"opponent_share": 1.0}, 2, [2, 2, 2, 2]),
        ({"opponent_share": 0.1}, 1, [3, 3, 1, 1]),
        ({"num_envs_per_worker": 5, "opponent_share": 0.6}, 1, [4, 3, 1, 2]),
        ({"num_groups": 2, "num_envs_per_worker": 8, "opponent_share": 0.1}, 2, [6, 6, 2, 2]),
        ({"num_envs_per_worker": 8}, 2, [6, 6, 2, 2]),
        ({"num_envs_per_worker": 8, "opponent_share": 0.75}, 1, [5, 5, 3, 3]),
        ({"env": Gifts, "policies": {"pair": {"agents": ["b", "c"]}, "one": {"agents": "a"}}}, 1, [6, 3, 2, 1]),
        (OF_THREE, 1, [4, 4, 4, 2, 2, 2]),
        ({**OF_THREE, "opponent_share": 0.67}, 1, [4, 3, 3, 2, 3, 3]),
        ({"policies": {"all": {"agents": "*"}}}, 2, [6, 2]),
    ],
)
def test_each_policy_learns_in_its_share_of_the_games_with_guests_and_in_all_others(more, groups, lanes):
    settings = {**SERIAL, "inference": "central", "team_reward": "own", **more}
    with penstock.APPO(**known_to(penstock.APPO, settings)) as trainer:
        shapes = [arena.shape for arena in arena_of(trainer).policies]
        assert [shape.num_groups for shape in shapes] == [groups] * len(shapes)
        assert [shape.num_lanes for shape in shapes] == lanes
        learned = lanes[: len(lanes) // 2]
        budgets = [policy.untuned.total_steps for policy in policies_of(trainer)]
        assert budgets == [round(960 * each / sum(learned)) for each in learned]


def test_steps_of_guests_are_no_steps_of_the_run():
    with penstock.PPO(**{**SERIAL, "total_steps": 1_200}) as trainer:
        trainer.train(quiet=True)
        status = trainer.status
    assert status.steps == pytest.approx(0.75 * status.env_steps, rel=0.03), "all of two games, and half of two"
    red, blue = status.policies
    assert red.steps == pytest.approx(blue.steps, rel=0.03)
    assert red.episodes == pytest.approx(blue.episodes, rel=0.03)


@LONG
def test_an_opponent_is_a_past_version_of_its_own_policy_and_stays_until_the_game_is_over():
    settings = {"env": Cast, "policies": {"a": {"agents": "a"}, "b": {"agents": "b"}}, "learning_rate": 1e-12}
    more = {"normalize_observations": False, "opponent_interval": 1_000, "total_steps": 10**6}
    Cast.games.clear()
    with penstock.PPO(**{**SERIAL, **settings, **more}) as trainer:
        begin = []
        for version in (1, 2, 3):  # version 0 has the weights of the start, and does this and that
            trainer.set_parameters({"a": always(trainer, "a", version), "b": always(trainer, "b", 4 + version)})
            begin.append(len(Cast.games))
            trainer.train(1_100, quiet=True)
        trainer.train(1_000, quiet=True)
        kept = [[entry.number for entry in versions.entries] for versions in opponents_of(trainer).pools]
    assert kept == [[0, 3, 4], [0, 3, 4]]
    for guest, (number, seat) in enumerate([(3, 1), (2, 2)]):
        actions = [set(game[seat]) for game in Cast.games if game[0] == number]
        assert all(len(each) == 1 or len(each) > 2 for each in actions), "nobody changed within a game"
        constant = {each.pop() for each in actions if len(each) == 1}
        assert constant == {4 * guest + version for version in (1, 2, 3)}, "all its versions, and no other policy's"
    newest = Cast.games[begin[-1] + 12 :]  # games that had begun are over
    for number, a, b in newest:
        assert number == 3 or set(a) == {3}
        assert number == 2 or set(b) == {7}
    assert any(set(b) == {6} for number, _, b in newest if number == 2), "an older one"


# ---- pools and results


@pytest.fixture
def opponents():
    with penstock.PPO(**{**SERIAL, **OF_THREE, "team_reward": "own"}) as trainer:
        yield opponents_of(trainer)


def test_versions_enter_and_leave_each_pool_as_in_self_play():
    with penstock.PPO(**SERIAL) as trainer:
        opponents = opponents_of(trainer)
        trainer.set_parameters({"red": always(trainer, "red", 1)})
        for steps in range(96, 96 * 5, 96):
            opponents.schedule(steps)
        for versions, policy in zip(opponents.pools, policies_of(trainer), strict=True):
            assert [entry.number for entry in versions.entries] == [0, 3, 4]
            newest = versions.pool.state()["opponents"]["4"].numpy()
            assert (newest == policy.weights.payload).all(), "its own weights"
        payloads = [versions.pool.state()["opponents"]["4"].numpy().tobytes() for versions in opponents.pools]
        assert payloads[0] != payloads[1]
        held = {entry.place for entry in opponents.pools[0].entries}
        opponents.pools[0].pool.playing[0] = next(place for place in range(4) if place not in held)
        opponents.schedule(96 * 5)
        kept = [[entry.number for entry in versions.entries] for versions in opponents.pools]
        assert kept == [[0, 3, 4], [0, 4, 5]], "the place that is free is still played in one of them"


def test_results_count_for_who_learned_against_each_version_met(opponents):
    first, second, third = (versions.pool for versions in opponents.pools)
    second.results[0, 0], third.results[0, 0] = [10, 0, 0], [4, 0, 6]  # policy 0 learns in game 0
    first.results[1, 0], third.results[1, 0] = [2, 1, 0], [2, 1, 0]
    opponents.schedule(96)
    ratings = [opponents.rating(policy) for policy in range(3)]
    assert ratings[0] > 0.0 < ratings[1] and ratings[2] == 0.0
    assert [[entry.rating for entry in versions.entries] for versions in opponents.pools] == [[0, r] for r in ratings]
    statuses = [opponents.status(policy) for policy in range(3)]
    assert [status["opponent_games"] for status in statuses] == [10, 3, 0]
    shown = [(one.policy, one.steps, one.wins, one.draws, one.losses) for one in statuses[0]["opponents"]]
    assert shown == [("1", 0, 10, 0, 0), ("1", 96, 0, 0, 0), ("2", 0, 4, 0, 6), ("2", 96, 0, 0, 0)]


def test_the_second_to_move_always_wins_and_is_rated_higher():
    with penstock.PPO(**SERIAL) as trainer:
        trainer.train(quiet=True)
        status = trainer.status
        red, blue = status.policies
    assert red.rating < 0.0 < blue.rating and status.rating is None and status.opponents == ()
    assert not any(one.wins or one.draws for one in red.opponents) and {one.policy for one in red.opponents} == {"blue"}
    assert not any(one.losses or one.draws for one in blue.opponents) and blue.opponent_games > 10


def test_where_nobody_can_win_nothing_is_counted():
    policies = {"pair": {"agents": ["b", "c"]}, "one": {"agents": "a"}}
    with penstock.PPO(**{**SERIAL, "env": Gifts, "policies": policies}) as trainer:
        trainer.train(quiet=True)
        pair, one = trainer.status.policies
    assert (pair.rating, pair.opponent_games, one.rating, one.opponent_games) == (0.0, 0, 0.0, 0)
    assert len(pair.opponents) == len(one.opponents) == 3


# ---- saved, resumed, in processes


def test_a_run_goes_on_with_the_pool_of_each_policy(tmp_path):
    with penstock.PPO(**{**SERIAL, "run_dir": str(tmp_path / "run"), "total_steps": 4_000}) as trainer:
        trainer.train(960, quiet=True)
        before, status = opponents_of(trainer), trainer.status
        weights = [versions.pool.state()["opponents"] for versions in before.pools]
        known = [before.to_json(number) for number in range(2)]
    run = RunDirectory.open(tmp_path / "run")
    for number, name in enumerate(("red", "blue")):
        checkpoint = load_checkpoint(run.of_policy(name).checkpoints.latest().path)
        assert checkpoint.meta["matches"] == known[number]
        assert checkpoint.state["opponents"].keys() == weights[number].keys()
    with penstock.PPO.resume(tmp_path / "run") as trainer:
        after = opponents_of(trainer)
        for number, versions in enumerate(after.pools):
            again = versions.pool.state()["opponents"]
            kept = [str(entry.number) for entry in versions.entries]
            assert all((again[name] == weights[number][name]).all() for name in kept)
        for ago, now in zip(status.policies, trainer.status.policies, strict=True):
            assert (ago.rating, ago.opponents, ago.opponent_games) == (now.rating, now.opponents, now.opponent_games)
        newest = [versions.entries[-1].number for versions in after.pools]
        trainer.train(100, quiet=True)
        assert [versions.entries[-1].number for versions in after.pools] == [number + 1 for number in newest]
    rows = [json.loads(line) for line in (tmp_path / "run" / "matches.jsonl").read_text().splitlines()]
    assert {(row["policy"], row["opponent_policy"]) for row in rows} == {("red", "blue"), ("blue", "red")}
    counts = {row["policy"]: np.zeros(3, np.int64) for row in rows}
    for row in rows:
        counts[row["policy"]] += [row["wins"], row["draws"], row["losses"]]
    assert not counts["red"][:2].any() and not counts["blue"][1:].any() and counts["red"][2] > 10 < counts["blue"][0]
    logged = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()][-1]
    assert logged["policy/red/opponents/mean_score"] < 0.5 < logged["policy/blue/opponents/mean_score"]
    low, high = (logged[f"policy/blue/opponents/rating/{end}"] for end in ("low", "high"))
    assert low < logged["policy/blue/opponents/rating"] < high
    assert logged["policy/blue/opponents/pool"] == 3 and "opponents/rating" not in logged


@LONG
@pytest.mark.parametrize("inference", ["local", "central"])
def test_in_processes_both_learn_and_play_on_when_a_worker_and_who_acts_for_guests_were_killed(inference):
    settings = {**SERIAL, "backend": "local", "num_workers": 2, "total_steps": FOR_EVER, "inference": inference}
    with penstock.PPO(**{**settings, "segment_length": 8, "batch_size": 16}) as trainer:
        trainer.train(300, quiet=True)
        victims = ["rollout-1", *(["policy-3"] if inference == "central" else [])]
        assert set(victims) <= pids_of(trainer).keys()
        games = [policy.opponent_games for policy in trainer.status.policies]
        for victim in victims:
            killed = pids_of(trainer)[victim]
            os.kill(killed, signal.SIGKILL)
            while pids_of(trainer).get(victim, killed) == killed:
                trainer.train(300, quiet=True)

        def both_have_played_on():
            trainer.train(300, quiet=True)
            return all(
                policy.updates > 20 and policy.opponent_games > before + 10
                and len(policy.opponents) == 3 and policy.opponents[-1].steps > 300
                for before, policy in zip(games, trainer.status.policies, strict=True)
            )  # fmt: skip

        wait_until(both_have_played_on, "both have learned, and played against past versions of now")
        status = trainer.status
        assert status.restarts == len(victims)
        red, blue = status.policies
        assert not any(one.wins or one.draws for one in red.opponents), "no game was counted half"
        assert not any(one.losses or one.draws for one in blue.opponents)


# ---- what is refused


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"num_envs_per_worker": 1}, "each of 2 policies needs an environment in which.*=1 is too few: use 2 or"),
        ({"num_envs_per_worker": 2, "num_groups": 2}, "an environment of each of 2 groups in which .* use 4 or more"),
        ({"pbt": "truncation", "pbt_space": {"learning_rate": {"low": 1e-4, "high": 1e-2}}}, "have no guests"),
        ({"env": "CartPole-v1", "policies": {}, "num_policies": 2}, "has one agent"),
    ],
)
def test_what_does_not_fit_is_refused(more, message):
    with pytest.raises(ConfigError, match=message):
        penstock.PPO(**{**SERIAL, **more})


def test_agents_that_go_on_by_themselves_have_no_games_for_versions():
    with (
        penstock.PPO(**{**SERIAL, "env": CountingLists, "policies": {}, "num_policies": 2}) as trainer,
        pytest.raises(TrainingFailed, match="no games that end"),
    ):
        trainer.train(quiet=True)

"""Evaluations of several policies: each against the others and against fixed opponents, and their reports."""

import json
from typing import Any

import numpy as np
import pytest
import torch

import penstock
from bench.environments.tic_tac_toe import TicTacToe
from penstock.cli import main
from penstock.config import ConfigError
from penstock.envs.factories import OUTSIDE
from penstock.envs.failures import UnsupportedSpaceError
from penstock.play.teams import TeamPlayer
from penstock.runs.panels import plain_line
from penstock.search.objective import read_evaluations
from tests.engine.inside import policies_of, policy_of
from tests.envs.counting import CountingLists
from tests.envs.playing import AtOnce, Part
from tests.envs.two_sides import Gifts

pytestmark = [pytest.mark.timeout(90), pytest.mark.usefixtures("kept_launcher")]


class EndsEarly(AtOnce):
    """The first agent is out after a step, and has got less than the second, which goes on for five."""

    def __init__(self) -> None:
        super().__init__([Part(0, 1, "terminated"), Part(0, 5, "terminated")])


def two(observation: Any) -> int:
    return 2


SERIAL: dict[str, Any] = {
    "num_workers": 1, "num_envs_per_worker": 2, "segment_length": 8, "seed": 3, "batch_size": 16, "hidden_sizes": (8,),
    "total_steps": 256, "backend": "serial", "eval_episodes": 6, "run_dir": None, "eval_interval": 0,
}  # fmt: skip
MARKS = {**SERIAL, "env": TicTacToe, "policies": {"red": {"agents": "crosses"}, "blue": {"agents": "noughts"}}}
SIDES = {**SERIAL, "env": Gifts, "policies": {"one": {"agents": "a"}, "pair": {"agents": ["b", "c"]}}}


def always(model, action):
    """The same network, which takes this action wherever it is."""
    with torch.no_grad():
        model.policy_head.weight.zero_()
        model.policy_head.bias.zero_()[action] = 100.0
    return model


def test_what_one_policy_wins_in_their_games_the_other_loses():
    with penstock.PPO(**MARKS) as trainer:
        found = trainer.evaluate(6, deterministic=False)
    (red,), (blue,) = found["red"].matches, found["blue"].matches
    assert [(match.opponent, match.seat) for match in (red, blue)] == [("others", "crosses"), ("others", "noughts")]
    assert red.outcomes == tuple(-result for result in blue.outcomes) == tuple(np.sign(red.returns))
    assert len(red.outcomes) == 6 and red.wins == blue.losses > 0
    assert found["red"].returns == red.returns and found["red"].mean_return == -found["blue"].mean_return


def test_with_shuffled_seats_wins_are_those_of_the_policy_in_the_seat(tmp_path, capsys):
    run = str(tmp_path / "run")
    with penstock.PPO(**{**MARKS, "run_dir": run}, seats="shuffled") as trainer:
        found = trainer.evaluate(20, deterministic=False)
        trainer.train(quiet=True)
    assert main(["eval", run, "--episodes", "4"]) == 0
    assert "red: against others as crosses, noughts: " in capsys.readouterr().out
    (red,), (blue,) = found["red"].matches, found["blue"].matches
    assert red.seat == blue.seat == "crosses, noughts"
    assert red.outcomes == tuple(-result for result in blue.outcomes) == tuple(np.sign(red.returns))
    assert red.wins and red.losses


def test_each_policy_plays_its_own_agents_and_a_fixed_opponent_all_others():
    with penstock.PPO(**SIDES, eval_against=(two, "others", "random")) as trainer:
        for policy in policies_of(trainer):
            always(policy.model, 1)
            policy.weights.publish(1, 0)
        found = trainer.evaluate(6)
    against_two, among_themselves, against_random = found["one"].matches
    assert [match.opponent for match in found["one"].matches] == ["two", "others", "random"]
    assert (against_two.seat, against_two.returns) == ("a", (12.0,) * 6), "b and c each do 2, three times"
    assert among_themselves.returns == (6.0,) * 6 and len(set(against_random.returns)) > 1
    against_two, among_themselves, _ = found["pair"].matches
    assert (against_two.seat, against_two.returns) == ("b, c", (6.0,) * 12), "of each of its agents in each game"
    assert among_themselves.returns == (3.0,) * 12
    assert found["pair"].returns == against_two.returns, "the first opponent is what counts"
    assert all(match.outcomes == () and match.unfinished == 0 for one in found.values() for match in one.matches), (
        "sides of different kinds cannot be compared"
    )


def test_best_plays_every_other_policy_by_that_policys_own_best_weights():
    with penstock.PPO(**SIDES) as trainer:
        models = [always(policy.algorithm.build_model(), 0) for policy in policies_of(trainer)]
        best = [lambda: always(policy_of(trainer).algorithm.build_model(), 2), lambda: None]
        seating = {"first_lane": 0, "worker_index": OUTSIDE, "games": range(2), "deterministic": True, "seed": 1}
        player = TeamPlayer(models, trainer._env, ("others", "best"), best=best, **seating)
        assert [len(one.matches) for one in player.play(2)] == [1, 1], "there is no best of all policies yet"
        best[1] = lambda: always(policy_of(trainer, 1).algorithm.build_model(), 1)
        one, pair = player.play(2)
    assert one.matches[1].returns == (6.0, 6.0), "b and c each do 1, three times"
    assert pair.matches[1].returns == (6.0,) * 4, "a does 2, three times"
    assert one.mean_return == pair.mean_return == 0.0


def test_a_run_tells_of_every_pairing(tmp_path, capsys):
    run = tmp_path / "run"
    (tmp_path / "players.py").write_text(SOURCE)
    against = ("random", "best", "others", f"{tmp_path}/players.py:First")
    with penstock.PPO(**{**MARKS, "run_dir": str(run), "eval_interval": 60, "eval_against": against}) as trainer:
        result = trainer.train(quiet=True)
        status = trainer.status
    names = ["random", "best", "others", "First"]
    for policy in status.policies:
        assert [match.opponent for match in policy.eval_matches] == names
        assert all(match.games == 6 for match in policy.eval_matches)
        assert policy.eval_return == policy.eval_matches[0].mean_return
    assert len(status.eval_matches) == 8
    won = [policy.eval_matches[2].wins / 6 for policy in status.policies]
    assert f"wins against others red {won[0]:.0%}, blue {won[1]:.0%}" in plain_line(status)
    lines = [json.loads(line) for line in (run / "evaluations.jsonl").read_text().splitlines()]
    last = [line for line in lines if line["steps"] == lines[-1]["steps"]]
    told = {(line["policy"], line["opponent"], line["seat"]) for line in last}
    seats = (("red", "crosses"), ("blue", "noughts"))
    assert told == {(policy, name, seat) for policy, seat in seats for name in names}
    of_random = [line["return"] for line in last if line["opponent"] == "random"]
    assert read_evaluations(run)[-1].mean_return == pytest.approx(np.mean(of_random)) == result.eval_return
    logged = {}
    for line in (run / "metrics.jsonl").read_text().splitlines():
        logged |= json.loads(line)
    for policy in ("red", "blue"):
        for name in names:
            shares = [logged[f"policy/{policy}/against/{name}/{outcome}"] for outcome in ("wins", "draws", "losses")]
            assert sum(shares) == pytest.approx(1.0) and f"policy/{policy}/against/{name}/mean_return" in logged
    assert main(["eval", str(run), "--episodes", "4", "--checkpoint", "latest"]) == 0
    shown = capsys.readouterr().out
    assert "red: against others as crosses: " in shown and "blue: against First as noughts: " in shown


SOURCE = """
class First:
    def __call__(self, observation):
        return int(observation["action_mask"].nonzero()[0][0])
"""


def test_returns_are_shown_in_games_without_winners(tmp_path, capsys):
    run = tmp_path / "run"
    with penstock.PPO(**{**SIDES, "run_dir": str(run), "eval_interval": 100, "eval_against": ("random",)}) as trainer:
        trainer.train(quiet=True)
        assert "return against random one " in plain_line(trainer.status)
    assert '"policy/pair/against/random/mean_return"' in (run / "metrics.jsonl").read_text()
    assert "/wins" not in (run / "metrics.jsonl").read_text()
    assert main(["eval", str(run), "--episodes", "4"]) == 0
    shown = capsys.readouterr().out
    assert "pair: against random as b, c: mean return " in shown and "won" not in shown


@pytest.mark.parametrize(
    "settings",
    [{"num_agents": 2}, {"policies": {"out": {"agents": "player_0"}, "stays": {"agents": "player_1"}}}],
    ids=["one policy", "several"],
)
def test_a_game_is_lost_by_who_is_out_before_it_is_over(settings):
    with penstock.PPO(**{**SERIAL, **settings, "env": EndsEarly, "eval_against": (lambda shown: 0,)}) as trainer:
        found = trainer.evaluate(6)
    matches = found.matches if "num_agents" in settings else [one.matches[0] for one in found.values()]
    assert [(match.losses, match.wins, match.unfinished) for match in matches] == [(6, 0, 0), (0, 6, 0)]
    assert [len(match.returns) for match in matches] == [6, 6]


def test_agents_that_go_on_by_themselves_have_no_games_to_win():
    settings = {**SERIAL, "env": CountingLists, "num_policies": 2}
    with penstock.PPO(**settings) as trainer:
        first, second = trainer.evaluate(2).values()
        assert (first.episodes, second.episodes, first.matches[0].outcomes) == (2, 2, ())
    with (
        pytest.raises(UnsupportedSpaceError, match="no games that end"),
        penstock.PPO(**settings, eval_against=("random",)) as trainer,
    ):
        trainer.evaluate(2)


def test_others_need_other_policies():
    with pytest.raises(ConfigError, match="'others' are the other policies of the run, and it has only one"):
        penstock.PPO(**{**SERIAL, "env": TicTacToe, "eval_against": ("others",)})

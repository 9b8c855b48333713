"""Evaluations against fixed opponents: equally many games from every seat, and their reports."""

import json
from functools import partial
from typing import Any, ClassVar

import numpy as np
import pytest

import penstock
from bench.environments.connect_four import ConnectFour, after, legal, seen, shown
from bench.environments.tic_tac_toe import TicTacToe
from penstock.cli import main
from penstock.config import ConfigError
from penstock.envs.factories import OUTSIDE
from penstock.envs.making import make_group
from penstock.envs.spec import EnvSpec
from penstock.play.evaluation import Match, evaluation_of
from penstock.search.objective import read_evaluations
from penstock.self_play.fixed_opponents import OwnOpponent, RandomOpponent
from penstock.self_play.games import GuestGames
from penstock.self_play.matches import MatchPlayer, OneSeat
from tests.engine.inside import policy_of
from tests.envs.counting import CountingEnv
from tests.envs.playing import InTurn

pytestmark = [pytest.mark.timeout(90), pytest.mark.usefixtures("kept_launcher")]


def lowest(observation: dict[str, np.ndarray]) -> int:
    """Marks the first free cell."""
    return int(observation["action_mask"].nonzero()[0][0])


class Noting:
    """Plays as `lowest`, and records its calls; all objects are listed."""

    made: ClassVar[list[Any]] = []

    def __init__(self, seed: int) -> None:
        self.seed, self.games = seed, []
        self.made.append(self)

    def reset(self) -> None:
        self.games.append([])

    def __call__(self, observation: dict[str, np.ndarray]) -> int:
        self.games[-1].append(observation["board"].sum())
        return lowest(observation)


class Turns(InTurn):
    """Two agents that move in turn; with any actions the second one always gets more."""

    def __init__(self) -> None:
        super().__init__(2, 5, ("terminated", "truncated"))


SERIAL: dict[str, Any] = {
    "env": TicTacToe, "num_workers": 1, "num_envs_per_worker": 2, "num_agents": 2, "segment_length": 8, "seed": 3,
    "batch_size": 32, "hidden_sizes": (8,), "total_steps": 128, "backend": "serial", "eval_episodes": 6,
    "run_dir": None, "eval_interval": 0, "eval_against": ("random", "best", lowest),
}  # fmt: skip


def guests_of(env, num_games, seat=0):
    seating = OneSeat(num_games)
    seating.seat, seating.outcomes = seat, [[] for _ in range(num_games)]
    games = partial(GuestGames, guests={0: [True] * num_games}, seating=seating)
    group = make_group(EnvSpec.resolve(env), num_games, worker_index=OUTSIDE, games=games)
    assert isinstance(group, GuestGames)
    return group


def test_every_opponent_is_played_from_every_seat_as_often():
    with penstock.PPO(**SERIAL) as trainer:
        evaluation = trainer.evaluate(6)
        played = [(match.opponent, match.seat, len(match.outcomes)) for match in evaluation.matches]
        assert played == [(name, seat, 6) for name in ("random", "lowest") for seat in ("crosses", "noughts")]
        first = [value for match in evaluation.matches[:2] for value in match.returns]
        assert evaluation.returns == tuple(first) and evaluation.episodes == 12
        for match in evaluation.matches:
            assert match.outcomes == tuple(np.sign(match.returns)), "of this game the returns are the outcomes"
            assert (match.wins, match.draws, match.losses) == tuple(np.equal(match.outcomes, [[1], [0], [-1]]).sum(1))


def test_a_run_says_how_its_evaluations_ended_and_plays_its_best_before(tmp_path, capsys):
    run = tmp_path / "run"
    (tmp_path / "players.py").write_text(SOURCE)
    settings = {**SERIAL, "run_dir": str(run), "eval_interval": 60, "target_return": 5.0}
    with penstock.PPO(**{**settings, "eval_against": ("random", "best", f"{tmp_path}/players.py:First")}) as trainer:
        result = trainer.train(quiet=True)
        status = trainer.status
        assert not result.reached_target and status.eval_return == pytest.approx(
            np.mean([match.mean_return for match in status.eval_matches if match.opponent == "random"])
        )
        assert [match.opponent for match in status.eval_matches] == ["random"] * 2 + ["best"] * 2 + ["First"] * 2
        assert all(match.wins + match.draws + match.losses == 6 for match in status.eval_matches)
        assert [match.opponent for match in trainer.evaluate().matches][2] == "best"
    lines = [json.loads(line) for line in (run / "evaluations.jsonl").read_text().splitlines()]
    at_first = [line["opponent"] for line in lines if line["steps"] == lines[0]["steps"]]
    assert set(at_first) == {"random", "First"} and "best" in {line["opponent"] for line in lines}
    last = [line for line in lines if line["steps"] == lines[-1]["steps"]]
    of_random = [line["return"] for line in last if line["opponent"] == "random"]
    assert read_evaluations(run)[-1].mean_return == pytest.approx(np.mean(of_random)) == result.eval_return
    logged = {}
    for line in (run / "metrics.jsonl").read_text().splitlines():
        logged |= json.loads(line)
    shares = [logged[f"against/First/{outcome}"] for outcome in ("wins", "draws", "losses")]
    assert sum(shares) == pytest.approx(1.0) and "against/best/mean_return" in logged
    assert main(["eval", str(run), "--episodes", "4", "--checkpoint", "latest"]) == 0
    assert "against First as noughts: " in capsys.readouterr().out


SOURCE = """
class First:
    def __call__(self, observation):
        return int(observation["action_mask"].nonzero()[0][0])
"""


def test_an_object_of_a_class_plays_a_seat_of_a_game_and_hears_when_it_begins():
    Noting.made.clear()
    group = guests_of(TicTacToe, 3)
    learner, guests = group.teams
    opponent = OwnOpponent(guests, Noting, 7)
    group.reset()
    mine = RandomOpponent(learner, 1)
    for _ in range(60):
        group.step([mine.act(), opponent.act()])
    assert [player.seed for player in Noting.made] == [7, 8, 9]
    for player in Noting.made:
        assert len(player.games) > 3 and all(game[0] == 1.0 for game in player.games), "it begins with one mark there"
        assert all(game == sorted(game) for game in player.games)


@pytest.mark.parametrize("action", [9, -1, 0.5, None, "0", [0]])
def test_an_action_that_the_game_does_not_have_is_refused(action):
    group = guests_of(TicTacToe, 1, seat=1)
    group.reset()
    _, guests = group.teams
    with pytest.raises(ValueError, match=r"the opponent fixed of eval_against returned .*; legal: one of 9 values"):

        def fixed(observation):
            return action

        OwnOpponent(guests, fixed, 7).act()


def test_random_is_uniform_over_what_is_legal():
    group = guests_of(ConnectFour, 1, seat=1)
    group.reset()
    _, guests = group.teams
    opponent = RandomOpponent(guests, 1)
    board = (0, 0)
    for column in (0, 0, 0, 0, 0, 0, 3):
        board = after(board, column)
    guests.shown[0] = shown(board)
    counts = np.bincount([int(opponent.act()[0]) for _ in range(6_000)], minlength=7)
    assert counts[0] == 0 and legal(board) == [1, 2, 3, 4, 5, 6]
    assert (abs(counts[1:] - 1_000) < 5 * np.sqrt(1_000 * 5 / 6)).all()


def test_the_observation_of_connect_four_shows_the_whole_board():
    board, chance = (0, 0), np.random.default_rng(1)
    while moves := legal(board):
        assert seen(shown(board)) == board
        board = after(board, int(chance.choice(moves)))


def test_a_seat_is_whose_name_it_has():
    with penstock.PPO(**{**SERIAL, "env": Turns, "eval_against": ("random",)}) as trainer:
        first, second = trainer.evaluate(6).matches
    assert (first.seat, first.outcomes) == ("player_0", (-1,) * 6)
    assert (second.seat, second.outcomes) == ("player_1", (1,) * 6)
    assert (set(first.returns), set(second.returns)) == ({15.0}, {150.0})


def test_games_that_are_given_up_are_nobodys():
    with penstock.PPO(**{**SERIAL, "env": Turns, "eval_against": ("random",), "eval_max_steps": 1}) as trainer:
        first, second = trainer.evaluate(6).matches
    assert (first.outcomes, first.unfinished, second.outcomes, second.unfinished) == ((), 6, (), 6)


class StallsAtFirst(Turns):
    """In half of the environments the first game is longer than what is given up, and the other agent wins it."""

    def reset(self, seed=None, options=None):
        if seed is not None:
            self.is_slow = bool(seed % 2)
        super().reset(seed, options)
        self.stalls = self.is_slow and self.game == 0
        self.moves = 22 if self.stalls else 5 if self.is_slow else 18

    def last(self):
        shown, reward, *ended = super().last()
        return shown, -reward if self.stalls else reward, *ended


def test_games_that_were_given_up_and_end_while_others_play_are_still_nobodys():
    with penstock.PPO(**{**SERIAL, "env": StallsAtFirst, "eval_against": ("random",), "eval_max_steps": 10}) as trainer:
        first, second = trainer.evaluate(50).matches
    assert 0 < first.unfinished < 25 and second.unfinished == 0, "25 games of two each; no first one is left"
    assert (first.requested, first.outcomes, second.outcomes) == (50, (-1,) * 50, (1,) * 50)


def test_without_time_for_a_single_step_there_is_still_an_answer():
    seating = {"first_lane": 0, "worker_index": OUTSIDE}
    with penstock.PPO(**{**SERIAL, "env": Turns}) as trainer:
        model, env = policy_of(trainer).model, trainer._env
        player = MatchPlayer(model, env, ("random",), games=range(2), deterministic=True, seed=1, **seating)
        (evaluation,) = player.play(2, deadline=0.0)
    assert evaluation.unfinished == evaluation.episodes == 2 and np.isfinite(evaluation.mean_return)


def test_what_was_given_up_comes_last_of_an_evaluation():
    matches = [
        Match("a", "x", (1.0, 2.0, 9.0), (3, 3, 9), (1, 0), unfinished=1),
        Match("a", "y", (4.0, 8.0), (3, 9), (-1,), unfinished=1),
        Match("b", "x", (7.0,), (1,), (1,)),
    ]
    evaluation = evaluation_of(matches)
    assert evaluation.returns == (1.0, 2.0, 4.0, 9.0, 8.0) and evaluation.lengths == (3, 3, 3, 9, 9)
    assert evaluation.unfinished == 2 and evaluation.matches == tuple(matches)


@pytest.mark.parametrize(
    ("opponents", "message"),
    [
        (("best", "random"), "begins with 'best', which changes during a run"),
        (("rndom",), "eval_against=.* is not legal"),
        (("nowhere.py:Minimax",), "eval_against='nowhere.py:Minimax': there is no file"),
        (("tests.envs.playing:Minimax",), "tests.envs.playing has no 'Minimax'"),
        (("tests.envs.playing:KINDS",), "is a tuple: name a class or a function"),
        (("random", "a.py:Min", "b.py:Min"), "eval_against has 'Min' twice"),
    ],
)
def test_opponents_that_cannot_be_played_are_refused(opponents, message):
    with pytest.raises(ConfigError, match=message):
        penstock.PPO(**{**SERIAL, "eval_against": opponents})


def test_opponents_need_agents():
    with pytest.raises(ConfigError, match=r"eval_against=.*: the environment has one agent"):
        penstock.PPO(**{**SERIAL, "env": CountingEnv, "num_agents": None, "batch_size": 16})

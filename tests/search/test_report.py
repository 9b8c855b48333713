"""The report of a search."""

import shlex

import pytest
from rich.console import Console

from penstock.algorithms import load_algorithm
from penstock.flags import parse_config
from penstock.search.directory import SearchDirectory

pytest.importorskip("optuna")

from penstock.search.report import best_of, command_of, summary_of, table_of, to_json
from penstock.search.study import Tried

FACTS = {
    "algorithm": "appo", "flags": ["--env", "CartPole-v1", "--seed", "4"], "workers": 2, "seeds": 2,
    "config": {"seed": 4}, "space": {},
}  # fmt: skip
NAMES = ["learning_rate", "hidden_sizes"]


def tried(number: int, score: float | None, state: str = "done", **more) -> Tried:
    settings = {"learning_rate": 0.00123456789 / (number + 1), "hidden_sizes": (64, 8)}
    scores = [] if score is None else [score - 1, score + 1]
    return Tried(number, state, settings, score, scores, **more)


TRIALS = [
    tried(0, 100.0, is_as_given=True), tried(1, None, "pruned", spent=0.3), tried(2, 300.0),
    tried(3, None, "failed", error="the pole broke"), tried(4, 200.0), tried(5, None, "under way"),
]  # fmt: skip


@pytest.fixture
def directory(tmp_path):
    return SearchDirectory(tmp_path / "my search", FACTS)


def drawn(trials, seeds: int = 2) -> list[str]:
    console = Console(width=120)
    with console.capture() as capture:
        console.print(table_of(trials, NAMES, seeds))
    return [line.strip() for line in capture.get().splitlines() if line.strip()]


def test_the_best_come_first_with_their_settings_and_the_spread_of_their_seeds():
    head, _, *rows = drawn(TRIALS)
    assert head.split("  ")[0] == "trial" and "over seeds" in head
    assert [row.split()[0] for row in rows] == ["2", "4", "0"]
    assert rows[0].split() == ["2", "300.0", "299.0", "to", "301.0", "0.0004115", "(64,", "8)"]
    assert rows[2].endswith("the settings as given")


def test_of_one_seed_there_is_no_spread():
    assert "over seeds" not in drawn(TRIALS, seeds=1)[0]


def test_ten_are_shown_and_the_settings_as_given_wherever_they_are():
    many = [tried(number, float(number), is_as_given=number == 3) for number in range(15)]
    rows = drawn(many)[2:]
    assert [row.split()[0] for row in rows] == ["14", "13", "12", "11", "10", "9", "8", "7", "6", "5", "3"]


def test_it_says_how_trials_ended_which_is_best_and_how_to_train_with_it(directory):
    lines = summary_of(directory, TRIALS).splitlines()
    assert lines[0] == "6 trials: 3 done, 1 pruned, 1 failed, 1 under way"
    assert lines[1] == "failed: trial 3: the pole broke"
    assert lines[2] == "best: trial 2, score 300.0; the settings as given: 100.0"
    assert "confirm it with seeds other than 4 to 5" in lines[3]
    assert lines[-2] == f"penstock eval '{directory.path}/trial-2-seed-4'"
    assert lines[-1] == command_of(directory, TRIALS[2])


def test_the_command_trains_with_exactly_the_settings_of_the_trial(directory):
    program, verb, name, *flags = shlex.split(command_of(directory, TRIALS[4]))
    assert (program, verb, name) == ("penstock", "train", "appo")
    config = parse_config(load_algorithm(name).Config, flags, prog="penstock train")
    assert (config.learning_rate, config.hidden_sizes) == (0.00123456789 / 5, (64, 8))
    assert (config.env, config.seed, config.num_workers) == ("CartPole-v1", 4, 2)


def test_where_no_trial_is_done_there_is_no_best(directory):
    assert summary_of(directory, [TRIALS[3]]).splitlines() == ["1 trial: 1 failed", "failed: trial 3: the pole broke"]
    assert to_json(directory, [TRIALS[3]])["best"] is None
    assert summary_of(directory, []) == "no trial has begun"


def test_all_is_there_as_json(directory):
    told_ = to_json(directory, TRIALS)
    assert (told_["algorithm"], told_["best"], told_["command"]) == ("appo", 2, command_of(directory, TRIALS[2]))
    assert told_["trials"][3]["error"] == "the pole broke" and told_["trials"][1]["spent"] == 0.3
    assert told_["trials"][2]["runs"] == [f"{directory.path}/trial-2-seed-{seed}" for seed in (4, 5)]


def test_best_is_by_score_and_only_of_what_is_done():
    assert [trial.number for trial in best_of(TRIALS)] == [2, 4, 0]

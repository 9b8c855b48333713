"""The next trials, their processes and results; a journal outlives the process that wrote it."""

import os
import warnings
from pathlib import Path

import pytest

from penstock.config import ConfigError
from tests.search.searches import search_in

pytest.importorskip("optuna")

MIXED = {
    "learning_rate": {"low": 1e-5, "high": 1e-2, "log": True},
    "num_epochs": {"low": 2, "high": 6, "step": 2},
    "gae_lambda": {"low": 0.8, "high": 1.0, "step": 0.1},
    "hidden_sizes": {"values": [[64, 64], [256]]},
    "normalize_observations": {"values": [True, False]},
}


def test_what_is_proposed_is_within_the_space_and_of_the_settings_types(tmp_path):
    search = search_in(tmp_path / "s", tables=MIXED)
    for _ in range(12):
        trial, hold = search.study.ask(12)
        hold.release()
        assert all(dimension.holds(trial.settings[dimension.name]) for dimension in search.space.dimensions)
        trial.seed_done(trial.settings["learning_rate"])
        trial.complete()
    tried = search.study.tried
    assert {trial.settings["num_epochs"] for trial in tried} <= {2, 4, 6}
    assert {trial.settings["hidden_sizes"] for trial in tried} == {(64, 64), (256,)}
    assert {trial.settings["normalize_observations"] for trial in tried} == {True, False}
    assert [trial.score for trial in tried] == [trial.settings["learning_rate"] for trial in tried]


def test_the_first_trial_has_the_settings_as_given_if_the_space_holds_them(tmp_path):
    inside = search_in(tmp_path / "inside", tables={"hidden_sizes": {"values": [[8], [64, 64]]}})
    trial, _ = inside.study.ask(9)
    assert trial.settings == {"hidden_sizes": (64, 64)} and inside.study.tried[0].is_as_given
    outside = search_in(tmp_path / "outside", tables={"hidden_sizes": {"values": [[8], [9]]}})
    outside.study.ask(9)
    assert not outside.study.tried[0].is_as_given


def test_what_is_proposed_depends_on_the_trials_so_far_and_not_on_interruptions(tmp_path):
    proposed = {}
    for name, is_opened_anew in (("whole", False), ("broken", True)):
        search = search_in(tmp_path / name)
        for _ in range(12):  # the first ten are random
            trial, hold = search.study.ask(12)
            hold.release()
            trial.seed_done(-((trial.settings["learning_rate"] - 0.3) ** 2))
            trial.complete()
            search = search_in(tmp_path / name) if is_opened_anew else search
        proposed[name] = [trial.settings for trial in search.study.tried]
    assert proposed["whole"] == proposed["broken"]
    assert len({settings["learning_rate"] for settings in proposed["whole"]}) == 12


def test_searches_that_share_a_directory_try_no_trial_twice_and_no_more_than_wanted(tmp_path):
    one, other = search_in(tmp_path / "s"), search_in(tmp_path / "s")
    asked = [one.study.ask(3), other.study.ask(3), one.study.ask(3)]
    assert [trial.number for trial, _ in asked] == [0, 1, 2]
    assert one.study.ask(3) is None and other.study.ask(3) is None
    assert [trial.state for trial in other.study.tried] == ["under way"] * 3


def test_a_trial_that_nobody_has_any_more_is_taken_up_with_what_is_known_of_it(tmp_path):
    one = search_in(tmp_path / "s", seeds=3)
    trial, hold = one.study.ask(1)
    trial.seed_done(7.0)
    assert not trial.report(20, 7.0)
    other = search_in(tmp_path / "s", seeds=3)
    assert other.study.ask(1) is None
    hold.release()
    again, _ = other.study.ask(1)
    assert (again.number, again.settings, again.scores) == (trial.number, trial.settings, [7.0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # Optuna has one for a second result
        assert not again.report(20, 9.0)
    assert other.study.frozen(0).intermediate_values == {20: 7.0}
    assert other.study.tried[0].spent == pytest.approx(1 / 3)


def test_a_trial_whose_settings_were_not_all_written_gets_the_rest(tmp_path, monkeypatch):
    search = search_in(tmp_path / "s", tables=MIXED)

    def killed(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as context:
        context.setattr("optuna.Trial.suggest_int", killed)
        with pytest.raises(KeyboardInterrupt):
            search.study.ask(1)
    assert search.study.tried[0].settings.keys() == {"learning_rate"}
    for descriptor in os.listdir("/proc/self/fd"):  # a process that is killed has nothing open any more
        if is_of(descriptor, tmp_path / "s" / "locks"):
            os.close(int(descriptor))
    trial, _ = search.study.ask(1)
    assert trial.number == 0 and trial.settings.keys() == MIXED.keys()


def is_of(descriptor: str, folder: Path) -> bool:
    try:
        return Path(os.readlink(f"/proc/self/fd/{descriptor}")).parent == folder
    except OSError:
        return False


def test_a_trial_is_given_up_below_the_median_of_what_others_showed_at_the_same_moment(tmp_path):
    search = search_in(tmp_path / "s")
    for value in (5.0, 4.0, 3.0, 2.0, 1.0):
        trial, hold = search.study.ask(9)
        hold.release()
        assert not any(trial.report(rung, value) for rung in (4, 5, 6)), "the first five are not given up"
        trial.seed_done(value)
        trial.complete()
    bad, _ = search.study.ask(9)
    assert not bad.report(4, 2.9), "nobody is given up so early"
    assert bad.report(6, 2.9), "below 3, the median"
    good, _ = search.study.ask(9)
    assert not good.report(6, 3.1)
    bad.prune()
    tried = search.study.tried[bad.number]
    assert (tried.state, tried.score, tried.spent) == ("pruned", None, 0.3)


def test_without_pruning_no_trial_is_given_up(tmp_path):
    search = search_in(tmp_path / "s", is_pruned=False)
    for value in (5.0, 5.0, 5.0, 5.0, 5.0, 0.0):
        trial, hold = search.study.ask(9)
        hold.release()
        assert not trial.report(10, value)
        trial.seed_done(value)
        trial.complete()


def test_a_journal_whose_last_line_is_half_written_is_opened(tmp_path):
    search = search_in(tmp_path / "s")
    trial, hold = search.study.ask(9)
    hold.release()
    trial.seed_done(1.0)
    trial.complete()
    with open(search.directory.journal, "ab") as journal:
        journal.write(b'{"op_code":4,"wor')
    again = search_in(tmp_path / "s")
    assert [trial.score for trial in again.study.tried] == [1.0]
    again.study.ask(9)
    assert len(search_in(tmp_path / "s").study.tried) == 2


@pytest.mark.parametrize("line", [b"{half", b"[]", b"{}", b""])
def test_a_journal_with_a_damaged_line_is_refused_and_stays(tmp_path, line):
    search = search_in(tmp_path / "s")
    journal = search.directory.journal
    first, rest = journal.read_bytes().split(b"\n", maxsplit=1)
    journal.write_bytes(before := b"\n".join([first, line, rest]))
    with pytest.raises(ConfigError, match=r"journal.log is damaged in line 2: restore it, or begin another search"):
        search_in(tmp_path / "s")
    assert journal.read_bytes() == before

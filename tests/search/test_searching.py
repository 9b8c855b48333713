"""Trials by turns: what they are worth, when they end, and what is left of them; trainings take milliseconds here."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.bench import BenchError
from penstock.runs.jobs import split_cores
from penstock.search.job import Job
from tests.engine.processes import PATIENCE, Watched, started, wait_until
from tests.kept_files import contents, make_damaged, make_newer, make_unreadable, with_notes
from tests.places import ROOT
from tests.search.searches import search_in

pytestmark = pytest.mark.usefixtures("fake_trainings")

LATE = (70 + 80 + 90 + 100) / 4
"""What `fake_training` adds to an evaluation, in the last third."""


def begun(run: Path) -> list[str]:
    """How the trainings of a run began: "train at 0", "resume at 500 --max-seconds 3"."""
    return [line.partition(" on ")[0].strip() for line in (run / "begun.txt").read_text().splitlines()]


def pids_in(path: Path) -> list[int]:
    return [int(pid) for file in path.glob("*/begun.txt") for pid in re.findall(r" by (\d+)", file.read_text())]


def test_trials_are_trained_until_there_are_enough_and_their_scores_are_known(tmp_path):
    search = search_in(tmp_path / "s")
    search.searching(3).run()
    tried = search.study.tried
    assert [trial.state for trial in tried] == ["done"] * 3
    assert [trial.score for trial in tried] == pytest.approx(
        [100 * trial.settings["learning_rate"] + LATE for trial in tried]
    )
    assert [begun(search.directory.run(number, 0)) for number in range(3)] == [["train at 0"]] * 3
    assert len([line for line in search.lines if "done, score" in line]) == 3


def test_the_same_again_trains_only_what_is_missing(tmp_path):
    search_in(tmp_path / "s").searching(2).run()
    again = search_in(tmp_path / "s")
    again.searching(2).run()
    assert again.lines == [] and len(again.study.tried) == 2
    again.searching(3).run()
    assert len(again.study.tried) == 3
    assert begun(again.directory.run(0, 0)) == ["train at 0"]


def test_seeds_are_trained_one_after_the_other_and_averaged(tmp_path):
    search = search_in(tmp_path / "s", seeds=3, seed=4)
    search.searching(1).run()
    (trial,) = search.study.tried
    base = 100 * trial.settings["learning_rate"] + LATE
    assert trial.scores == pytest.approx([base + 4, base + 5, base + 6])
    assert trial.score == pytest.approx(base + 5)
    assert all(search.directory.run(0, seed).is_dir() for seed in (4, 5, 6))


def test_the_mean_so_far_is_reported_at_every_rung(tmp_path):
    search = search_in(tmp_path / "s", seeds=2)
    search.searching(1).run()
    reported = search.study.frozen(0).intermediate_values
    base = 100 * search.study.tried[0].settings["learning_rate"]
    # The first evaluation at rung 9 (45 %) or behind it is of step 500: more than 2/3 of it are 400 and 500.
    assert reported[9] == reported[10] == pytest.approx(base + (40 + 50) / 2)
    assert reported[20] == pytest.approx(base + LATE), "the score of the first seed"
    assert reported[29] == pytest.approx((base + LATE + base + 1 + 45) / 2)
    assert list(reported) == list(range(1, 40)), "at the end of the last seed it has a score"


def test_a_hopeless_trial_is_given_up_and_its_training_ends_in_good_order(tmp_path, monkeypatch):
    search = search_in(tmp_path / "s", tables={"learning_rate": {"low": 0.5, "high": 1.0}})
    search.searching(5).run()
    monkeypatch.setenv("FAKE_TRIAL_5", "hang")  # it would never end by itself
    monkeypatch.setattr("penstock.search.study.Study.settings", lambda *_: {"learning_rate": 1e-9})
    search.searching(6).run()
    trial = search.study.tried[5]
    assert trial.state == "pruned"
    assert 0.25 <= trial.spent <= 0.5, "by evaluations beyond the first quarter, of those that it made before it hung"
    assert (search.directory.run(5, 0) / "meta.json").exists(), "it wrote a checkpoint"
    assert search.lines[-1] == f"trial 5: pruned after {trial.spent:.0%} of its trainings"
    assert Watched(pids_in(tmp_path / "s")).left_after(PATIENCE) == []


def test_a_trial_whose_first_seed_is_hopeless_is_not_trained_with_the_others(tmp_path, monkeypatch):
    monkeypatch.setattr("penstock.search.job.Job._follow", lambda *_, **__: None)  # it is judged at the end of a seed
    search = search_in(tmp_path / "s", tables={"learning_rate": {"low": 0.5, "high": 1.0}}, seeds=2)
    search.searching(5).run()
    monkeypatch.setattr("penstock.search.study.Study.settings", lambda *_: {"learning_rate": 1e-9})
    search.searching(6).run()
    trial = search.study.tried[5]
    assert (trial.state, trial.spent, len(trial.scores)) == ("pruned", 0.5, 1)
    assert not search.directory.run(5, 1).exists()


def test_a_training_that_fails_is_told_with_its_last_words_and_the_search_goes_on(tmp_path, monkeypatch):
    monkeypatch.setenv("FAKE_TRIAL_0", "fail")
    monkeypatch.setenv("FAKE_TRIAL_1", "die")
    search = search_in(tmp_path / "s")
    search.searching(3).run()
    failed, killed, done = search.study.tried
    assert (failed.state, killed.state, done.state) == ("failed", "failed", "done")
    assert failed.error.startswith("the pole broke (exit code 1; full output: ") and failed.score is None
    assert killed.error == "killed by signal 9 (out of memory?)"
    assert len(list((tmp_path / "s").glob("trial-1-seed-0*/begun.txt"))) == 5, "without a checkpoint it begins anew"
    assert f"trial 0: failed: {failed.error}" in search.lines


def test_a_training_that_is_killed_goes_on_from_its_checkpoint(tmp_path, monkeypatch):
    monkeypatch.setenv("FAKE_TRIAL_0", "save and die")
    search = search_in(tmp_path / "s")
    search.searching(1).run()
    assert begun(search.directory.run(0, 0)) == ["train at 0", "resume at 500"]
    assert search.study.tried[0].state == "done"
    assert "trial 0: killed by signal 9 (out of memory?); it resumes from its last checkpoint" in search.lines


def test_a_training_that_could_not_be_saved_ends_the_search_and_is_resumed_by_the_next(tmp_path, monkeypatch):
    monkeypatch.setenv("FAKE_TRIAL_0", "full disk")
    search = search_in(tmp_path / "s")
    with pytest.raises(BenchError, match=r"trial 0 cannot continue now; .*: the last checkpoint could not be saved"):
        search.searching(1).run()
    search_in(tmp_path / "s").searching(1).run()
    assert begun(search.directory.run(0, 0)) == ["train at 0", "resume at 500"]
    assert search.study.tried[0].state == "done"


def test_a_cluster_without_room_ends_the_search_and_fails_no_trial(tmp_path, monkeypatch):
    monkeypatch.setenv("FAKE_TRIAL_1", "no room")
    search = search_in(tmp_path / "s", backend="ray", nodes=2)
    with pytest.raises(BenchError, match=r"trial 1 cannot continue now; the same command .*: nodes=2 asks for 2 nodes"):
        search.searching(3).run()
    assert [trial.state for trial in search.study.tried] == ["done", "under way"]
    monkeypatch.delenv("FAKE_TRIAL_1")
    again = search_in(tmp_path / "s", backend="ray", nodes=2)
    again.searching(3).run()
    assert [trial.state for trial in again.study.tried] == ["done"] * 3


def test_three_failures_one_after_the_other_end_the_search(tmp_path, monkeypatch):
    for number in (0, 2, 3, 4):
        monkeypatch.setenv(f"FAKE_TRIAL_{number}", "fail")
    search = search_in(tmp_path / "s")
    with pytest.raises(BenchError, match=r"3 trainings failed in a row. The last one: the pole broke"):
        search.searching(9).run()
    assert len(search.study.tried) == 5


def test_settings_that_are_not_legal_together_are_a_trial_that_is_not_trained(tmp_path):
    tables = {"segment_length": {"values": [16, 24]}, "batch_size": {"values": [48, 64]}}
    search = search_in(tmp_path / "s", tables=tables, learning_rate=0.5)
    illegal = {"segment_length": 24, "batch_size": 64}
    search.study.settings = lambda _: illegal
    search.searching(4).run()
    assert [trial.state for trial in search.study.tried] == ["failed"] * 4, "more than three: no training failed"
    assert "batch_size=64 is not a whole number of segments" in search.study.tried[0].error
    assert not list((tmp_path / "s").glob("trial-*"))


def test_an_interrupted_search_leaves_no_process_and_goes_on_where_it_was(tmp_path, monkeypatch):
    monkeypatch.setenv("FAKE_TRIAL_1", "hang")
    search = search_in(tmp_path / "s")
    handler = signal.getsignal(signal.SIGTERM)

    follow = Job._follow

    def interrupt_at_step_500(job: Job, *, is_over: bool) -> None:
        follow(job, is_over=is_over)
        if job.trial.number == 1 and job._evaluations[-1:] and job._evaluations[-1].steps == 500:
            monkeypatch.setattr(Job, "_follow", follow)
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(Job, "_follow", interrupt_at_step_500)
    with pytest.raises(KeyboardInterrupt):
        search.searching(2).run()
    assert signal.getsignal(signal.SIGTERM) == handler
    assert Watched(pids_in(tmp_path / "s")).left_after(0.0) == []
    assert [trial.state for trial in search.study.tried] == ["done", "under way"]

    again = search_in(tmp_path / "s")
    again.searching(2).run()
    assert begun(again.directory.run(1, 0)) == ["train at 0", "resume at 500"]
    assert [trial.state for trial in again.study.tried] == ["done", "done"]
    rate = again.study.tried[1].settings["learning_rate"]
    assert again.study.tried[1].score == pytest.approx(100 * rate + LATE)


def test_a_training_that_somebody_else_interrupts_ends_the_search_as_one_of_its_own(tmp_path, monkeypatch):
    monkeypatch.setenv("FAKE_TRIAL_0", "interrupted")
    search = search_in(tmp_path / "s")
    with pytest.raises(KeyboardInterrupt):
        search.searching(3).run()
    assert [trial.state for trial in search.study.tried] == ["under way"]
    search.searching(1).run()
    assert begun(search.directory.run(0, 0)) == ["train at 0", "resume at 500"]


def test_of_a_budget_in_seconds_an_interrupted_training_gets_the_rest(tmp_path, monkeypatch):
    monkeypatch.setenv("FAKE_TRIAL_0", "interrupted")
    search = search_in(tmp_path / "s", max_seconds=0.8)
    with pytest.raises(KeyboardInterrupt):
        search.searching(1).run()
    search.searching(1).run()
    assert begun(search.directory.run(0, 0)) == ["train at 0", "resume at 500 --max-seconds 0.300"]


def test_a_training_whose_seconds_are_spent_is_done(tmp_path, monkeypatch):
    monkeypatch.setenv("FAKE_TRIAL_0", "interrupted")
    search = search_in(tmp_path / "s", max_seconds=0.5)
    with pytest.raises(KeyboardInterrupt):
        search.searching(1).run()
    search.searching(1).run()
    assert begun(search.directory.run(0, 0)) == ["train at 0"] and search.study.tried[0].state == "done"


def test_a_run_without_a_checkpoint_begins_anew(tmp_path, monkeypatch):
    search = search_in(tmp_path / "s")
    _, hold = search.study.ask(1)
    hold.release()
    run = search.directory.run(0, 0)
    run.mkdir()
    (run / "evaluations.jsonl").write_text('{"steps": 900, "seconds": 1.0, "return": 1e9}\n')
    search.searching(1).run()
    assert begun(run) == ["train at 0"] and search.study.tried[0].score < 1e3


def test_a_run_that_is_done_is_not_trained_again(tmp_path, monkeypatch):
    search = search_in(tmp_path / "s")
    with monkeypatch.context() as context:  # killed between the end of the training and the word of it
        context.setattr("penstock.search.study.Trial.seed_done", lambda *_: os.kill(os.getpid(), signal.SIGTERM))
        context.setattr("penstock.search.study.Trial.complete", lambda _: None)
        with pytest.raises(KeyboardInterrupt):
            search.searching(1).run()
    assert search.study.tried[0].state == "under way"
    search.searching(1).run()
    (trial,) = search.study.tried
    assert trial.score == pytest.approx(100 * trial.settings["learning_rate"] + LATE)
    assert begun(search.directory.run(0, 0)) == ["train at 0"]


DRIVER = """
import sys
from tests.search import fake_training
from penstock.search import job
job.PROGRAM = (sys.executable, "-S", fake_training.__file__)
job.checkpoint_to_resume = fake_training.read
from pathlib import Path
from tests.search.searches import search_in
search_in(Path(sys.argv[1])).searching(2).run()
"""


@pytest.mark.long
@pytest.mark.timeout(180)
def test_a_search_that_is_killed_takes_its_trainings_with_it_and_goes_on_where_it_was(tmp_path, monkeypatch):
    driver = tmp_path / "driver.py"
    driver.write_text(DRIVER)
    monkeypatch.setenv("FAKE_TRIAL_1", "linger")
    evaluations = tmp_path / "s" / "trial-1-seed-0" / "evaluations.jsonl"
    with started([str(driver), str(tmp_path / "s")], ROOT) as process:
        wait_until(lambda: evaluations.exists() and '"steps": 500' in evaluations.read_text(), "trial 1 hangs")
        watched = Watched(pids_in(tmp_path / "s"))
        assert watched.pids, "the training hangs"
        search_process = Watched([process.pid])
        process.kill()
        assert search_process.left_after(PATIENCE) == []
        search = search_in(tmp_path / "s")
        search.searching(2).run()  # it waits for what is about to end
        assert watched.left_after(PATIENCE) == []
    assert begun(search.directory.run(1, 0)) == ["train at 0", "resume at 500"]
    assert [trial.state for trial in search.study.tried] == ["done", "done"]


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core")
def test_jobs_run_at_once_on_cores_of_their_own(tmp_path, monkeypatch):
    for number in range(2):
        monkeypatch.setenv(f"FAKE_TRIAL_{number}", "hang")
    search = search_in(tmp_path / "s")
    files = [search.directory.run(number, 0) / "begun.txt" for number in range(2)]

    def interrupt_when_both_train(job: Job, *, is_over: bool) -> None:
        if all(file.exists() and "by" in file.read_text() for file in files):
            monkeypatch.setattr(Job, "_follow", lambda *_, **__: None)
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(Job, "_follow", interrupt_when_both_train)
    cores = split_cores(2)
    with pytest.raises(KeyboardInterrupt):
        search.searching(2, cores=cores).run()
    assert [re.findall(r"on (.*) by", file.read_text()) for file in files] == [[str(each)] for each in cores]


@pytest.mark.long
def test_two_searches_in_one_directory_share_the_trials(tmp_path):
    driver = tmp_path / "driver.py"
    driver.write_text(DRIVER.replace("searching(2)", "searching(6)"))
    run = [sys.executable, str(driver), str(tmp_path / "s")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    both = [subprocess.Popen(run, cwd=ROOT, env=environment) for _ in range(2)]
    assert [process.wait(timeout=100) for process in both] == [0, 0]
    search = search_in(tmp_path / "s")
    assert [trial.state for trial in search.study.tried] == ["done"] * 6
    assert [len(begun(search.directory.run(number, 0))) for number in range(6)] == [1] * 6


def with_a_run(search, monkeypatch) -> Path:
    """A search whose first trial was interrupted, with a checkpoint as training writes it, and notes beside it."""
    from penstock.runs.lookup import checkpoint_to_resume
    from penstock.runs.run_directory import RunDirectory

    monkeypatch.setattr("penstock.search.job.checkpoint_to_resume", checkpoint_to_resume)
    run = RunDirectory.create(search.directory.run(0, 0), env_name="e", algorithm="appo", config={})
    run.checkpoints.save(100, meta={"seconds": 1.0}, weights={})
    return with_notes(run.path)


@pytest.mark.parametrize(("kind", "jobs"), [("newer", 1), ("unreadable", 2)])
def test_a_run_whose_checkpoint_cannot_be_used_now_ends_the_search_and_is_left_as_it_is(
    tmp_path, monkeypatch, kind, jobs
):
    monkeypatch.setenv("FAKE_TRIAL_1", "hang")  # it is under way beside the other, and interrupted
    search = search_in(tmp_path / "s")
    run = with_a_run(search, monkeypatch)
    make_newer(run / "checkpoints" / "100") if kind == "newer" else None
    before = contents(run)
    with monkeypatch.context() as context:
        if kind == "unreadable":
            make_unreadable(run / "checkpoints" / "100", context)
        with pytest.raises(BenchError, match=r"trial 0 cannot continue now; the same command resumes it: .*100"):
            search.searching(jobs, jobs=jobs).run()
    assert contents(run) == before
    assert search.study.tried[0].state not in ("done", "failed"), "it can be taken up again"


def test_a_run_without_an_intact_checkpoint_begins_anew_beside_what_it_was(tmp_path, monkeypatch):
    search = search_in(tmp_path / "s")
    run = with_a_run(search, monkeypatch)
    make_damaged(run / "checkpoints" / "100")
    before = contents(run)
    search.searching(1).run()
    aside = run.with_name(f"{run.name}.set-aside-1")
    assert search.study.tried[0].state == "done" and begun(run) == ["train at 0"]
    assert contents(aside) == before and any(f"it is in {aside} now" in line for line in search.lines)

"""The live view of a run from its files: until it ends, or a key does."""

import io
import json
import os
import re
import termios

import pytest
from rich.console import Console

from penstock.cli import main
from penstock.runs.reading import RecordedRun
from penstock.runs.state import StateFile, read_state, status_of
from penstock.runs.status import MatchStatus, NodeStatus, OpponentStatus, PolicyStatus, RoleShare, Status
from penstock.runs.view import open_view
from penstock.studies.watch import histories_of, watch
from tests.runs.terminals import OWN, read_until, terminal
from tests.studies.recorded import record


def of_two(steps, **changes):
    policies = tuple(PolicyStatus(name=name, steps=1, losses={"entropy": 0.5}) for name in ("red", "blue"))
    return Status(algorithm="ppo", env="Walk", steps=steps, total_steps=100, seconds=1.0, policies=policies, **changes)


def screen():
    console = Console(file=io.StringIO(), force_terminal=True, width=100, height=40, _environ={"TERM": "xterm"})
    return console, open_view(console)


def test_a_status_is_read_as_it_was_written(tmp_path):
    whole = of_two(
        5, mean_return=1.5, experience={"policy_lag/mean": 2.0}, limiting_role="learner",
        roles=(RoleShare(name="learner", activities={"learn": 0.5}, busy=0.5),), nodes=(NodeStatus(name="node-0"),),
        opponents=(OpponentStatus(1, 2.0, 0.5),), eval_matches=(MatchStatus("random", "red", 1, 2, 3, 0.5),),
    )  # fmt: skip
    StateFile(tmp_path).write(whole, "running")
    assert status_of(read_state(tmp_path)) == whole
    assert status_of({}) is None and status_of({"state": "unreadable", "reason": "x"}) is None


def test_null_numbers_and_control_characters_do_no_harm(tmp_path):
    losses = {"a\x1b[2J": float("nan"), "b": 1.0}
    StateFile(tmp_path).write(of_two(5, losses=losses, limiting_role="\x1b]0;x\a"), "running")
    path = tmp_path / "status.json"
    record_ = json.loads(path.read_text()) | {"steps_per_second": None, "seconds": 2.0}
    path.write_text(json.dumps(record_))
    found = status_of(read_state(tmp_path))
    assert found.losses == {"b": 1.0} and found.steps_per_second == 0.0 and "\x1b" not in found.limiting_role


@pytest.mark.parametrize(("state", "reason"), [("done", "steps"), ("failed", "no memory")])
def test_a_run_is_shown_until_it_has_ended(tmp_path, state, reason):
    run = record(tmp_path / "run", state="running")
    file = StateFile(run.directory.path)
    file.write(of_two(5), "running")
    console, view = screen()
    view.wait = lambda seconds: file.write(of_two(20), state, reason)
    with view:
        watch(run, view)
    text = re.sub(r"\x1b\[[0-9;]*m", "", console.file.getvalue())
    assert "5 of 100 steps" in text and "20 of 100 steps" in text and f"{state}: {reason}" in text


def test_what_cannot_be_watched_is_told(tmp_path, capsys):
    assert main(["watch", str(tmp_path / "nothing")]) == 2
    run = record(tmp_path / "run")
    (run.directory.path / "status.json").unlink()
    assert main(["watch", str(run.directory.path)]) == 2
    assert "it has no status.json" in capsys.readouterr().err
    (run.directory.path / "status.json").write_text("[")
    assert main(["watch", str(run.directory.path)]) == 2
    assert "cannot be read" in capsys.readouterr().err


def test_the_chosen_policy_has_its_own_returns_from_the_beginning(tmp_path):
    run = record(tmp_path / "run", state="running", policies=["red", "blue"])
    lines = [
        {"steps": steps, "seconds": 1.0, "policy/red/episode/mean_return": 1.0 * steps,
         "policy/blue/evaluation/mean_return": -1.0 * steps}
        for steps in (10, 20)
    ]  # fmt: skip
    run.directory.metrics.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    run = RecordedRun.open(run.directory.path)
    run.directory.info["policies"] = ["red", "blue"]
    assert histories_of(run) == [[(10, 10.0, None), (20, 20.0, None)], [(10, None, -10.0), (20, None, -20.0)]]
    console, view = screen()
    view.remember(histories_of(run))
    policies = [PolicyStatus(name=name, steps=1, mean_return=at) for name, at in (("red", 30.0), ("blue", -0.5))]
    status = Status(algorithm="ppo", env="Walk", steps=30, total_steps=100, seconds=1.0, policies=tuple(policies))
    view.wait = lambda seconds: None
    with view:
        view.update(status)
        before = console.file.getvalue()
        view._chosen, view._next = 1, 0.0
        view.update(status)
        after = console.file.getvalue()[len(before) :]
    assert "return of red over steps" in before and "return of blue over steps" in after
    assert "30.0" in before.partition("return of red")[2].splitlines()[0]
    assert "-0.500" in after.partition("return of blue")[2].splitlines()[0]


def test_outside_a_terminal_an_ended_run_is_one_line(tmp_path, capsys):
    run = record(tmp_path / "run", [(100, 5.0)])
    assert main(["watch", str(run.directory.path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "100 steps" in lines[0] and lines[-1] == "done: steps"


@pytest.mark.timeout(60)
def test_q_ends_the_view_and_not_the_run_and_leaves_the_terminal_as_it_was(tmp_path):
    run = record(tmp_path / "run", [(100, 5.0)], state="running")
    status = run.directory.path / "status.json"
    before = status.read_bytes()
    command = f"{OWN}from penstock.cli import main; raise SystemExit(main(['watch', {str(run.directory.path)!r}]))"
    with terminal(command) as (process, ours, theirs):
        mode = termios.tcgetattr(theirs)
        read_until(ours, "100 of 1,000 steps")
        os.write(ours, b"q")
        assert process.wait(30) == 0
        assert termios.tcgetattr(theirs) == mode and status.read_bytes() == before

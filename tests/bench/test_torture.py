"""The torture test: its plan follows from its seed, faults are found, and its short form finds none."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from penstock.config import find_object
from tests.places import BENCH

FIRST = 7 << 32  # key of the first step of an environment


@pytest.fixture(autouse=True)
def bench(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCH))


def test_a_story_follows_from_its_seed_and_number_alone():
    from torturing.plan import draw

    assert draw(1, 5) == draw(1, 5)
    assert draw(1, 5) != draw(2, 5)


def test_in_sixty_stories_every_path_every_fault_and_every_end_has_its_turn():
    from torturing.plan import (
        COMMANDS,
        ENDINGS,
        KILLS,
        MOST_KILLS,
        PATHS,
        REFUSED,
        draw,
        endings_of,
        in_the_midst,
    )

    stories = [draw(1, number) for number in range(60)]
    lives = [life for story in stories for life in story.lives]
    assert {story.path for story in stories if not story.is_serial and not story.command} == set(PATHS)
    assert {story.is_serial for story in stories} == {True, False}
    assert {(life.ending.kind, life.ending.target) for life in lives} >= set(ENDINGS)
    befell = {(fault.kind, fault.target) for life in lives for fault in life.faults}
    assert befell >= {fault for path in PATHS for fault in in_the_midst(path, False)}
    assert {(fault.kind, fault.target) for life in lives for fault in life.damage} >= set(REFUSED)
    for command in COMMANDS:
        own = [life for story in stories if story.command == command for life in story.lives]
        assert {(life.ending.kind, life.ending.target) for life in own} <= set(endings_of(command))
        befell = {(fault.kind, fault.target) for life in own for fault in life.faults}
        assert befell == set(in_the_midst("", False, command))
    assert max(sum(fault.kind in KILLS for fault in life.faults) for life in lives) == MOST_KILLS


@pytest.mark.parametrize(
    ("numbers", "twice", "lost"),
    [([0, 1, 2, 3], 0, 0), ([0, 1, 1, 2], 1, 0), ([0, 1, 3], 0, 1), ([1, 2], 0, 1), ([], 0, 0), ([2, 0, 1], 0, 0)],
    ids=["as it should be", "a step twice", "a step between two lost", "the first lost", "nothing", "in any order"],
)
def test_the_ledger_tells_steps_that_were_learned_from_twice_or_never(tmp_path, numbers, twice, lost):
    from torturing.ledger import Ledger, read

    book = Ledger(tmp_path, "0")
    other = FIRST + (1 << 32) + np.arange(4)
    for part in np.array_split(np.array(numbers, np.int64) + FIRST, 2):
        book.learned(np.concatenate([part, other[:2]]), torn=0)
        other = other[2:]
    book.learned(np.empty(0, np.int64), torn=3)
    account = read(tmp_path, "0")
    assert (account.steps, account.twice, account.lost, account.torn) == (len(numbers) + 4, twice, lost, 3)
    (sums,) = account.sums.values()
    assert sums[-1] == account.steps


def test_a_record_that_its_process_was_killed_in_is_left_out(tmp_path):
    from torturing.ledger import Ledger, read

    book = Ledger(tmp_path, "0")
    book.learned(FIRST + np.arange(3), torn=0)
    book.learned(FIRST + np.arange(3, 6), torn=0)
    (path,) = tmp_path.iterdir()
    os.truncate(path, path.stat().st_size - 8)
    assert read(tmp_path, "0").steps == 3


@pytest.mark.parametrize("place", ["torturing.counted:Corridor", "torturing.cartpole:NumberedCartPole"])
def test_a_row_of_two_steps_is_seen_to_be_torn(place):
    from torturing.counted import is_torn
    from torturing.ledger import keys_of

    env = find_object(place, "env")()
    shown, rewards = [env.reset(seed=1)[0]], []
    for _ in range(30):
        observation, reward, terminated, truncated, _ = env.step(1)
        shown.append(observation)
        rewards.append(reward)
        if terminated or truncated:
            env.reset()
    keys, rewards = keys_of(np.array(shown)), np.array(rewards)
    assert not is_torn(keys[:-1], keys[1:], rewards).any()
    assert is_torn(keys[:-2], keys[2:], rewards[:-1]).all()
    assert is_torn(keys[:-2], keys[1:-1], rewards[1:]).all()


def account_of(*learned):
    from torturing.ledger import Account

    return Account(sum(learned), 0, 0, 0, {1: np.cumsum([0, *learned])})


@pytest.mark.parametrize(("at", "is_wrong"), [(1000, False), (1064, False), (1128, False), (1100, True), (1192, True)])
def test_a_checkpoint_says_as_many_steps_as_were_written_down_by_then(at, is_wrong):
    from torturing import audit
    from torturing.plan import PATHS

    wrong = audit.steps(account_of(64, 64), PATHS["ppo"], 1000, [at], kills=0, in_order=True)
    assert bool(wrong) == is_wrong


@pytest.mark.parametrize(("at", "is_wrong"), [(1128, False), (1000, False), (900, True), (1300, True)])
def test_where_workers_learn_a_batch_of_each_that_was_told_to_end_is_allowed_for(at, is_wrong):
    from torturing import audit
    from torturing.plan import PATHS

    wrong = audit.steps(account_of(64, 64), PATHS["a3c"], 1000, [at], kills=2, in_order=True)
    assert bool(wrong) == is_wrong
    assert not audit.steps(account_of(64, 64), PATHS["a3c"], 1000, [at], kills=2, in_order=False)


def run_with_checkpoints(path, *steps):
    from torturing.audit import RunFiles

    files = RunFiles(path)
    for number in steps:
        files.store.save(number, meta={}, weights={})
    return files


def test_damage_that_nobody_has_done_is_seen_and_so_are_steps_that_go_back(tmp_path):
    from torturing import audit

    files = run_with_checkpoints(tmp_path, 10, 20, 30)
    before = files.checkpoints()
    assert audit.checkpoints(files, 0, [10, 20, 30]) == []
    assert len(audit.checkpoints(files, 15, [10, 20, 30])) == 1
    os.truncate(files.store.path_of(30) / "meta.json", 5)
    assert files.newest_intact() == 20
    assert "damaged, but not by the story" in audit.checkpoints(files, 0, [10, 20, 30])[0][1]
    files.damaged.add("30")
    assert audit.checkpoints(files, 0, [10, 20, 30]) == []
    files.store.save(20, meta={}, weights={})
    assert files.new_since(before) == [20]


def test_the_last_word_of_an_interrupted_run_is_of_its_last_checkpoint(tmp_path):
    from torturing import audit

    files = run_with_checkpoints(tmp_path, 1000, 2048)
    assert audit.last_word("interrupted after 2,048 steps and 3 s", files) == []
    assert audit.last_word("interrupted after 2,112 steps and 3 s", files) != []
    assert audit.last_word("", files) != []


@pytest.mark.parametrize(("numbers", "is_wrong"), [([0, 1, 2], False), ([0, 1, 1], True), ([0, 2, 3], True)])
def test_steps_that_lie_in_a_replay_buffer_twice_or_not_at_all_are_found(tmp_path, numbers, is_wrong):
    from torturing import audit
    from torturing.ledger import UNIT
    from torturing.plan import PATHS

    from penstock.replay import Field, NStep, Prioritized, ReplayBuffer

    config = {"priority_alpha": 0.6, "priority_beta": 0.4, "prioritized": True, "buffer_size": 100, "gamma": 0.99}
    (tmp_path / "config.json").write_text(json.dumps({**config, "seed": 0}))
    fields = {"obs": Field((3,)), "action": Field((), "int64"), "reward": Field()}
    fields["next_obs"] = Field((3,), next_of="obs")
    sampler = Prioritized(0.6, 0.4, normalize="batch")
    buffer = ReplayBuffer(100, fields, sampler=sampler, n_step=NStep(1, 0.99), seed=0)
    for number in numbers:
        shown, led_to = (np.array([0.5, 7 * UNIT, n * UNIT], np.float32) for n in (number, number + 1))
        buffer.add(obs=shown, action=0, reward=0.0, next_obs=led_to, terminated=True)
    buffer.save(tmp_path / "replay")
    files = audit.RunFiles(tmp_path)
    found, wrong = audit.replay(files, PATHS["dqn"])
    assert found == 3
    assert bool(wrong) == is_wrong
    os.truncate(tmp_path / "replay" / "manifest.json", 5)
    assert "damaged, but not by the story" in audit.replay(files, PATHS["dqn"])[1][0][1]
    files.damaged.add("replay")
    assert audit.replay(files, PATHS["dqn"]) == (0, [])


@pytest.mark.parametrize("dice", [0.0, 0.3, 0.999])
def test_damage_is_one_bit_or_an_end_cut_off(tmp_path, dice):
    from torturing.disk import damage

    path = tmp_path / "file"
    path.write_bytes(bytes(100))
    damage(path, "bit flipped", dice)
    assert sum(byte.bit_count() for byte in path.read_bytes()) == 1
    damage(path, "truncated", dice)
    assert path.stat().st_size == int(dice * 100)


WITH_AN_ORPHAN = """
import json, sys
from pathlib import Path
from torturing import run

run.adopt_orphans()
run.LOOK = 0.001
started = run.Run(["--version"], Path(sys.argv[1]), "0", patience=60.0)
started.wait_for_end()
alone = started.left_after_the_end(60.0)[1]
run.subprocess.run([sys.executable, "-c", "import subprocess; subprocess.Popen(['sleep', '1000'])"])
left = started.left_after_the_end(0.1)[1]
started.kill()
print(json.dumps([alone, left, started.left_after_the_end(60.0)[1]]))
"""


def test_a_process_that_outlives_its_run_is_found_though_its_parent_is_gone(tmp_path):
    out = subprocess.run(
        [sys.executable, "-c", WITH_AN_ORPHAN, str(tmp_path)], cwd=BENCH, capture_output=True, text=True
    )
    assert out.returncode == 0, out.stderr
    alone, left, after = json.loads(out.stdout)
    assert alone == after == []
    assert len(left) == 1
    assert left[0].startswith("sleep 1000")


def test_a_run_that_makes_no_progress_hangs_and_one_that_is_gone_has_ended_early(tmp_path):
    from torturing.run import EndedEarlyError, Hang, Run

    run = Run(["doctor"], tmp_path, "0", patience=0.05)
    os.kill(run.process.pid, signal.SIGSTOP)
    with pytest.raises(Hang, match="progress was awaited for"):
        run.wait_for_progress()
    os.kill(run.process.pid, signal.SIGKILL)
    run.process.wait()
    with pytest.raises(EndedEarlyError, match="exit code -9 while progress was awaited"):
        run.wait_for_progress()


@pytest.mark.long
@pytest.mark.timeout(600)
def test_the_short_form_finds_nothing_wrong(tmp_path):
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    out = subprocess.run(
        [sys.executable, str(BENCH / "torture.py"), "--short"], capture_output=True, text=True, env=environment
    )
    from torturing.story import WRONG

    assert out.returncode == 0, out.stdout + out.stderr
    rows = {row[:43].strip(): row[43:].strip() for row in out.stdout.splitlines()}
    assert {name: rows[name] for name in WRONG} == dict.fromkeys(WRONG, "0")
    stories = dict(re.findall(r"^story +\d+  (\S.*?) +\d+ lives, +(\d+) faults", out.stdout, re.MULTILINE))
    # On a busy machine the trainings of the command may be done before its faults.
    assert len(stories) == 4 and all(int(faults) for name, faults in stories.items() if name != "multirun")
    assert list(tmp_path.iterdir()) == []


def test_a_file_of_the_users_that_was_deleted_or_changed_is_found(tmp_path):
    from torturing.audit import LOST, NOTES

    files = run_with_checkpoints(tmp_path, 10, 20)
    files.write_notes()
    beside_weights = tmp_path / "checkpoints/10/notes.txt"
    assert files.users.lost() == [] and files.store.steps() == [10, 20] and beside_weights.is_file()
    (tmp_path / NOTES[0]).write_text("another's")
    beside_weights.unlink()
    assert files.users.lost() == [(LOST, f"{tmp_path / NOTES[0]}, {beside_weights}")]
    files.users.forget(tmp_path)
    assert files.users.lost() == []


def test_a_refused_command_may_write_to_the_log_and_free_the_lock_alone(tmp_path):
    from torturing import audit

    for name in ("log.txt", "run.lock", "config.json", "status.json"):
        (tmp_path / name).write_text("as it was")
    before = audit.contents_below(tmp_path)
    (tmp_path / "log.txt").write_text("as it was, and more")
    (tmp_path / "run.lock").write_text("")
    assert audit.changed_by_a_refusal(before, audit.contents_below(tmp_path)) == []
    (tmp_path / "config.json").unlink()
    (tmp_path / "status.json").write_text("")
    (tmp_path / "log.txt").write_text("")
    found = [exactly for _, exactly in audit.changed_by_a_refusal(before, audit.contents_below(tmp_path))]
    assert sorted(Path(text.split(" was ")[0]).name for text in found) == ["config.json", "log.txt", "status.json"]


@pytest.mark.parametrize("dice", [0.0, 0.2, 0.4, 0.6, 0.7, 0.8, 0.9, 0.99])
def test_hostile_texts_are_refused_wherever_they_are_read(tmp_path, dice):
    from torturing.disk import hostile

    from penstock.runs.run_directory import RunDirectory
    from penstock.runs.vacancy import RunDirectoryError

    (tmp_path / "config.json").write_bytes(hostile(dice, ("algorithm", "run")))
    with pytest.raises(RunDirectoryError, match=r"config\.json"):
        RunDirectory.open(tmp_path)


@pytest.mark.parametrize(("kind", "said"), [("newer", "newer Penstock"), ("hostile", r"meta\.json")])
def test_resealed_checkpoints_are_refused_and_not_taken_to_be_damaged(tmp_path, kind, said):
    from torturing.disk import resealed

    from penstock.runs.checkpoint import CheckpointError, DamagedCheckpointError, verify_checkpoint

    files = run_with_checkpoints(tmp_path, 10)
    meta = files.store.path_of(10) / "meta.json"
    meta.write_bytes(resealed(meta.read_bytes(), kind))
    with pytest.raises(CheckpointError, match=said) as refused:
        verify_checkpoint(meta.parent)
    assert not isinstance(refused.value, DamagedCheckpointError)

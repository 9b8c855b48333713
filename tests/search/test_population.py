"""Population-based training over several runs: slices, copies through checkpoints, and going on after a kill."""

import errno
import json
from typing import ClassVar

import pytest

from penstock.algorithms.ppo import PPOConfig
from penstock.bench import BenchError, BenchUsageError
from penstock.config import ConfigError
from penstock.engine import slices
from penstock.population.decisions import Decision
from penstock.population.schedule import load_schedule
from penstock.runs.checkpoint import NewerCheckpointError, load_checkpoint
from penstock.runs.lookup import resolve_checkpoint
from penstock.runs.reading import recorded
from penstock.search import population, population_command
from penstock.search.population import PopulationRuns
from tests.comparing import identical
from tests.kept_files import contents, make_damaged, make_newer, with_notes

pytestmark = pytest.mark.timeout(90)

SPACE = {"learning_rate": {"low": 1e-5, "high": 1e-2, "log": True}}
SETTINGS = {
    "env": "CartPole-v1", "backend": "serial", "num_workers": 1, "num_envs_per_worker": 2, "segment_length": 32,
    "batch_size": 64, "num_epochs": 1, "hidden_sizes": (8,), "eval_interval": 0, "total_steps": 768,
    "pbt": "truncation", "pbt_space": SPACE, "pbt_interval": 256, "pbt_fraction": 0.5, "pbt_episodes": 2,
}  # fmt: skip


class InThisProcess(population.Slice):
    """A slice that is trained at once, where it is begun; slices named in `killed` end before they do anything."""

    killed: ClassVar[set[str]] = set()

    def __init__(self, member, arguments, cores, *reads):
        self.member, self.cores, self.output, self.is_stopping = member, cores, arguments.with_suffix(".txt"), False
        content = json.loads(arguments.read_text())
        self.output.touch()
        self.code = 1 if f"{member} until {content['until']}" in self.killed else slices.train_slice(content)

    def poll(self):
        return self.code

    def stop(self):
        pass

    def kill(self):
        pass


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch):
    monkeypatch.setattr(population, "Slice", InThisProcess)
    monkeypatch.setattr(population.Jobs, "_noting_signals", _nothing)
    monkeypatch.setattr("penstock.runs.jobs.PAUSE", 0.0)
    InThisProcess.killed = set()


def _nothing(self):
    from contextlib import nullcontext

    return nullcontext()


def made(path, count=2, **changes):
    lines: list[str] = []
    runs = PopulationRuns(path, "ppo", PPOConfig(**{**SETTINGS, **changes}), count, [[0]], lines.append)
    return runs, lines


def lineage_of(path):
    lines = [json.loads(line) for line in (path / "lineage.jsonl").read_text().splitlines()]
    return [{name: value for name, value in line.items() if name != "time"} for line in lines]


def test_members_train_in_slices_and_the_worse_copies_the_better(tmp_path):
    runs, lines = made(tmp_path / "p")
    runs.run()
    assert runs.is_done and [line.partition(":")[0] for line in lines if line.startswith("slice")] == [
        "slice 0", "slice 1", "slice 2"
    ]  # fmt: skip
    exploits = [line for line in lineage_of(tmp_path / "p") if line["event"] == "exploit"]
    assert exploits and all(line["scores"][line["parent"]] > line["scores"][line["policy"]] for line in exploits)
    assert [line["parent_steps"] for line in exploits] == [line["steps"] for line in exploits]  # of whole slices
    assert {256, 512} & set(load_schedule(tmp_path / "p", exploits[-1]["policy"]))
    for number in range(2):
        meta = load_checkpoint(resolve_checkpoint(runs.member(number), "latest")).meta
        assert meta["tuned"] == runs.population.members[number].settings and meta["steps"] >= 768


def test_a_slice_begins_with_the_copy_once_and_a_killed_one_begins_with_it_again(tmp_path):
    def told(until, **changes):
        config = PPOConfig(**{**SETTINGS, "pbt": None, "pbt_space": None}, run_dir=str(tmp_path / "child")).to_json()
        settings = {"learning_rate": 2e-3}
        return {"algorithm": "ppo", "config": config, "settings": settings, "parent": None, "begin": 0, "until": until,
                **changes}  # fmt: skip

    parent = told(128, settings={"learning_rate": 1e-2})
    parent["config"] = {**parent["config"], "run_dir": str(tmp_path / "parent"), "seed": 7}
    assert slices.train_slice(parent) == 0 and slices.train_slice(told(64)) == 0
    newest = str(resolve_checkpoint(tmp_path / "parent", "latest"))
    moved = []
    for until in (64, 128):  # the first slice learns nothing: killed then, its run is of before the copy
        before = load_checkpoint(resolve_checkpoint(tmp_path / "child", "latest"))
        assert slices.train_slice(told(until, parent=newest, begin=64)) == 0
        after = load_checkpoint(resolve_checkpoint(tmp_path / "child", "latest"))
        moved.append(not identical(before.weights, after.weights))
    assert moved == [False, True] and after.meta["tuned"] == {"learning_rate": 2e-3}
    assert slices.train_slice(told(128, parent=newest, begin=64)) == 0  # it has its steps: nothing is copied again
    assert identical(load_checkpoint(resolve_checkpoint(tmp_path / "child", "latest")).weights, after.weights)


def train(runs, *members):
    """Train these members of a population for a slice."""
    runs._todo = list(members)
    runs._jobs.run(runs._start, runs._ended, is_over=lambda: False, is_left=lambda: False)


@pytest.mark.long
def test_a_population_that_was_killed_goes_on_as_if_it_had_not_been(tmp_path):
    whole, _ = made(tmp_path / "whole")
    whole.run()
    InThisProcess.killed = {"1 until 512"}
    with pytest.raises(BenchError, match=r"member 1 failed: no output \(see .*member-1.txt\)"):
        made(tmp_path / "killed")[0].run()
    InThisProcess.killed = set()
    (tmp_path / "killed" / "lineage.jsonl").open("a").write('{"what was not')
    again, lines = made(tmp_path / "killed")
    assert again.slice == 1
    again.run()
    assert lineage_of(tmp_path / "whole") == lineage_of(tmp_path / "killed") and lines
    for number in range(2):
        one, other = (
            load_checkpoint(resolve_checkpoint(runs.member(number), "latest")).weights for runs in (whole, again)
        )
        assert identical(one, other)


def test_who_is_to_copy_another_hands_over_what_it_is_to_copy_and_its_newest_weights_when_it_has_trained(tmp_path):
    runs, _ = made(tmp_path / "p", count=3)
    train(runs, 0, 1, 2)
    settings = {"learning_rate": 1e-3}

    def copy(member, parent):
        return Decision("exploit", member, parent, settings, settings, {"learning_rate": "kept"}, (1.0, 2.0, 3.0))

    runs._plans = [population.Plan(begin=runs._steps(number)) for number in range(3)]
    runs._carry_out([copy(0, 1), copy(1, 2), copy(0, 1)])
    assert runs._plans[0].parent == runs._plans[1].parent and "member-2" in runs._plans[0].parent
    assert lineage_of(tmp_path / "p")[-1]["parent_steps"] == runs._steps(1)
    runs.slice = 1
    train(runs, 1)
    runs._carry_out([copy(0, 1)])
    assert load_checkpoint(runs._plans[0].parent).meta["steps"] == runs._steps(1) == 512
    assert lineage_of(tmp_path / "p")[-1]["parent_steps"] == 512


def test_a_member_that_saved_before_it_diverged_copies_all_the_same(tmp_path):
    runs, _ = made(tmp_path / "p")
    train(runs, 0, 1)
    job = type("Diverged", (), {"member": 1, "ending": staticmethod(lambda code: "diverged")})
    runs._ended(job, population.DIVERGED)  # it has trained its 256 steps by then, and the slice began with none
    told = lineage_of(tmp_path / "p")[-1]
    assert (told["event"], told["steps"], runs._plans[1].begin) == ("diverged", 256, 256)


def test_another_population_in_the_same_place_is_refused(tmp_path):
    made(tmp_path)
    for changes, begun, given in (
        ({"gamma": 0.9}, "gamma=0.99", "gamma=0.9"),
        ({"count": 3}, "population=2", "population=3"),
        ({"hidden_sizes": (8, 8)}, r"hidden_sizes=\[8\]", r"hidden_sizes=\[8, 8\]"),
        ({"pbt_space": {"gamma": SPACE["learning_rate"]}}, "pbt_space={'learning_rate.*", "pbt_space={'gamma.*"),
    ):
        said = f"another population: it was begun with {begun}, but {given} is given. Give {begun} to resume it.*--dir"
        with pytest.raises(ConfigError, match=said):
            made(tmp_path, **changes)
    with pytest.raises(ConfigError, match="is not legal: members copy each other"):
        made(tmp_path / "one", count=1)


def test_a_population_of_an_older_version_goes_on_with_the_defaults_of_settings_that_it_lacks(tmp_path):
    made(tmp_path)
    file = tmp_path / "population.json"
    found = json.loads(file.read_text())
    assert [found["facts"]["config"].pop(name) for name in ("schedule", "gamma", "adam_eps")] == [None, 0.99, 1e-5]
    file.write_text(json.dumps(found))
    with pytest.raises(ConfigError, match=r"begun with gamma=0\.99, but gamma=0\.9 is given"):
        made(tmp_path, gamma=0.9)
    assert made(tmp_path)[0].slice == 0
    assert json.loads(file.read_text()) == found  # it is written when a slice has ended
    found["facts"]["config"]["of_old"] = 3
    file.write_text(json.dumps(found))
    with pytest.raises(ConfigError, match="another version with of_old=3, a setting that ppo does not have: give"):
        made(tmp_path)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ([], "--space is missing"),
        (["--space", "s.toml", "--num-policies", "2"], "--num-policies 2 is not legal here"),
        (["--space", "s.toml", "--target-return", "2"], "--target-return 2.0 is not legal here"),
        (["--space", "s.toml", "--jobs", "0"], "--jobs 0 is not legal"),
        (["--space", "s.toml", "--dir", "file"], "--dir file cannot be created: File exists: give another"),
        (["--space", "nowhere.toml", "--dir", "p"], "the space 'nowhere.toml' cannot be read"),
        (["--space", "s.toml", "--backend", "ray", "--nodes", "2", "--address", "127.0.0.1:1"], "no Ray cluster there"),
    ],
)
def test_what_the_command_cannot_do_it_says(tmp_path, monkeypatch, flags, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    (tmp_path / "s.toml").write_text("[learning_rate]\nlow = 1e-4\nhigh = 1e-2\n")
    with pytest.raises((BenchUsageError, ConfigError), match=message):
        population_command.command(["ppo", "--env", "CartPole-v1", *flags])
    assert not list(tmp_path.rglob("population.json"))


def test_a_slice_that_could_not_be_saved_ends_the_population_and_is_trained_again(tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    runs, _ = made(tmp_path / "p")
    with monkeypatch.context() as full:
        full.setattr("penstock.runs.store.save_checkpoint", refuse)
        with pytest.raises(BenchError, match="member 0 failed"):
            runs.run()
    assert recorded(runs.member(0), "").status["state"] == "failed"
    runs, _ = made(tmp_path / "p")
    runs.run()
    assert runs.is_done and runs._steps(0) == runs._steps(1) == 768


def test_members_that_cannot_go_on_are_set_aside_or_left_as_they_are(tmp_path):
    runs, lines = made(tmp_path / "p")
    train(runs, 0, 1)
    for number in range(2):
        with_notes(runs.member(number))
    for checkpoint in runs.member(0).glob("checkpoints/[0-9]*"):
        make_damaged(checkpoint)
    before = contents(runs.path)
    train(runs, 0)
    assert lines[-1].endswith(f"it is in {runs.path / 'member-0.set-aside-1'} now")
    assert not {name for name, _ in before - contents(runs.path)} - {"member-0.json"}

    make_newer(resolve_checkpoint(runs.member(1), "latest"))
    before = contents(runs.path)
    with pytest.raises(NewerCheckpointError):
        train(runs, 1)
    with pytest.raises(NewerCheckpointError):
        runs._decide()
    assert not before - contents(runs.path)


def test_what_lies_where_a_population_shall_be_is_not_touched(tmp_path):
    (tmp_path / "member-0").mkdir()
    (tmp_path / "member-0" / "notes.txt").write_text("mine")
    with pytest.raises(ConfigError, match="holds member-0, and no population"):
        made(tmp_path)
    runs, _ = made(tmp_path / "p")
    (runs.path / "handed" / "member-0-mine").mkdir(parents=True)
    (runs.path / "handed" / "member-0-mine" / "notes.txt").write_text("mine")
    before = contents(tmp_path)
    runs._remove_handed()
    assert contents(tmp_path) == before

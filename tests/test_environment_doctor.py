"""The doctor of environments finds each broken part of a contract, and nothing in a sound one."""

import dataclasses
import json
import random
import threading
import time

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from penstock.bench.account import limits
from penstock.cli import main
from penstock.doctor import contract, environment
from penstock.doctor.contract import check_contract
from penstock.envs.spec import EnvSpec
from tests.bench.measured import CAPACITY, COSTS
from tests.envs.two_sides import TwoSides


class Walk(gymnasium.Env):
    """Sound: walks to 5 or is truncated after 20 steps."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012 - as Gymnasium has it
    observation_space = spaces.Box(-30.0, 30.0, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, render_mode=None):
        self.render_mode = render_mode

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps, self.place = 0, float(self.np_random.uniform(0.0, 2.0))
        return self.shown(), {}

    def step(self, action):
        self.steps += 1
        self.place += 2.0 * action - 1.0
        return self.shown(), self.place, self.place > 5.0, self.steps == 20, self.info()

    def shown(self):
        return np.array([self.place], np.float32)

    def info(self):
        return {"near": np.zeros(2)}

    def render(self):
        return np.zeros((8, 16, 3), np.uint8)


class Far(Walk):
    observation_space = spaces.Box(-3.0, 3.0, (1,), np.float32)


class Even(Walk):
    def step(self, action):
        return (*super().step(action)[:2], False, self.steps == 20, self.info())


class Double(Walk):
    def shown(self):
        return np.array([self.place])


class Lucky(Walk):
    def step(self, action):
        observation, reward, *ends, info = super().step(action)
        return observation, reward + random.random(), *ends, info


class Unfinite(Walk):
    def step(self, action):
        observation, reward, *ends, info = super().step(action)
        return observation, reward if self.steps < 15 else np.inf, *ends, info


class Fading(Walk):
    def step(self, action):
        self.steps += 1
        return self.shown(), 0.0, self.steps == 9, False, self.info()

    def info(self):
        return {"near": np.zeros(self.steps)}


class Single(Walk):
    """Its space has one value, of which Gymnasium's checker warns."""

    observation_space = spaces.Box(1.0, 1.0, (1,), np.float32)

    def shown(self):
        return np.ones(1, np.float32)


class Leaving(Walk):
    def step(self, action):
        raise SystemExit(3)


class Reusing(Walk):
    """Trains as any other, since lanes copy observations; Gymnasium's checker refuses it."""

    shared = np.zeros(1, np.float32)

    def shown(self):
        self.shared[:] = self.place
        return self.shared


class Endless(Walk):
    def step(self, action):
        return *super().step(action)[:2], False, False, {}

    def shown(self):
        return np.clip(super().shown(), -30.0, 30.0)


class Flat(Walk):
    def render(self):
        return np.zeros((8, 16), np.uint8)


class Grey(Walk):
    """Shows images without channels, and masks as other libraries take them."""

    observation_space = spaces.Box(0, 255, (16, 16), np.uint8)

    def shown(self):
        return np.zeros((16, 16), np.uint8)

    def action_masks(self):
        return np.ones(2, np.bool_)


class Numbered(Walk):
    def step(self, action):
        observation, reward, terminated, truncated, info = super().step(action)
        return observation, reward, int(terminated), truncated, info


class Working(Walk):
    """Has a thread, which ends in or a moment after close(), or never."""

    def __init__(self, ends=None):
        super().__init__()
        self.ended = threading.Event()
        wait = {None: IS_OVER.wait, "soon": lambda: self.ended.wait() and time.sleep(0.1)}[ends]
        threading.Thread(target=wait, name="physics", daemon=True).start()

    def close(self):
        self.ended.set()


IS_OVER = threading.Event()


class Masked(Walk):
    def reset(self, *, seed=None, options=None):
        return super().reset(seed=seed)[0], self.info()

    def step(self, action):
        assert action == self.steps % 2
        return super().step(action)

    def info(self):
        return {"action_mask": np.arange(2) == self.steps % 2}


@pytest.fixture(autouse=True)
def few_steps(monkeypatch):
    monkeypatch.setattr(contract, "STEPS", 120)


def found(env, **kwargs):
    return {check.name: check for check in check_contract(EnvSpec.resolve(env, **kwargs))}


@pytest.mark.parametrize("kwargs", [{}, {"env_kwargs": {"render_mode": "rgb_array"}}])
def test_a_sound_environment_has_no_finding(kwargs):
    checks = found(Walk, **kwargs)
    assert [name for name, check in checks.items() if check.status != "ok"] == []
    assert "truncated" in checks["time limit"].found and "16 x 8" in checks["rendering"].found
    assert "120 steps" in checks["seeds"].found and "120 steps" in checks["episodes"].found


@pytest.mark.parametrize(
    ("env", "name", "status", "words"),
    [
        (Far, "observations", "fail", "expected a value within [-3, 3]"),
        (Double, "observations", "warn", "dtype float64, expected float32"),
        (Lucky, "seeds", "fail", "the reward of step 1 differs"),
        (Unfinite, "episodes", "fail", "expected a finite float32 reward, found inf"),
        (Fading, "time limit", "warn", "every episode terminated after 9 steps"),
        (Fading, "infos", "warn", "'near' of shape (1,) has shape (2,) in step 2"),
        (Fading, "rewards", "warn", "none in 120 steps"),
        (Endless, "time limit", "warn", "none of 120 steps ended an episode, and no time limit is declared"),
        (Flat, "rendering", "fail", "found uint8 of shape (8, 16)"),
        (Numbered, "ends", "warn", "terminated in step 1 is a int: 0"),
        (Grey, "encoder", "warn", "flattens uint8 (16, 16) within [0, 255] for an mlp"),
        (Grey, "mask", "warn", "action_masks() is not called"),
        (Double, "gymnasium", "warn", "not within the observation space"),
        (Leaving, "gymnasium", "warn", "SystemExit: 3"),
        (Leaving, "episodes", "fail", "SystemExit: 3"),
        (Reusing, "gymnasium", "warn", "share an object"),
    ],
)
def test_a_broken_part_of_the_contract_is_named_with_advice(env, name, status, words):
    check = found(env)[name]
    assert (check.status, words in check.found) == (status, True), check
    assert check.advice


def test_threads_that_close_does_not_end_are_named():
    try:
        check = found(Working)["threads"]
        assert (check.status, check.found) == ("warn", "still running after close(): physics")
        assert "threads" not in found(Working, env_kwargs={"ends": "soon"}), "threads of others are not its own"
    finally:
        IS_OVER.set()


def test_what_only_gymnasiums_checker_refuses_is_no_blocker():
    assert {check.status for name, check in found(Reusing).items() if name != "gymnasium"} == {"ok"}


@pytest.mark.parametrize(("env", "advice"), [(Far, "widen the bounds"), (Double, "training converts it; for other")])
def test_the_advice_is_that_of_the_fault(env, advice):
    assert found(env)["observations"].advice.startswith(advice)


def test_episodes_of_one_length_have_one_number():
    assert found(Even)["time limit"].found.startswith("5 episodes of 20 steps: 0 terminated, 5 truncated")


def test_a_note_of_gymnasiums_checker_has_neither_colours_nor_level():
    note = found(Single)["gymnasium"]
    assert (note.status, note.found) == ("warn", "A Box observation space maximum and minimum values are equal.")
    assert "it trains" not in note.advice


@pytest.mark.parametrize("words", ["--seconds -1", "--seconds nan", "--seconds inf", "--timeout 0", "--timeout nan"])
def test_a_time_that_is_none_is_refused(words, capsys):
    assert main(["doctor", "--env", "CartPole-v1", *words.split()]) == 2
    assert f"{words} is not a legal time: give a finite number of seconds" in capsys.readouterr().err


def test_every_limit_of_settings_has_a_reason():
    capacity = dataclasses.replace(CAPACITY, takes_turns=True, policy_threads=1)
    assert limits(COSTS, capacity).keys() == environment._BECAUSE.keys()


def test_masks_several_agents_and_vector_environments_are_played_by_their_rules():
    masked, games = found(Masked), found(TwoSides)
    assert {check.status for check in masked.values()} == {"ok"} and "not run" in masked["gymnasium"].found
    assert {check.status for check in games.values()} == {"ok"}
    assert "the same 120 steps" in games["seeds"].found and games["spaces"].advice.startswith("agents with different")
    vector = found("CartPole-v1", vectorize="vector")
    assert {check.status for check in vector.values()} == {"ok"} and "gymnasium" not in vector


def test_a_time_limit_of_a_wrapper_counts_as_declared():
    assert "the time limit is 500" in found("CartPole-v1")["time limit"].found


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.timeout(120)
def test_the_command_ends_with_one_where_the_contract_is_broken_and_prints_json(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "walk.py").write_text(
        "import os\nimport time\nfrom tests.test_environment_doctor import Far, Walk\n"
        "def loose(env):\n    env.observation_space = Walk.observation_space\n    return env\n"
        "class Deadly(Walk):\n    def step(self, action):\n        os._exit(3)\n"
        "class Stuck(Walk):\n    def step(self, action):\n        time.sleep(600)\n"
    )
    assert main(["doctor", "--env", "walk.py:Far", "--seconds", "0", "--json"]) == 1
    checks = {check["name"]: check for check in json.loads(capsys.readouterr().out)}
    assert checks["observations"]["status"] == "fail" and checks["observations"]["advice"]
    assert main(["doctor", "--env", "walk.py:Far", "--wrapper", "walk.py:loose", "--seconds", "0"]) == 0
    assert capsys.readouterr().out.endswith("the environment keeps its contract\n")
    assert main(["doctor", "--env", "walk.py:Deadly"]) == 1
    found = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("fail"))
    assert found.split()[1] == "gymnasium" and "ended with exit status 3" in found and "failed in make" not in found
    assert main(["doctor", "--env", "walk.py:Stuck", "--timeout", "3"]) == 1
    assert "the process that made it to inspect it gave no answer within 3 s" in capsys.readouterr().out
    assert main(["doctor", "--env", "CartPol-v1"]) == 2
    assert "Did you mean" in capsys.readouterr().err
    assert main(["doctor", "--wrapper", "walk.py:loose"]) == 2


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_speed_of_lanes_cores_and_a_training_is_measured_with_what_limits_it(capfd, monkeypatch):
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "XDG_RUNTIME_DIR"):
        monkeypatch.delenv(name, raising=False)
    assert main(["doctor", "--env", "CartPole-v1", "--seconds", "3"]) == 0
    out, errors = capfd.readouterr()
    assert "XDG_RUNTIME_DIR" not in errors  # SDL looks for no display
    for words in ("steps/s of 8 lanes in one process; a bare loop makes", "us each", "ppo with its defaults learns"):
        assert words in out
    assert any(f"{role}, with" in out for role in ("the simulator", "inference", "the learner"))

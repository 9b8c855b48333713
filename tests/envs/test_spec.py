"""The environment that a user names is found, or refused with help, and travels to other processes."""

from __future__ import annotations

import functools
import importlib.util
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import SyncVectorEnv
from gymnasium.wrappers import FrameStackObservation

from penstock.envs import EnvironmentFailure, EnvSpec, UnknownEnvironmentError, make_env, make_lanes, probe
from penstock.envs.failures import EnvironmentUsageError
from tests.envs.counting import CountingEnv, counting_vector


def test_a_gymnasium_id_is_made_once_per_lane_without_the_wrappers_that_check() -> None:
    lanes = make_env("CartPole-v1", 3)
    assert lanes.num_lanes == 3 and lanes.action.num_actions == 2 and lanes.observation.shape == (4,)
    assert str(lanes._envs[0]) == "<TimeLimit<CartPoleEnv<CartPole-v1>>>"  # type: ignore[attr-defined]
    lanes.close()


def test_a_registered_time_limit_truncates_and_env_kwargs_replace_it() -> None:
    for kwargs, length in (({}, 200), ({"max_episode_steps": 7}, 7)):
        lanes = make_env("Pendulum-v1", env_kwargs=kwargs)
        lanes.reset()
        for _ in range(length):
            assert not lanes.truncated[0]
            lanes.step(np.zeros((1, 1), np.float32))
        assert lanes.truncated[0] and lanes.take_episodes()[0].length == length
        lanes.close()


def test_env_kwargs_reach_the_environment() -> None:
    assert probe(EnvSpec.resolve("FrozenLake-v1", {"map_name": "8x8"}))[0].num_values == 64
    lanes = make_env(CountingEnv, env_kwargs={"tag": 5})
    lanes.reset()
    column = np.zeros((1, 3), np.float32)
    lanes.write_observations(column, np.array([0]))
    assert column[0, 0] == 5


def test_callables_classes_and_partials_are_environments_too() -> None:
    def counting(tag: int = 3) -> gymnasium.Env:
        return CountingEnv(tag)

    for env, name in (
        (CountingEnv, "CountingEnv"),
        (counting, "counting"),
        (functools.partial(CountingEnv, 4), "CountingEnv"),
        (lambda: CountingEnv(), "lambda"),
    ):
        spec = EnvSpec.resolve(env)
        assert spec.name == name
        lanes = make_lanes(pickle.loads(pickle.dumps(spec)), 2)
        assert lanes.observation.shape == (3,)
        lanes.close()


def test_a_class_is_found_by_its_module_and_by_its_file(tmp_path: Path) -> None:
    assert EnvSpec.resolve("tests.envs.counting:CountingEnv").name == "CountingEnv"
    (tmp_path / "neighbour.py").write_text("LENGTH = 3\n")
    source = Path(__file__).with_name("counting.py").read_text()
    subclass = "import neighbour\n\nclass Mine(CountingEnv):\n    size = neighbour.LENGTH\n"
    (tmp_path / "my_env.py").write_text(f"{source}\n{subclass}")
    spec = EnvSpec.resolve(f"{tmp_path}/my_env.py:Mine")
    assert spec.name == "Mine" and probe(spec)[0].shape == (3,)
    # A file travels by value: a process that knows nothing of it can make its classes.
    assert in_another_process(spec, "print(probe(spec)[0].shape)") == "(3,)"


@pytest.fixture
def registry() -> Iterator[None]:
    """What a test registers is forgotten after it."""
    before = dict(gymnasium.registry)
    yield
    gymnasium.registry.clear()
    gymnasium.registry.update(before)


@pytest.mark.usefixtures("registry")
def test_an_environment_can_make_what_its_file_or_a_package_has_registered(tmp_path: Path) -> None:
    (tmp_path / "their_package.py").write_text(
        "import gymnasium\ngymnasium.register('Theirs-v0', 'gymnasium.envs.classic_control:CartPoleEnv')\n"
    )
    (tmp_path / "maker.py").write_text(
        "import gymnasium, their_package\n"
        "def mine(): return gymnasium.make('Theirs-v0')\n"
        "gymnasium.register('Mine-v0', lambda: gymnasium.make('Theirs-v0').unwrapped)\n"
    )
    for name in (f"{tmp_path}/maker.py:mine", "Mine-v0"):
        spec = EnvSpec.resolve(name)
        assert in_another_process(spec, "print(probe(spec)[0].shape)") == "(4,)"


@pytest.mark.usefixtures("registry")
def test_a_registration_that_cannot_travel_or_not_arrive_stops_no_other(tmp_path: Path) -> None:
    (tmp_path / "not_found_there.py").write_text("import gymnasium\nclass Theirs(gymnasium.Env): pass\n")
    place = importlib.util.spec_from_file_location("not_found_there", tmp_path / "not_found_there.py")
    assert place is not None and place.loader is not None
    module = importlib.util.module_from_spec(place)
    sys.modules[module.__name__] = module
    place.loader.exec_module(module)
    gymnasium.register("Arrives-not-v0", module.Theirs)
    gymnasium.register("Travels-not-v0", "nobody:Knows", kwargs={"lock": threading.Lock()})
    spec = EnvSpec.resolve(lambda: gymnasium.make("CartPole-v1"))
    del sys.modules[module.__name__]
    assert in_another_process(spec, "print(probe(spec)[0].shape)") == "(4,)"


def test_names_can_stand_in_file_names() -> None:
    assert EnvSpec.resolve("CartPole-v1").name == "CartPole-v1"
    assert EnvSpec.resolve("phys2d/CartPole-v1").name == "phys2d-CartPole-v1"


@pytest.mark.timeout(60)
def test_an_environment_known_only_to_the_users_script_reaches_a_process_that_never_ran_it(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import sys, gymnasium, pickle\n"
        "import numpy as np\n"
        "from penstock.envs import EnvSpec\n"
        "SIZE = 5\n"
        "class Mine(gymnasium.Env):\n"
        "    observation_space = gymnasium.spaces.Box(-1, 1, (SIZE,), np.float32)\n"
        "    action_space = gymnasium.spaces.Discrete(2)\n"
        "    def reset(self, *, seed=None, options=None): return np.zeros(SIZE, np.float32), {}\n"
        "    def step(self, action): return np.zeros(SIZE, np.float32), 1.0, False, False, {}\n"
        "gymnasium.register('Mine-v3', Mine, max_episode_steps=4)\n"
        "specs = [EnvSpec.resolve(env) for env in ('Mine-v3', Mine, lambda: Mine())]\n"
        "sys.stdout.buffer.write(pickle.dumps(specs))\n"
    )
    answer = subprocess.run([sys.executable, str(script)], check=True, capture_output=True, timeout=30, cwd=Path.cwd(),
                            env={"PYTHONPATH": ":".join(filter(None, sys.path))})  # fmt: skip
    specs = pickle.loads(answer.stdout)
    assert [spec.name for spec in specs] == ["Mine-v3", "Mine", "lambda"]
    assert "Mine-v3" not in gymnasium.registry
    for spec in specs:
        lanes = make_lanes(spec, 1)
        lanes.reset()
        for _ in range(4):
            lanes.step(np.zeros(1, np.int64))
        assert lanes.observation.shape == (5,)
        assert lanes.truncated[0] == (spec.name == "Mine-v3")
        lanes.close()


def test_gymnasiums_own_module_syntax_imports_the_module_that_registers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "registering.py").write_text(
        "import gymnasium\ngymnasium.register('Registered-v0', 'gymnasium.envs.classic_control.pendulum:PendulumEnv')\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    spec = EnvSpec.resolve("registering:Registered-v0")
    assert (spec.name, spec.kind) == ("Registered-v0", "gymnasium")
    assert probe(spec)[0].shape == (3,)
    del gymnasium.registry["Registered-v0"]


@pytest.mark.parametrize(
    ("env", "message"),
    [
        ("CartPole-v7", "'CartPole-v7' is not a registered Gymnasium id. Did you mean 'CartPole-v1'"),
        ("cartpole", "Did you mean 'CartPole-v"),
        ("ALE/Pnog-v5", "Did you mean 'ALE/Pong-v5'"),
        ("Wholly-Unheard-Of", "An id that a package registers when it is imported is written 'package:Id'"),
        ("no_such_module:Env", "there is no module 'no_such_module'"),
        ("tests.no_such_module:Env", "there is no module 'tests.no_such_module'"),
        ("tests.envs.counting:CountinEnv", "has no 'CountinEnv', and registers no such id. Did you mean 'CountingEnv'"),
        ("no_such_file.py:Env", "there is no file 'no_such_file.py'"),
    ],
)
def test_an_unknown_environment_is_refused_with_the_closest_names(env: str, message: str) -> None:
    with pytest.raises(UnknownEnvironmentError) as caught:
        EnvSpec.resolve(env)
    assert message in str(caught.value)


def test_environments_of_envpool_say_what_to_install_and_how_they_are_written(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UnknownEnvironmentError, match="an environment of EnvPool is written 'EnvPool/CartPole-v1'"):
        EnvSpec.resolve("envpool:CartPole-v1")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UnknownEnvironmentError, match=r"need the package envpool: pip install 'penstock\[envpool\]'"):
        EnvSpec.resolve("EnvPool/CartPole-v1")


def test_ids_that_a_package_registers_by_an_entry_point_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def register() -> None:
        gymnasium.register("Plugged/Counting-v0", entry_point="tests.envs.counting:CountingEnv")

    class Plugin:
        def load(self) -> Callable[[], None]:
            return register

    def entry_points(group: str, name: str) -> list[Plugin]:
        return [Plugin()] if (group, name) == ("gymnasium.envs", "Plugged") else []

    monkeypatch.setattr("penstock.envs.spec.entry_points", entry_points)
    try:
        assert EnvSpec.resolve("Plugged/Counting-v0").name == "Plugged-Counting-v0"
    finally:
        gymnasium.registry.pop("Plugged/Counting-v0", None)


def test_an_import_error_inside_the_users_module_is_shown_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "importing.py").write_text("import missing_dependency\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="missing_dependency"):
        EnvSpec.resolve("importing:Env")


def test_an_instance_is_refused() -> None:
    with pytest.raises(TypeError, match="is a CountingEnv: use an id, an environment class, or a callable"):
        EnvSpec.resolve(CountingEnv())  # type: ignore[arg-type]


def test_an_unknown_way_to_vectorize_is_refused() -> None:
    with pytest.raises(ValueError, match="vectorize='async' is unknown: use one of make, vector"):
        EnvSpec.resolve("CartPole-v1", vectorize="async")  # type: ignore[arg-type]


def test_arguments_that_do_not_fit_are_refused_before_anything_is_made() -> None:
    with pytest.raises(ValueError, match=r"env_kwargs do not fit CountingEnv\(.*unexpected keyword argument 'length'"):
        EnvSpec.resolve(CountingEnv, {"length": 3})
    with pytest.raises(ValueError, match="unexpected keyword argument 'num_envs'"):
        EnvSpec.resolve(CountingEnv, vectorize="vector")


def test_what_cannot_be_pickled_is_refused_with_advice() -> None:
    lock = threading.Lock()
    with pytest.raises(ValueError, match=r"lambda.*cannot travel to worker processes: .*lock.*inside the callable"):
        EnvSpec.resolve(lambda: CountingEnv() if lock else None)


def test_a_vector_environment_comes_from_its_own_class_or_from_a_callable() -> None:
    lanes = make_env("CartPole-v1", 4, vectorize="vector")
    assert type(lanes._env).__name__ == "CartPoleVectorEnv"  # type: ignore[attr-defined]
    lanes.close()
    lanes = make_env("Pendulum-v1", 4, vectorize="vector")
    assert isinstance(lanes._env, SyncVectorEnv)  # type: ignore[attr-defined]
    lanes.close()

    def vector(num_envs: int, length: int) -> gymnasium.vector.VectorEnv:
        return counting_vector([[(length, "terminated")]] * num_envs, gymnasium.vector.AutoresetMode.SAME_STEP)

    lanes = make_env(vector, 3, vectorize="vector", env_kwargs={"length": 2})
    lanes.reset()
    for _ in range(2):
        lanes.step(np.zeros(3, np.int64))
    assert lanes.terminated.all() and lanes.first.all()
    lanes.close()


@pytest.mark.parametrize(
    ("env", "vectorize", "message"),
    [
        (lambda: counting_vector([[(1, "terminated")]], gymnasium.vector.AutoresetMode.SAME_STEP), "make",
         "pass vectorize='vector'"),
        (lambda: object(), "make", "expected a gymnasium.Env, found an object"),
        (lambda num_envs: CountingEnv(), "vector", "use vectorize='make' for single environments"),
        (lambda num_envs: counting_vector([[(1, "terminated")]], gymnasium.vector.AutoresetMode.SAME_STEP), "vector",
         "expected a vector environment with num_envs=2, found num_envs=1"),
    ],
)  # fmt: skip
def test_a_callable_that_returns_something_else_is_refused(env: object, vectorize: str, message: str) -> None:
    with pytest.raises(EnvironmentUsageError, match=message):
        make_env(env, 2, vectorize=vectorize)  # type: ignore[arg-type]


def test_environments_made_before_one_failed_are_closed() -> None:
    made: list[CountingEnv] = []

    def failing() -> gymnasium.Env:
        if len(made) == 2:
            raise OSError("no room for another")
        made.append(CountingEnv())
        return made[-1]

    spec = EnvSpec.resolve(failing)
    # The payload holds a copy of the list; make from the original to see it.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(EnvSpec, "unpack", lambda self: (failing, {}))
        with pytest.raises(EnvironmentFailure, match="no room for another") as caught:
            make_lanes(spec, 4, first_lane=8)
    assert (caught.value.phase, caught.value.lane, caught.value.step) == ("make", 10, 0)
    assert [env.is_closed for env in made] == [True, True]


class Pair(gymnasium.ObservationWrapper):
    """Shows what it wraps beside a bit."""

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env)
        self.observation_space = gymnasium.spaces.Tuple([env.observation_space, gymnasium.spaces.MultiBinary(1)])

    def observation(self, observation: Any) -> Any:
        return observation, np.zeros(1, np.int8)


def test_stacks_of_frames_are_distinguished_from_rows_of_bytes_that_hold_stacks() -> None:
    assert probe(EnvSpec.resolve(lambda: FrameStackObservation(CountingEnv(), 4)))[0].is_stacked
    observation, *_ = probe(EnvSpec.resolve(lambda: FrameStackObservation(Pair(CountingEnv()), 4)))
    assert [part.spec.shape for part in observation.parts] == [(4, 3), (4, 1)] and not observation.is_stacked


def test_lanes_need_at_least_one_lane() -> None:
    with pytest.raises(ValueError, match="num_envs=0: use at least 1"):
        make_env("CartPole-v1", 0)


def in_another_process(spec: EnvSpec, statement: str) -> str:
    program = f"import pickle, sys; from penstock.envs import probe; spec = pickle.load(sys.stdin.buffer); {statement}"
    command = [sys.executable, "-c", program]
    return (
        subprocess.run(command, input=pickle.dumps(spec), check=True, capture_output=True, timeout=30)
        .stdout.decode()
        .strip()
    )


def test_in_the_process_that_resolved_it_the_objects_that_were_given_are_used_and_elsewhere_copies() -> None:
    made: list[int] = []

    class Counted(CountingEnv):
        def __init__(self, made: list[int]) -> None:
            super().__init__()
            made.append(len(made))

    spec = EnvSpec.resolve(Counted, {"made": made})
    make_lanes(spec, 2).close()
    assert made == [0, 1] and spec.unpack() == (Counted, {"made": made})
    travelled = pickle.loads(pickle.dumps(spec))
    assert travelled.given is None and travelled.unpack()[1]["made"] is not made
    make_lanes(travelled, 2).close()
    assert made == [0, 1]


def test_names_of_a_file_that_a_message_leaves_out_are_counted(tmp_path: Path) -> None:
    file = tmp_path / "many.py"
    file.write_text("".join(f"class Quiet{number}:\n    pass\n" for number in range(10)))
    with pytest.raises(UnknownEnvironmentError, match=r"It has Quiet0, .*Quiet7 and 2 more\."):
        EnvSpec.resolve(f"{file}:Nix")

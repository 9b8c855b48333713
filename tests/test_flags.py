"""Every setting is a flag, with its help, its default and its check."""

import re
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, Literal

import pytest

from penstock.algorithms import ALGORITHMS, load_algorithm
from penstock.cli import main
from penstock.config import Config, ConfigError, SegmentConfig, features, restored_config
from penstock.flags import EvalFlags, field_documents, parse_changes, parse_config, parse_flags


@dataclass(frozen=True, kw_only=True)
class TinyConfig(SegmentConfig):
    """Tiny: settings for these tests."""

    gamma: float = 0.5
    """A discount of its own."""
    mode: Literal["slow", "fast"] = "slow"
    """How it goes."""


@dataclass(frozen=True, kw_only=True)
class AnyConfig(SegmentConfig):
    """Settings of which one has any type."""

    extra: Any = None
    """Anything."""


def parse(*args: str) -> TinyConfig:
    return parse_config(TinyConfig, args, prog="penstock train tiny")


def preset(path, text: str) -> str:
    path.write_text(text)
    return str(path)


def test_nodes_are_a_number_a_text_or_a_json_object_of_counts():
    for given, found in (("4", 4), ("1e1", 10), ("2:64", "2:64"), ("all", "all"), ('{"sampler": 3}', {"sampler": 3})):
        assert parse("--env", "CartPole-v1", "--backend", "ray", "--nodes", given).nodes == found
    several = ["--env", "CartPole-v1", "--backend", "ray", "--num-learners", "2", "--learner-nodes"]
    assert parse(*several, '{"gpu_box": 1}').learner_nodes == {"gpu_box": 1}
    with pytest.raises(ConfigError, match="learner_nodes='some' is not legal"):
        parse(*several, "some")
    with pytest.raises(SystemExit):
        parse(*several, "{sampler: 1}")


@pytest.mark.parametrize(
    ("given", "found"),
    [("3", 3), ("0.5", 0.5), ("true", True), ("None", None), ("null", None), ("fast", "fast"), ("2:64", "2:64"),
     ('{"a": [1, "b"]}', {"a": [1, "b"]})],
)  # fmt: skip
def test_a_setting_of_any_type_is_json_or_a_text(given, found):
    config = parse_config(AnyConfig, ["--env", "x", "--extra", given], prog="p")
    assert config.extra == found and type(config.extra) is type(found)
    assert parse_changes(AnyConfig, config.to_json(), ["--extra", "[7]"], prog="p") == {"extra": [7]}


def test_json_that_cannot_be_read_is_refused(capsys):
    with pytest.raises(SystemExit):
        parse_config(AnyConfig, ["--env", "x", "--extra", "[1, 2"], prog="p")
    assert "Error parsing --extra" in capsys.readouterr().err


def test_flags_become_settings_of_the_right_types():
    config = parse(
        "--env", "CartPole-v1", "--num-workers", "2", "--learning-rate", "1e-3", "--hidden-sizes", "32", "16",
        "--no-normalize-observations", "--shared-encoder", "True", "--run-dir", "None", "--target-return", "475",
        "--mode", "fast", "--num_envs_per_worker", "4",
    )  # fmt: skip
    assert config.env == "CartPole-v1"
    assert config.num_workers == 2
    assert config.learning_rate == 1e-3
    assert config.hidden_sizes == (32, 16)
    assert config.normalize_observations is False
    assert config.shared_encoder is True
    assert config.run_dir is None
    assert config.target_return == 475.0
    assert config.mode == "fast"
    assert config.num_envs_per_worker == 4


def test_a_flag_not_given_has_the_default_of_its_config():
    assert parse("--env", "x") == TinyConfig(env="x")


def test_settings_of_the_environment_are_read_as_json_or_else_as_text():
    config = parse("--env", "x", "--env-kwargs", "frameskip=4", "human=true", "name=a=b", "size=[1,2]", "none=null")
    assert config.env_kwargs == {"frameskip": 4, "human": True, "name": "a=b", "size": [1, 2], "none": None}


def test_a_setting_of_the_environment_without_a_value_is_refused(capsys):
    with pytest.raises(SystemExit) as exit_:
        parse("--env", "x", "--env-kwargs", "human")
    assert exit_.value.code == 2
    assert "'human' is not KEY=VALUE" in " ".join(capsys.readouterr().err.split())


def test_help_shows_every_setting_with_its_document_and_default(capsys):
    with pytest.raises(SystemExit) as exit_:
        parse("--help")
    assert exit_.value.code == 0
    text = " ".join(capsys.readouterr().out.replace("│", " ").split())
    for field in fields(TinyConfig):
        assert f"--{field.name.replace('_', '-')} " in text or f"--{field.name.replace('_', '-')}," in text
    assert "A discount of its own. (default: 0.5)" in text
    assert "How it goes. (default: slow)" in text
    assert "{slow,fast}" in text
    assert "Tiny: settings for these tests." in text


@pytest.mark.parametrize("name", ALGORITHMS)
def test_help_has_no_line_breaks_but_those_of_the_terminal(name):
    assert not any("\n" in document for document in field_documents(load_algorithm(name).Config).values())


def test_help_shows_every_setting_once_under_its_group(capsys):
    with pytest.raises(SystemExit):
        parse("--help")
    shown = re.findall(r"^\W*(\w[\w ]*) options\b|^\W{1,3}--([a-z][\w-]*)", capsys.readouterr().out, re.MULTILINE)
    titles, found = [title for title, _ in shown if title], {}
    assert titles == [
        "most used", "environment", "several agents", "population", "machine", "network", "learning", "budget and run",
    ]  # fmt: skip
    group = ""
    for title, flag in shown:
        group = title or group
        if flag:
            assert flag not in found, f"{flag} is shown twice"
            found[flag] = group
    found.pop("preset")
    assert set(found) == {field.name.replace("_", "-") for field in fields(TinyConfig)}
    assert found["env-kwargs"] == "environment" and found["num-workers"] == "most used"
    assert found["memory"] == "network" and found["max-seconds"] == "budget and run"
    assert found["mode"] == "learning", "an algorithm's own"


def test_help_of_training_begins_with_the_ten_flags_that_are_used_most(capsys):
    assert main(["train", "--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[2:12]] == [
        "--env", "--preset", "--num-workers", "--num-envs-per-worker", "--device", "--seed", "--learning-rate",
        "--total-steps", "--target-return", "--run-dir",
    ]  # fmt: skip
    assert all(len(line.split()) > 2 and len(line) <= 120 for line in lines[2:12])
    assert lines[13].split()[0] == "appo", "the algorithms follow"


def test_every_setting_that_is_put_into_a_group_is_one_and_in_no_other():
    known = {field.name for name in ALGORITHMS for field in fields(load_algorithm(name).Config)}
    placed = [setting for settings in features._GROUPS.values() for setting in settings]
    assert set(placed) <= known and len(placed) == len(set(placed))


def test_what_all_algorithms_share_is_put_into_a_group_and_little_of_it_into_that_of_learning():
    learning = {field.name for field in features.grouped(Config)[features.LEARNING]}
    assert learning == {"gamma", "learning_rate_schedule"}, "a new one is put into config/features.py"


@pytest.mark.parametrize(
    ("words", "expected"),
    [("--dueling", True), ("--dueling true", True), ("--dueling=True", True), ("--dueling FALSE", False),
     ("--dueling=false", False), ("--no-dueling", False), ("--normalize_returns=true --dueling --double", True)],
)  # fmt: skip
def test_a_switch_may_have_a_value(words, expected):
    config = parse_config(load_algorithm("dqn").Config, ["--env", "none", *words.split()], "penstock train dqn")
    assert config.dueling is expected


def test_a_switch_of_another_command_may_have_a_value_too():
    assert parse_flags(EvalFlags, ["runs/x", "--sampled=true"], "penstock eval").sampled


def test_a_whole_number_may_be_written_with_an_exponent(capsys):
    config = parse("--env", "x", "--total-steps", "1e5", "--num-workers", "2e0", "--hidden-sizes", "1e1", "1_6")
    assert (config.total_steps, config.num_workers, config.hidden_sizes) == (100_000, 2, (10, 16))
    assert parse_flags(EvalFlags, ["runs/x", "--episodes", "2e1"], prog="p").episodes == 20
    assert parse_changes(TinyConfig, {"env": "x"}, ["--total-steps", "4e5"], prog="p") == {"total_steps": 400_000}
    with pytest.raises(SystemExit):
        parse("--env", "x", "--total-steps", "1.5")
    assert "1.5 is not a whole number" in capsys.readouterr().err


def test_all_words_of_a_setting_that_cannot_change_are_shown():
    with pytest.raises(ConfigError, match="hidden_sizes=32 16 is not legal here"):
        parse_changes(TinyConfig, {"env": "x"}, ["--hidden-sizes", "32", "16", "--gamma", "0.9"], prog="p")


def test_a_setting_younger_than_the_run_is_shown_with_the_value_that_the_run_has():
    saved = {"env": "CartPole-v1"}  # by a version without normalize_returns
    dqn = load_algorithm("dqn").Config
    with pytest.raises(ConfigError, match="normalize_returns cannot change within a run, and is False in this one"):
        parse_changes(dqn, saved, ["--normalize-returns"], prog="penstock resume RUN")
    assert restored_config(dqn, saved, {"total_steps": 7_000}).normalize_returns is False


@pytest.mark.parametrize("value", ["64,64", "[64,64]", "64;64"])
def test_sizes_with_something_else_than_spaces_between_are_answered_with_how_to_write_them(value, capsys):
    with pytest.raises(SystemExit) as exit_:
        parse("--env", "x", "--hidden-sizes", value)
    assert exit_.value.code == 2
    shown = re.sub(r"[\s│]+", " ", capsys.readouterr().err)
    assert f"{value!r} is not legal: write whole numbers separated by spaces, e.g. 64 64" in shown


def test_a_flag_of_another_library_is_answered_with_ours():
    with pytest.raises(ConfigError, match=r"unknown setting --ent-coef: here it is entropy_coef"):
        parse("--env", "x", "--ent-coef=0.1")


def test_documents_are_those_of_the_nearest_class():
    documents = field_documents(TinyConfig)
    assert documents["gamma"] == "A discount of its own."
    assert documents["value_coef"] == "Weight of the value loss."
    assert set(documents) == {field.name for field in fields(TinyConfig)}


def test_a_mistyped_flag_is_answered_with_the_closest(capsys):
    with pytest.raises(SystemExit) as exit_:
        parse("--env", "x", "--learning-rat", "0.1")
    assert exit_.value.code == 2
    assert "--learning-rate" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--mode", "fas"], "mode='fas' is not legal; did you mean 'fast'?.*'slow', 'fast'"),
        (["--gamma", "2"], "gamma=2.0 is not legal: gamma must be from 0 to 1"),
        (["--num-envs-per-worker", "3", "--num-groups", "2"], "cannot be split"),
    ],
)
def test_a_value_that_is_not_legal_gets_the_message_that_python_users_see(flags, message):
    with pytest.raises(ConfigError, match=message):
        parse("--env", "x", *flags)


@pytest.mark.parametrize("flags", [["--num-workers", "many"], ["--gamma"], ["--hidden-sizes", "a"], []])
def test_a_value_that_cannot_be_read_exits_with_wrong_usage(flags):
    with pytest.raises(SystemExit) as exit_:
        parse(*(["--env", "x", *flags] if flags else []))
    assert exit_.value.code == 2


@pytest.mark.parametrize("form", ["--preset={}", "--preset {}"])
def test_a_preset_gives_other_defaults_and_flags_win(tmp_path, form):
    path = preset(tmp_path / "mine.toml", "[tiny]\ngamma = 0.25\nmode = 'fast'\nhidden_sizes = [8]\nlearning_rate = 1")
    config = parse("--env", "x", *form.format(path).split(), "--mode", "slow")
    assert (config.gamma, config.mode, config.hidden_sizes, config.learning_rate) == (0.25, "slow", (8,), 1.0)


def test_a_preset_may_name_the_environment(tmp_path):
    assert parse("--preset", preset(tmp_path / "mine.toml", "[tiny]\nenv = 'CartPole-v1'")).env == "CartPole-v1"


def test_a_preset_with_an_unknown_setting_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="unknown setting 'gama'; did you mean 'gamma'"):
        parse("--env", "x", "--preset", preset(tmp_path / "mine.toml", "[tiny]\ngama = 0.25"))


@pytest.mark.parametrize(
    ("algorithm", "name", "message"),
    [
        ("sac", "atari", r"no table \[sac\]: its tables are a2c, .*; presets for sac are .*mujoco"),
        ("a3c", "pendulum", r"no table \[a3c\]: its tables are .*; presets for a3c are atari"),
        ("sac", "mine.toml", r"no table \[sac\]: it has no tables; write \[sac\] above the settings"),
    ],
)
def test_a_preset_without_a_table_for_the_algorithm_says_which_has_one(algorithm, name, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    preset(tmp_path / "mine.toml", "gamma = 0.9")
    with pytest.raises(ConfigError, match=message):
        parse_config(load_algorithm(algorithm).Config, ["--env", "x", "--preset", name], prog="p")


def test_only_python_can_give_callables():
    @dataclass(frozen=True, kw_only=True)
    class CallableConfig(Config):
        """Has fields that no flag can express."""

        schedule: str | Callable[..., Any] | None = None

    assert parse_config(CallableConfig, ["--env", "x", "--schedule", "linear"], prog="p").schedule == "linear"


def test_opponents_are_named_one_after_the_other():
    config = parse("--env", "CartPole-v1", "--eval-against", "random", "best", "players.py:First")
    assert config.eval_against == ("random", "best", "players.py:First")

"""Settings of algorithms that learn from replay: illegal ones are refused with the field and the remedy."""

import math

import pytest

from penstock.algorithms.apex import ApeXConfig
from penstock.algorithms.apex_dpg import ApeXDPGConfig
from penstock.algorithms.crossq import CrossQConfig
from penstock.algorithms.ddpg import DDPGConfig
from penstock.algorithms.dqn import DQNConfig
from penstock.algorithms.fasttd3 import FastTD3Config
from penstock.algorithms.flashsac import FlashSACConfig
from penstock.algorithms.r2d2 import R2D2Config
from penstock.algorithms.rainbow import RainbowConfig
from penstock.algorithms.sac import SACConfig
from penstock.algorithms.td3 import TD3Config
from penstock.algorithms.tqc import TQCConfig
from penstock.algorithms.xqc import XQCConfig
from penstock.cli import main
from penstock.config import ConfigError, ReplayConfig, make_config

CLASSES = [
    ReplayConfig, DQNConfig, RainbowConfig, ApeXConfig, R2D2Config, DDPGConfig, TD3Config, SACConfig,
    TQCConfig, CrossQConfig, FlashSACConfig, FastTD3Config, XQCConfig, ApeXDPGConfig,
]  # fmt: skip


def made(config_class=ReplayConfig, **settings):
    return make_config(config_class, {"env": "CartPole-v1", "num_workers": 1, **settings})


def refusal(config_class=ReplayConfig, **settings):
    """The message with which settings are refused."""
    with pytest.raises(ConfigError) as error:
        made(config_class, **settings)
    return str(error.value)


@pytest.mark.parametrize("config_class", CLASSES)
@pytest.mark.parametrize("num_workers", [1, 16])
@pytest.mark.parametrize("backend", ["serial", "local"])
def test_the_defaults_are_legal_on_every_machine(config_class, num_workers, backend):
    config = made(config_class, num_workers=num_workers, backend=backend)
    assert config.batch_size <= config.learning_starts <= config.buffer_size


@pytest.mark.parametrize("config_class", CLASSES)
@pytest.mark.parametrize("value", [0, -1])
@pytest.mark.parametrize("name", ["batch_size", "buffer_size", "learning_starts", "n_step", "publish_interval"])
def test_numbers_that_count_something_are_refused_at_zero_and_below(name, value, config_class):
    assert refusal(config_class, **{name: value}) == f"{name}={value} is not legal: {name} must be 1 or more"


@pytest.mark.parametrize("value", [0.0, -1.0, math.inf, -math.inf])
def test_a_ratio_is_finite_and_more_than_zero(value):
    message = f"updates_per_step={value} is not legal: updates_per_step must be more than 0, and finite"
    assert refusal(updates_per_step=value) == message


def test_a_ratio_that_is_no_number_is_refused():
    assert refusal(updates_per_step=math.nan) == "updates_per_step=nan is not legal: updates_per_step must be a number"


def test_a_batch_of_more_than_there_is_at_the_first_update_is_refused():
    assert refusal(batch_size=101, learning_starts=100) == (
        "batch_size=101 is more than the steps stored before the first update: use at most learning_starts=100, or "
        "start later"
    )
    assert made(batch_size=100, learning_starts=100).batch_size == 100


def test_a_start_that_the_buffer_cannot_hold_is_refused():
    assert refusal(learning_starts=1_001, buffer_size=1_000) == (
        "learning_starts=1001 can never be reached: the buffer keeps buffer_size=1000 transitions; use a larger "
        "buffer_size, or start earlier"
    )
    assert made(learning_starts=1_000, buffer_size=1_000).buffer_size == 1_000


def test_a_buffer_too_small_for_what_its_lanes_have_in_hand_is_refused():
    small = {"num_workers": 2, "num_envs_per_worker": 8, "n_step": 3, "batch_size": 4, "learning_starts": 4}
    assert refusal(**small, buffer_size=47) == (
        "buffer_size=47 is too small for 16 lanes (num_workers=2 x num_envs_per_worker=8) of n_step=3: use at least 48"
    )
    assert made(**small, buffer_size=48).num_lanes == 16


def test_a_ratio_that_cannot_be_kept_within_the_slack_is_refused_and_what_is_offered_is_legal():
    settings = {"num_envs_per_worker": 4, "updates_per_step": 1.5}
    message = refusal(**settings, ratio_slack=5)
    assert message.startswith("updates_per_step=1.5 cannot be kept within ratio_slack=5: the 4 lanes of a worker step")
    assert "use ratio_slack=6 or more" in message
    assert made(**settings, ratio_slack=6).slack == 6


@pytest.mark.parametrize("slack", [0, -1])
def test_one_update_of_slack_is_the_least(slack):
    assert "use ratio_slack=1 or more" in refusal(updates_per_step=0.25, ratio_slack=slack)
    assert made(updates_per_step=0.25, ratio_slack=1).slack == 1


def test_the_default_slack_holds_one_step_of_all_lanes_in_order_and_many_in_processes():
    settings = {"num_workers": 4, "num_envs_per_worker": 8, "updates_per_step": 2.0}
    assert made(**settings, backend="serial").slack == 4 * 8 * 2
    assert made(**settings, backend="local").slack == 2 * 32 * 2
    assert made(updates_per_step=0.25, backend="serial").slack == 1
    assert made(updates_per_step=0.25, backend="local").slack == 32


@pytest.mark.parametrize(
    ("settings", "legal"),
    [
        ({"n_step": 1.5}, "n_step must be int, found float"),
        ({"batch_size": None}, "batch_size must be int, found NoneType"),
        ({"updates_per_step": "often"}, "updates_per_step must be float, found str"),
        ({"ratio_slack": 2.5}, "ratio_slack must be int or None, found float"),
        ({"save_replay": 1}, "save_replay must be bool, found int"),
    ],
)
def test_a_value_of_the_wrong_type_is_refused(settings, legal):
    assert legal in refusal(**settings)


def test_what_only_segments_have_is_no_setting_of_replay():
    assert "unknown setting 'segment_length'" in refusal(segment_length=8)
    assert "unknown setting 'num_epochs'" in refusal(num_epochs=2)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--n-step 0", "n_step=0 is not legal: n_step must be 1 or more"),
        ("--batch-size 2000", "batch_size=2000 is more than the steps stored before the first update"),
        ("--updates-per-step nan", "updates_per_step=nan is not legal"),
        ("--updates-per-step inf", "updates_per_step=inf is not legal"),
        ("--num-envs-per-worker 8 --updates-per-step 2 --ratio-slack 4", "cannot be kept within ratio_slack=4"),
        ("--num-workers 1 --learning-starts 200000", "learning_starts=200000 can never be reached"),
    ],
)
def test_on_the_command_line_each_is_one_line_and_exit_code_two(flags, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["train", "dqn", "--env", "CartPole-v1", *flags.split()]) == 2
    out, error = capsys.readouterr()
    assert error.startswith("error: ") and message in error
    assert error.count("\n") == 1 and out == ""
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_would_end_before_it_learns_is_refused():
    message = refusal(total_steps=1_000, learning_starts=1_000, num_workers=1)
    assert message == (
        "nothing would be learned: learning starts after 1000 steps (learning_starts=1000, and 2 in each of 1 lanes), "
        "but total_steps=1000: use more total_steps, or start earlier"
    )
    assert "and 301 in each of 16 lanes" in refusal(
        total_steps=4_000, learning_starts=64, batch_size=4, n_step=300, num_workers=16
    )
    assert made(total_steps=1_001, learning_starts=1_000, num_workers=1).min_steps == 1_000

"""Penstock as its users see it: one import, one call to train, weights in and out."""

import re
import shutil
import subprocess
import sys
import textwrap
import threading
from importlib.metadata import version
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

import penstock
from penstock.algorithms.ppo import PPO
from penstock.config import ConfigError
from penstock.play.evaluation import Evaluation
from penstock.runs.checkpoint import CheckpointError, load_checkpoint
from tests.comparing import identical
from tests.engine.inside import supervisor_of
from tests.self_play.guests import Turns

SETTINGS: dict[str, Any] = {
    "env": "CartPole-v1", "num_workers": 1, "num_envs_per_worker": 4, "segment_length": 8, "batch_size": 16,
    "num_epochs": 1, "hidden_sizes": (8,), "total_steps": 320, "backend": "serial", "eval_interval": 0, "run_dir": None,
}  # fmt: skip
ASYNCHRONOUS = {name: value for name, value in SETTINGS.items() if name != "num_epochs"}


@pytest.fixture
def trainer():
    with penstock.PPO(**SETTINGS) as made:
        yield made


def zeros(weights):
    return {name: torch.zeros_like(tensor) for name, tensor in weights.items()}


def test_importing_penstock_imports_neither_torch_nor_gymnasium_and_its_names_still_complete():
    program = (
        "import sys, penstock\n"
        "names = dir(penstock)\n"
        "assert 'PPO' in names and 'load_policy' in names and names == sorted(names), names\n"
        "heavy = {'torch', 'gymnasium', 'numpy', 'rich'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_every_public_name_is_there_and_any_other_is_an_attribute_error():
    for name in penstock.__all__:
        assert getattr(penstock, name) is not None
    with pytest.raises(AttributeError, match="module 'penstock' has no attribute 'PP0'"):
        penstock.PP0  # noqa: B018


def test_names_of_other_libraries_are_answered_with_those_of_here(trainer):
    for name, hint in {"ppo": "PPO", "apex_dpg": "ApeXDPG", "Load_Policy": "load_policy"}.items():
        with pytest.raises(AttributeError, match=f"'penstock' has no attribute '{name}'; did you mean '{hint}'"):
            getattr(penstock, name)
    asked = {"learn": "train", "predict": r"penstock.load_policy\(run_dir\).act", "load": r"penstock.load_policy\(run"}
    asked["export"] = r"penstock.load_policy\(run_dir\).export\(path\)"
    for owner in (trainer, penstock.PPO, penstock.Trainer):
        for name, hint in asked.items():
            with pytest.raises(AttributeError, match=rf"has no attribute '{name}': here it is {hint}"):
                getattr(owner, name)
        with pytest.raises(AttributeError, match=r"has no attribute 'nothing_like_it'$"):
            owner.nothing_like_it  # noqa: B018


def test_an_algorithm_is_not_derived_from_a_trainer():
    with pytest.raises(TypeError, match=r"Own defines evaluate, loss on a trainer.* penstock\.algorithms\.ppo\.PPO"):
        type("Own", (penstock.PPO,), {"loss": None, "evaluate": None})
    assert issubclass(type("Logging", (penstock.PPO,), {"log": None}), penstock.PPO)


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (lambda loss, metrics: loss, "NoneType"),
        (lambda loss, metrics: (loss.detach(), metrics), r"found shape \(\), gradient False, and dict"),
        (lambda loss, metrics: (loss * torch.ones(2), metrics), r"found shape \(2,\), gradient True"),
        (lambda loss, metrics: (1.0, metrics), "found 1.0, and dict"),
        (lambda loss, metrics: (loss, metrics | {"half": 0.5}), None),
    ],
)
def test_a_loss_is_a_tensor_of_one_number_with_metrics(change, found):
    class Own(PPO):
        def loss(self, batch, policy, value):
            return change(*super().loss(batch, policy, value))

    with penstock.Trainer(Own, **{**SETTINGS, "total_steps": 64}) as made:
        if found is None:
            made.train(quiet=True)
            assert made.status.losses["half"] == 0.5
        else:
            with pytest.raises(RuntimeError, match=rf"Own\.loss\(\) must return \(loss, metrics\): .*{found}"):
                made.train(quiet=True)


@pytest.mark.timeout(120)
def test_ctrl_c_while_a_class_is_imported_comes_after_the_import():
    """Each time after a longer part of the import, in a process that then imports the class again."""
    program = """
        import os, signal, sys, threading, time
        import penstock
        try:
            threading.Timer(float(sys.argv[1]), os.kill, (os.getpid(), signal.SIGINT)).start()
            penstock.PPO
            time.sleep(30)  # the signal ends it
        except KeyboardInterrupt:
            print("interrupted", penstock.PPO.__name__)
        """
    for delay in ("0.3", "0.8"):
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(program), delay], capture_output=True, text=True, timeout=60
        )
        assert (done.returncode, done.stdout) == (0, "interrupted PPO\n"), done.stderr


def test_a_source_tree_that_is_not_built_says_so_and_which_installed_package_it_hides(tmp_path):
    tree, installed = tmp_path / "tree", tmp_path / "site" / "penstock"
    not_source = shutil.ignore_patterns("*.so", "__pycache__")
    shutil.copytree(Path(penstock.__file__).parent, tree / "penstock", ignore=not_source)
    installed.mkdir(parents=True)
    (installed / "_native.so").touch()
    own = f"ImportError: penstock is imported from {tree / 'penstock'}, a source tree whose native core is not built"
    for path, advice in (
        ([], f": pip install -e {tree}"),
        ([installed.parent], f"; it hides the installed package in {installed}: start Python outside {tree}"),
    ):
        program = f"import sys; sys.path += {list(map(str, path))}; import penstock"
        command = [sys.executable, "-S", "-c", program]  # -S: without the package that this suite tests
        done = subprocess.run(command, cwd=tree, capture_output=True, text=True, check=False)
        assert done.stderr.splitlines()[-1] == own + advice


def test_a_source_tree_in_the_working_folder_that_is_not_the_one_imported_is_named(tmp_path):
    (tmp_path / "penstock").mkdir()
    (tmp_path / "penstock" / "__init__.py").touch()
    own = Path(penstock.__file__).parent
    program = f"import sys; sys.path.insert(0, {str(own.parent)!r}); import penstock"
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert f"penstock is imported from {own}, not from the source tree in this folder" in done.stderr
    elsewhere = subprocess.run([sys.executable, "-c", program], cwd=tmp_path.parent, capture_output=True, text=True)
    assert elsewhere.stderr == ""


def test_the_version_is_that_of_the_package():
    assert penstock.__version__ == version("penstock")


def test_the_environment_is_the_first_argument_and_the_only_one_without_a_name():
    settings = {name: value for name, value in SETTINGS.items() if name != "env"}
    with penstock.PPO("CartPole-v1", **settings) as made, penstock.Trainer(PPO, "CartPole-v1", **settings) as other:
        assert made.config.env == other.config.env == "CartPole-v1"
        assert made.config == other.config == PPO.Config(**SETTINGS)
    with pytest.raises(ConfigError, match=r"PPO\('MlpPolicy', 'CartPole-v1'\): only env is positional"):
        penstock.PPO("MlpPolicy", "CartPole-v1")
    with pytest.raises(ConfigError, match=r'already made.*env=lambda: gym.make\("CartPole-v1"\)'):
        penstock.PPO(gymnasium.make("CartPole-v1"))


def test_directories_may_be_paths_and_whole_numbers_of_steps_floats(tmp_path):
    with penstock.PPO(**{**SETTINGS, "run_dir": tmp_path / "run", "total_steps": 64.0}) as made:
        assert made.train(3.2e1, quiet=True).steps == 32 and made.train(quiet=True).steps == 64
        made.save(tmp_path / "saved")
        assert made.evaluate(episodes=2.0).episodes == 2
        with pytest.raises(ConfigError, match=r"steps=1.5 is not legal: steps must be int"):
            made.train(1.5)
    assert penstock.load_policy(tmp_path / "run").meta["steps"] == 64
    assert penstock.load_policy(tmp_path / "saved").meta["steps"] == 64


def test_training_goes_on_from_call_to_call_until_the_budget_is_learned_from(trainer):
    results = [trainer.train(40, quiet=True), trainer.train(40, quiet=True), trainer.train(quiet=True)]
    assert [result.steps for result in results] == [64, 128, 320]  # whole batches of 32
    assert all(result.stop_reason == "steps" and not result.reached_target for result in results)
    assert results[0].seconds < results[1].seconds < results[2].seconds
    assert trainer.train(quiet=True).steps == 320, "nothing is left to do"
    assert trainer.train(1, quiet=True).steps == 352, "unless more is asked for"


def test_steps_beyond_the_budget_are_said_beforehand_and_a_spent_budget_says_why_nothing_happens(tmp_path, capsys):
    settings = {**SETTINGS, "total_steps": 40, "run_dir": tmp_path / "run", "eval_interval": 10**6, "eval_episodes": 1}
    with penstock.PPO(**settings) as made:
        assert made.train().steps == 64
    beforehand = "total_steps=40 ends within a batch: a batch has 32 steps, so training ends at about step 64"
    assert beforehand in capsys.readouterr().out
    with penstock.Trainer.resume(tmp_path / "run") as again:
        assert again.train().steps == 64
    shown = capsys.readouterr().out
    why = "nothing is left to train: the run is at step 64, and total_steps=40 is reached: set total_steps=104"
    assert why in shown and "ends within a batch" not in shown
    with penstock.Trainer.resume(tmp_path / "run", total_steps=104) as again:
        assert again.train().steps == 128
    assert "nothing is left" not in capsys.readouterr().out


def test_the_end_of_a_training_of_turns_is_bounded_since_batches_have_rows_without_a_move(capsys):
    with penstock.PPO(**{**SETTINGS, "env": Turns, "total_steps": 40}) as made:
        steps = made.train().steps
    note = r"a batch has (\d+) steps or, where agents wait, fewer, so training ends within (\d+) steps after it"
    batch, most = map(int, re.findall(note, capsys.readouterr().out)[0])
    assert 40 < steps <= 40 + most and most == batch - 1 and steps % batch


@pytest.mark.parametrize("steps", [0, -5])
def test_training_for_no_steps_is_refused(trainer, steps):
    with pytest.raises(ConfigError, match=f"steps={steps} is not legal: train at least 1 step"):
        trainer.train(steps)


def test_a_target_ends_the_training_and_is_said_to_be_reached():
    settings = {"target_return": 5.0, "eval_interval": None, "eval_episodes": 2, "total_steps": 1_000_000}
    with penstock.PPO(**{**SETTINGS, **settings}) as made:
        result = made.train(quiet=True)
    assert result.reached_target and result.stop_reason == "target" and result.steps < 1_000_000
    assert result.target_return == 5.0 <= result.eval_return


def test_after_the_target_is_reached_more_training_can_be_asked_for():
    settings = {"target_return": 5.0, "eval_interval": None, "eval_episodes": 2, "total_steps": 1_000_000}
    with penstock.PPO(**{**SETTINGS, **settings}) as made:
        before = made.train(quiet=True).steps
        assert made.train(1, quiet=True).steps > before


def test_other_weights_are_not_credited_with_what_the_old_ones_reached():
    settings = {"target_return": 20.0, "eval_interval": None, "eval_episodes": 4, "learning_rate": 1e-6, "seed": 3}
    with penstock.PPO(**{**SETTINGS, **settings, "total_steps": 64}) as made:
        one_sided = made.get_parameters()[0]
        for name in one_sided:
            if name.startswith("policy_head"):
                one_sided[name].zero_()
        one_sided["policy_head.bias"][0] = 1.0  # always to the left: about 9 steps
        supervisor_of(made).progress.policies[0].take_evaluation(Evaluation((500.0,), (500,), steps=64), is_best=True)
        made.set_parameters({0: one_sided})
        result = made.train(quiet=True)
    assert not result.reached_target and result.eval_return < 20.0


@pytest.mark.usefixtures("kept_launcher")
@pytest.mark.timeout(120)
def test_a_checkpoint_is_there_when_save_returns_though_others_are_under_way(tmp_path):
    settings = {"backend": "local", "checkpoint_interval": 32, "run_dir": str(tmp_path / "run"), "total_steps": 96}
    with penstock.APPO(**{**SETTINGS, **settings}) as made:
        for number in range(3):
            steps = made.train(32, quiet=True).steps
            assert (tmp_path / "run" / "checkpoints" / str(steps)).is_dir()
            made.save(str(tmp_path / str(number)))
            assert load_checkpoint(tmp_path / str(number)).meta["steps"] == steps


def test_a_serial_run_ends_at_the_same_step_with_the_same_weights_though_a_target_ends_it():
    def run():
        settings = {"target_return": 30.0, "eval_interval": None, "eval_episodes": 2, "total_steps": 100_000}
        with penstock.APPO(**{**SETTINGS, **settings, "learning_rate": 0.01}) as made:
            return made.train(quiet=True).steps, made.get_parameters()[0]

    (steps, weights), (again, weights_again) = run(), run()
    assert steps == again and identical(weights, weights_again)


def test_a_budget_spent_without_the_target_is_told_apart():
    with penstock.PPO(**{**SETTINGS, "target_return": 501.0, "eval_interval": None, "eval_episodes": 2}) as made:
        result = made.train(quiet=True)
    assert not result.reached_target and result.stop_reason == "steps" and result.steps == 320
    assert result.eval_return is not None


def test_seconds_end_a_training_too():
    with penstock.PPO(**{**SETTINGS, "max_seconds": 1e-6}) as made:
        result = made.train(quiet=True)
    assert result.stop_reason == "seconds" and result.steps < 320


def test_on_update_sees_the_status_and_its_numbers_are_shown(trainer):
    seen = []

    def on_update(status):
        seen.append(status.steps)
        return {"mine": 7.0}

    trainer.train(64, on_update=on_update, quiet=True)
    assert seen[-1] == 64 and trainer.status.metrics["mine"] == 7.0


@pytest.mark.parametrize("no", [False, np.False_])
def test_on_update_stops_the_training_in_good_order_by_returning_false(tmp_path, no):
    seen = []

    def on_update(status):
        seen.append(status.steps)
        return no

    with penstock.PPO(**{**SETTINGS, "total_steps": 10_000_000, "run_dir": tmp_path / "run"}) as made:
        result = made.train(on_update=on_update, quiet=True)
        assert result.stop_reason == "callback" and result.steps < 10_000_000 and not result.reached_target
        assert len(seen) == 1, "it is not called again"
        assert made.train(32, quiet=True).stop_reason == "steps", "another call trains on"
    assert (tmp_path / "run" / "checkpoints" / str(result.steps)).is_dir()


@pytest.mark.parametrize("answer", [None, True, {}, {"mine": np.float32(7.0)}, {"mine": torch.tensor(7.0)}])
def test_on_update_may_return_true_nothing_or_numbers_of_any_library(trainer, answer):
    assert trainer.train(32, on_update=lambda status: answer, quiet=True).stop_reason == "steps"
    assert trainer.status.metrics == ({"mine": 7.0} if answer and answer is not True else {})


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ({"mine": "fast"}, r"on_update returned \{'mine': 'fast'\}: 'mine' is a str, and no number"),
        ({"mine": [1.0]}, r"on_update returned \{'mine': \[1.0\]\}: 'mine' is a list, and no number"),
        ({"mine": torch.zeros(2)}, "'mine' is a Tensor, and no number"),
        (0.5, "on_update returned 0.5, a float: return numbers by name.* or False to stop the training"),
    ],
)
def test_on_update_that_returns_something_else_is_refused_by_what_it_returned(trainer, answer, message):
    with pytest.raises(TypeError, match=message):
        trainer.train(32, on_update=lambda status: answer, quiet=True)


def test_within_on_update_the_trainer_is_used_but_neither_trained_nor_closed(trainer):
    refused, weights = [], []

    def on_update(status):
        for use in (trainer.train, trainer.close):
            with pytest.raises(RuntimeError, match=rf"{use.__name__}\(\) is called within on_update") as refusal:
                use()
            refused.append(str(refusal.value))
        weights.append(trainer.get_parameters())
        return {"score": trainer.evaluate(1).mean_return}

    assert trainer.train(32, on_update=on_update, quiet=True).steps == 32
    assert refused and weights and trainer.status.metrics["score"] > 0
    assert "let on_update return False to stop it, and call train() when it has returned" in refused[0]
    assert trainer.train(32, quiet=True).steps == 64


def test_training_in_two_threads_at_once_is_refused(trainer):
    refused = []

    def train():
        with pytest.raises(RuntimeError, match=r"train\(\) is called while another thread trains") as refusal:
            trainer.train()
        refused.append(refusal.value)

    def on_update(status):
        thread = threading.Thread(target=train)
        thread.start()
        thread.join()

    trainer.train(32, on_update=on_update, quiet=True)
    assert refused


def test_parameters_come_as_copies_on_the_cpu(trainer):
    weights = trainer.get_parameters()
    assert list(weights) == [0]
    before = {name: tensor.clone() for name, tensor in weights[0].items()}
    for tensor in weights[0].values():
        assert tensor.device.type == "cpu"
        tensor.fill_(9.0)
    assert identical(trainer.get_parameters()[0], before)
    trainer.train(32, quiet=True)
    assert not identical(trainer.get_parameters()[0], before)
    assert all((tensor == 9.0).all() for tensor in weights[0].values()), "training does not reach what was handed out"


def test_parameters_that_are_set_are_those_that_act_and_learn(trainer):
    trainer.train(32, quiet=True)
    weights = trainer.get_parameters()[0]
    blank = zeros(weights)
    trainer.set_parameters({0: blank})
    assert identical(trainer.get_parameters()[0], blank)
    blank["policy_head.bias"].fill_(5.0)
    assert not trainer.get_parameters()[0]["policy_head.bias"].any(), "they are copies too"
    trainer.set_parameters({0: weights})
    assert identical(trainer.get_parameters()[0], weights)
    trainer.train(32, quiet=True)
    assert trainer.status.policy_lag_max == 0


def test_parameters_may_be_arrays(trainer):
    blank = zeros(trainer.get_parameters()[0])
    trainer.set_parameters({0: {name: tensor.numpy() for name, tensor in blank.items()}})
    assert identical(trainer.get_parameters()[0], blank)


def test_weights_without_their_policy_are_refused_with_the_form_they_need(trainer):
    with pytest.raises(ConfigError, match=r"this run has \[0\]: give \{id: weights\}") as refused:
        trainer.set_parameters(trainer.get_parameters()[0])
    assert len(str(refused.value)) < 160


def test_parameters_come_from_a_checkpoint_by_its_path(trainer, tmp_path):
    saved = trainer.get_parameters()[0]
    trainer.save(str(tmp_path / "saved"))
    for parameters in (str(tmp_path / "saved"), tmp_path / "saved", {0: str(tmp_path / "saved")}):
        trainer.train(32, quiet=True)
        assert not identical(trainer.get_parameters()[0], saved)
        trainer.set_parameters(parameters)
        assert identical(trainer.get_parameters()[0], saved)


@pytest.mark.parametrize("parameters", [{1: {}}, {}, {0: {}, 1: {}}])
def test_a_policy_that_there_is_not_is_refused(trainer, parameters):
    with pytest.raises(ConfigError, match=r"policies \[.*\]; this run has \[0\]"):
        trainer.set_parameters(parameters)


def test_weights_of_another_architecture_are_refused_and_nothing_changes(trainer, tmp_path):
    before = trainer.get_parameters()[0]
    with penstock.PPO(**{**SETTINGS, "hidden_sizes": (9,)}) as other:
        foreign = other.get_parameters()
        other.save(str(tmp_path / "foreign"))
    short = dict(before)
    del short["value_head.bias"]
    for parameters, message in (
        (foreign, r"the parameters given is of another architecture: its 'encoder.*' has shape \(9, 4\)"),
        (str(tmp_path / "foreign"), "foreign is of another architecture"),
        ({0: short}, r"'value_head.bias' of shape \(1,\) is missing"),
        ({0: {**before, "more": torch.zeros(1)}}, "'more' does not exist in this model"),
        ({0: {name: tensor * torch.nan for name, tensor in before.items()}}, "holds NaN or infinity"),
        (str(tmp_path / "nothing"), "does not exist"),
    ):
        with pytest.raises(CheckpointError, match=message):
            trainer.set_parameters(parameters)
    assert identical(trainer.get_parameters()[0], before)


def test_saving_twice_replaces_and_a_users_not_source_are_left_alone(trainer, tmp_path):
    trainer.save(str(tmp_path / "saved"))
    trainer.train(32, quiet=True)
    trainer.save(str(tmp_path / "saved"))
    assert penstock.load_policy(tmp_path / "saved").meta["steps"] == 32
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("all of it")
    with pytest.raises(CheckpointError, match="is not replaced"):
        trainer.save(str(tmp_path / "mine"))
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "all of it"


@pytest.mark.parametrize(
    ("path", "error", "message"),
    [("/", CheckpointError, "/ is not replaced"), ("a\0b", ValueError, "null"), ("unstored", TypeError, "cannot hold")],
)
def test_a_trainer_trains_on_after_a_save_that_is_refused(trainer, tmp_path, monkeypatch, path, error, message):
    monkeypatch.chdir(tmp_path)
    if path == "unstored":
        monkeypatch.setattr(supervisor_of(trainer).training.policies[0].arena, "state", lambda: {"of_own": object()})
    with pytest.raises(error, match=message):
        trainer.save(path)
    assert trainer.train(32, quiet=True).steps == 32 and list(tmp_path.iterdir()) == []


def test_evaluating_plays_as_many_episodes_as_asked_for_and_leaves_training_alone(trainer):
    trainer.train(32, quiet=True)
    before = trainer.get_parameters()[0]
    evaluation = trainer.evaluate(episodes=6)
    assert evaluation.episodes == 6 and evaluation.mean_return == evaluation.mean_length > 5
    assert evaluation.steps == 32 and evaluation.version > 0, "of the weights, and what they had learned from"
    assert trainer.evaluate(episodes=6) == evaluation, "the same weights, the same seed"
    assert trainer.evaluate().episodes == trainer.config.eval_episodes
    assert identical(trainer.get_parameters()[0], before)


def test_without_a_run_directory_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with penstock.APPO(**{**SETTINGS, "num_minibatches": 1, "eval_interval": 32, "eval_episodes": 2}) as made:
        result = made.train(quiet=True)
        made.evaluate(2)
        assert result.run_dir is None is made.run_dir
    assert list(tmp_path.iterdir()) == []


def test_a_run_directory_is_made_by_default_and_named_by_what_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with penstock.PPO(**{**SETTINGS, "run_dir": "auto"}) as made:
        result = made.train(32, quiet=True)
    (run,) = Path("runs").iterdir()
    assert run.name.startswith("CartPole-v1-ppo-") and result.run_dir == str(run.absolute())
    assert penstock.load_policy(run).meta["steps"] == 32


def test_a_closed_trainer_says_so_and_closing_twice_is_harmless():
    with penstock.PPO(**SETTINGS) as made:
        pass
    made.close()
    with_arguments = (lambda: made.save("x"), lambda: made.set_parameters({}))
    for use in (made.train, made.evaluate, made.get_parameters, *with_arguments):
        with pytest.raises(RuntimeError, match="this trainer is closed"):
            use()


def test_an_error_within_the_context_closes_the_trainer_and_comes_through():
    with pytest.raises(ZeroDivisionError), penstock.PPO(**SETTINGS) as made:
        made.train(32, quiet=True)
        1 / 0  # noqa: B018
    with pytest.raises(RuntimeError, match="closed"):
        made.train(1)


def test_an_algorithm_of_ones_own_is_trained_by_the_trainer():
    class Imitation(penstock.SegmentAlgorithm):
        Config = penstock.AsynchronousConfig

        def loss(self, batch, policy, value):
            loss = -policy.log_prob(torch.ones_like(batch.action)).mean()
            return loss, {"imitation": loss}

    settings = {**ASYNCHRONOUS, "total_steps": 2000, "learning_rate": 0.02, "hidden_sizes": (16,)}
    with penstock.Trainer(Imitation, **settings) as made:
        made.train(quiet=True)
        assert made.status.losses["imitation"] < 0.1 and made.status.algorithm == "imitation"


def test_wrong_settings_are_refused_before_anything_starts():
    with pytest.raises(ConfigError, match="unknown setting 'learning_rat'; did you mean 'learning_rate'"):
        penstock.PPO(env="CartPole-v1", learning_rat=1e-3)
    with pytest.raises(ConfigError, match="encoder='mpl' is not legal"):
        penstock.PPO(**{**SETTINGS, "encoder": "mpl"})
    config = PPO.Config(**SETTINGS)
    with pytest.raises(ConfigError, match=r"given twice, as a config and by name \(gamma\)"):
        penstock.Trainer(PPO, config, gamma=0.9)


def test_a_synchronous_algorithm_whose_batch_is_not_a_segment_of_every_lane_is_refused():
    class Patient(penstock.SegmentAlgorithm):
        Config = penstock.AsynchronousConfig
        synchronous = True

    with pytest.raises(ConfigError, match=r"found segments_per_batch=2 for 4 lanes .* make them equal"):
        penstock.Trainer(Patient, **ASYNCHRONOUS)

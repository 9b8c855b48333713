"""The command line: what it prints, and the exit codes that scripts rely on."""

import contextlib
import os
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import torch

from penstock.bench import BenchError
from penstock.cli import main
from penstock.engine.endings import NO_STEP
from penstock.envs.failures import EnvironmentFailure, UnknownEnvironmentError, UnsupportedSpaceError
from penstock.play.evaluation import Evaluation
from penstock.runs.checkpoint import CheckpointError
from penstock.runs.machine import penstock_commit
from penstock.runs.run_directory import RunDirectory

ENV = ["--env", "CartPole-v1"]


class TrainingFailed(RuntimeError):
    pass


class TrainingInterrupted(KeyboardInterrupt):
    result = None


class FakeTrainer:
    """Stands in for the engine: records its arguments and ends as requested."""

    def __init__(self, algorithm, config):
        engine.made.append((algorithm.__name__, config))
        if engine.refusal is not None:
            raise engine.refusal

    @classmethod
    def resume(cls, run_dir, *, report=None, trust_code=False, **changes):
        engine.made.append((run_dir, changes))
        report("30000 is damaged; using the previous one")
        return cls.__new__(cls)

    def train(self):
        if isinstance(engine.ending, BaseException):
            raise engine.ending
        if engine.ending.stop_reason == "interrupted":
            interruption = TrainingInterrupted()
            interruption.result = engine.ending
            raise interruption
        return engine.ending

    def __enter__(self):
        return self

    def __exit__(self, *_):
        engine.closed += 1


engine = SimpleNamespace()


def ending(**changes):
    values = {
        "steps": 96_256, "seconds": 5.83, "reached_target": False, "target_return": None, "eval_return": 487.31,
        "mean_return": 312.4, "stop_reason": "steps", "run_dir": None, "eval_unfinished": 0, "unsent": (),
        "save_error": "",
    }  # fmt: skip
    return SimpleNamespace(**{**values, **changes})


def module(name: str, **contents) -> ModuleType:
    made = ModuleType(name)
    vars(made).update(contents)
    return made


@pytest.fixture(autouse=True)
def fake_engine(monkeypatch, tmp_path):
    vars(engine).update(made=[], closed=0, prepared=0, refusal=None, ending=ending(), evaluated=[], evaluation=None)

    def prepare():
        engine.prepared += 1

    def evaluate_run(path, **how):
        engine.evaluated.append((path, how))
        return engine.evaluation or Evaluation((498.75, 501.25) * (how["episodes"] // 2), (500,) * how["episodes"])

    trainer = "penstock.engine.trainer"
    monkeypatch.setitem(sys.modules, trainer, module(trainer, Trainer=FakeTrainer))
    endings = "penstock.engine.endings"
    monkeypatch.setitem(
        sys.modules, endings,
        module(endings, NO_STEP=NO_STEP, TrainingFailed=TrainingFailed, TrainingInterrupted=TrainingInterrupted),
    )  # fmt: skip
    launcher = "penstock.engine.backends.launcher"
    monkeypatch.setitem(sys.modules, launcher, module(launcher, prepare=prepare))
    scoring = "penstock.play.scoring"
    monkeypatch.setitem(sys.modules, scoring, module(scoring, evaluate_run=evaluate_run, evaluate_together=None))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def run_dir() -> Path:
    config = {"env": "CartPole-v1", "total_steps": 20_000, "max_seconds": 90.0}
    run = RunDirectory.create("my-run", env_name="CartPole-v1", algorithm="ppo", config=config)
    for save, steps in ((run.checkpoints.save, 20_000), (run.checkpoints.save_best, 10_000)):
        save(steps, meta={"env": "CartPole-v1"}, weights={"w": torch.zeros(1)})
    return run.path


HELP = """
import contextlib, io, sys
from penstock.cli import main

left_out = {"torch", "gymnasium", "numpy", "tensorboard", "optuna", "penstock.ipc"}
for command in sys.argv[1:]:
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        try:
            code = main(command.split())
        except SystemExit as exit:
            code = exit.code
    print(command, code or 0, "penstock" in printed.getvalue(), *sorted(left_out & set(sys.modules)), sep="|")
"""


def test_the_version_names_the_commit_of_the_checkout(capsys):
    assert main(["--version"]) == 0
    commit = penstock_commit()
    assert capsys.readouterr().out == f"penstock {version('penstock')}" + (f" (commit {commit})\n" if commit else "\n")


@pytest.mark.timeout(60)
def test_help_answers_without_importing_torch_or_gymnasium():
    light = [
        "--help", "train --help", "eval --help", "info --help", "resume --help", "doctor --help", "bench --help",
    ]  # fmt: skip
    others = [
        "--version", "bench throughput --help", "autotune --help", "search --help", "runs --help", "multirun --help",
        "compare --help",
    ]  # fmt: skip
    done = subprocess.run([sys.executable, "-c", HELP, *light, *others], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = [line.split("|") for line in done.stdout.splitlines()]
    assert [answer[:3] for answer in found] == [[command, "0", "True"] for command in light + others]
    assert [answer[3:] for answer in found[: len(light)]] == [[]] * len(light)
    assert not {name for answer in found for name in answer[3:]} & {"torch", "gymnasium", "optuna"}


def test_a_process_that_ends_collects_no_garbage_among_its_modules():
    """Handlers run in reverse order: the one before the command's sees what the command's has done."""
    source = "import atexit, gc; atexit.register(lambda: print(gc.get_freeze_count() > 1_000)); "
    source += "from penstock.cli import main; main(['--version']); assert gc.get_freeze_count() == 0"
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "True"


@pytest.mark.timeout(60)
def test_a_thread_that_an_environment_leaves_keeps_no_command_from_its_end():
    left = "threading.Thread(target=time.sleep, args=[600], name='simulator').start()"
    code = f"import sys, threading, time, penstock.cli as cli; cli.GRACE = 0.2; {left}; sys.exit(cli.main())"
    ended = subprocess.run([sys.executable, "-c", code, "nope"], capture_output=True, text=True, timeout=60)
    assert ended.returncode == 2
    assert "warning: ended with threads still running: simulator; end them in close()" in ended.stderr


@pytest.mark.long
@pytest.mark.timeout(60)
@pytest.mark.parametrize("args", ["--help", "train --help", "train ppo --help", "bench throughput --help"])
def test_help_ends_quietly_where_its_reader_has_had_enough(args):
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as closed:
        done = subprocess.run(
            [sys.executable, "-m", "penstock.cli", *args.split()],
            stdout=closed, stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")


def test_help_lists_the_commands_the_algorithms_and_the_exit_codes(capsys):
    assert main(["--help"]) == 0
    out = capsys.readouterr().out
    training, many = ("train", "eval", "resume"), ("runs", "multirun", "plot", "compare", "dashboard")
    commands = (*training, *many, "doctor", "bench", "autotune", "search")
    assert all(word in out for word in (*commands, "130 interrupted"))
    assert main(["train", "--help"]) == 0
    assert "arXiv:1707.06347" in capsys.readouterr().out
    assert engine.prepared == 0


@pytest.mark.parametrize("of", [[], ["runs"]], ids=["all", "one command"])
def test_help_is_also_a_command(of, capsys):
    with contextlib.suppress(SystemExit):
        main([*of, "--help"])
    asked = capsys.readouterr().out
    with contextlib.suppress(SystemExit):
        main(["help", *of])
    assert capsys.readouterr().out == asked and asked.startswith("usage: penstock")


def test_help_of_an_algorithm_lists_its_flags_and_starts_nothing(capsys):
    assert main(["train", "ppo", "--help"]) == 0
    assert "--clip-range FLOAT" in capsys.readouterr().out
    assert engine.prepared == 0


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["trian"], "unknown command 'trian'; did you mean 'train'? (legal: train, eval, info, resume, runs"),
        (["train", "popo"], "unknown algorithm 'popo'; did you mean '"),
        (["train", "--env", "x"], "the algorithm comes first"),
        (["train", "ppo", *ENV, "--inference", "locl"], "inference='locl' is not legal; did you mean 'local'?"),
        (["train", "ppo", *ENV, "--preset", "nothing-like-it"], "unknown preset 'nothing-like-it'"),
        (["train", "ppo", *ENV, "--clip-rang", "0.1"], "--clip-range"),
        (["train", "ppo"], "--env"),
        (["eval", "nowhere"], "nowhere does not exist"),
        (["eval", "nowhere", "--episodes", "0"], "--episodes 0 is not legal"),
        (["eval", "nowhere", "--max-steps", "0"], "--max-steps 0 is not legal"),
        (["resume", "."], "not a run"),
        (["resume", "--total-steps", "5", "my-run"], "the run comes first"),
        (["eval"], "RUN"),
        (["bench", "idael"], "unknown bench 'idael'; did you mean 'ideal'? (legal: ideal, throughput, cluster)"),
        (["autotune", "popo"], "unknown algorithm 'popo'; did you mean '"),
        (["autotune", "ppo", *ENV, "--clip-rang", "0.1"], "--clip-range"),
        (["search", "popo"], "unknown algorithm 'popo'; did you mean '"),
        (["search", "ppo", *ENV, "--clip-rang", "0.1"], "--clip-range"),
        (["bench", "throughput", "--round", "3"], "--rounds"),
        (["bench", "throughput", "--rounds", "0"], "--rounds 0 is not legal"),
    ],
)
def test_wrong_usage_exits_with_two_and_says_what_is_wrong(args, message, capsys):
    assert main(args) == 2
    out, err = capsys.readouterr()
    assert message in err
    assert "Traceback" not in err
    assert out == ""
    assert engine.made == []


@pytest.mark.parametrize("args", [[], ["train"], ["bench"]])
def test_nothing_said_is_answered_with_the_usage(args, capsys):
    assert main(args) == 2
    assert "usage: penstock" in capsys.readouterr().out


def test_training_gets_the_algorithm_and_the_settings():
    assert main(["train", "PPO", *ENV, "--total-steps", "5000", "--target-return", "475"]) == 0
    ((algorithm, config),) = engine.made
    assert (algorithm, config.env, config.total_steps, config.target_return) == ("PPO", "CartPole-v1", 5000, 475.0)
    assert engine.prepared == 1
    assert engine.closed == 1


@pytest.mark.parametrize(
    ("how", "code", "line"),
    [
        ({}, 0, "done after 96,256 steps and 5.8 s, mean return 487.3"),
        ({"eval_return": None}, 0, "done after 96,256 steps and 5.8 s, mean return 312.4 in training"),
        ({"eval_return": None, "mean_return": None}, 0, "done after 96,256 steps and 5.8 s, no evaluation"),
        (
            {"target_return": 475.0, "reached_target": True, "stop_reason": "target"}, 0,
            "reached mean return 487.3 >= 475 after 96,256 steps and 5.8 s",
        ),
        ({"target_return": 499.5}, 3, "not reached 499.5: mean return 487.3 after 96,256 steps and 5.8 s"),
        (
            {"target_return": 475.0, "eval_return": 474.98}, 3,
            "not reached 475: mean return 474.98 after 96,256 steps and 5.8 s",
        ),
        ({"eval_return": 0.955}, 0, "done after 96,256 steps and 5.8 s, mean return 0.955"),
        (
            {"eval_return": 0.25, "eval_unfinished": 20}, 0,
            "done after 96,256 steps and 5.8 s, mean return 0.250 (partial: 20 episodes did not end)",
        ),
        ({"target_return": 475.0, "stop_reason": "interrupted"}, 130, "interrupted after 96,256 steps and 5.8 s"),
        ({"stop_reason": "seconds", "steps": 0, "eval_return": None, "mean_return": None}, 1,
         "done after 0 steps and 5.8 s, no evaluation"),
        ({"save_error": "No space left"}, 5, "not saved after 96,256 steps and 5.8 s, mean return 487.3"),
        ({"save_error": "No space left", "stop_reason": "interrupted"}, 130,
         "interrupted after 96,256 steps and 5.8 s"),
    ],
)  # fmt: skip
def test_the_exit_code_and_the_first_line_tell_how_training_ended(how, code, line, capsys):
    engine.ending = ending(**how)
    assert main(["train", "ppo", *ENV]) == code
    assert capsys.readouterr().out.splitlines()[0] == line


@pytest.mark.parametrize(
    ("stop_reason", "steps", "more"),
    [
        ("target", 19_000, ""),
        ("target", 20_000, " --total-steps 40000"),
        ("interrupted", 19_000, ""),
        ("interrupted", 20_480, " --total-steps 40480"),
        ("steps", 20_000, " --total-steps 40000"),
        ("steps", 40_960, " --total-steps 60960"),
        ("seconds", 19_000, " --max-seconds 90"),
        ("seconds", 20_480, " --total-steps 40480 --max-seconds 90"),
    ],
)
def test_training_ends_with_a_command_that_trains_on(stop_reason, steps, more, run_dir, capsys):
    if steps != 20_000:
        store = RunDirectory.open("my-run").checkpoints
        store.path_of(20_000).rename(store.path_of(steps))
    engine.ending = ending(run_dir="my-run", steps=steps, stop_reason=stop_reason)
    main(["train", "ppo", *ENV])
    assert capsys.readouterr().out.splitlines()[1:] == [
        "best checkpoint: my-run/checkpoints/best",
        "evaluate: penstock eval my-run",
        f"resume:   penstock resume my-run{more}",
    ]


def test_where_the_last_steps_could_not_be_saved_it_is_said_from_which_checkpoint_resume_starts(run_dir, capsys):
    engine.ending = ending(run_dir="my-run", steps=96_256, save_error="No space left")
    main(["train", "ppo", *ENV])
    out, err = capsys.readouterr()
    assert out.splitlines()[3:] == [
        "last checkpoint: step 20,000; later learning is not saved",
        "resume:   penstock resume my-run --total-steps 40000",
    ]
    assert err.endswith("could not be saved: No space left; free space or fix permissions, then resume\n")


def test_a_run_that_saved_nothing_offers_nothing_to_go_on_with(capsys):
    RunDirectory.create("my-run", env_name="CartPole-v1", algorithm="ppo", config={})
    engine.ending = ending(run_dir="my-run", stop_reason="interrupted")
    assert main(["train", "ppo", *ENV]) == 130
    assert capsys.readouterr().out == "interrupted after 96,256 steps and 5.8 s\n"
    engine.ending = ending(run_dir="my-run", save_error="No space left")
    main(["train", "ppo", *ENV])
    assert capsys.readouterr().err.endswith("then resume from the beginning: the run has no checkpoint\n")


def test_without_a_run_directory_nothing_is_offered_to_resume(capsys):
    engine.ending = ending(run_dir=None)
    assert main(["train", "ppo", *ENV, "--run-dir", "None"]) == 0
    assert "resume" not in capsys.readouterr().out


@pytest.mark.parametrize(
    "refusal", [UnknownEnvironmentError, UnsupportedSpaceError, CheckpointError, MemoryError], ids=lambda e: e.__name__
)
def test_what_the_user_can_mend_is_one_line_and_exits_with_two(refusal, capsys):
    engine.refusal = refusal("4.0 GiB needed, 2.0 GiB available")
    assert main(["train", "ppo", *ENV]) == 2
    assert capsys.readouterr().err == "error: 4.0 GiB needed, 2.0 GiB available\n"


def test_an_environment_that_fails_before_training_exits_with_one(capsys):
    engine.refusal = EnvironmentFailure("Broken-v0", "make", None, 0, "ValueError: oops")
    assert main(["train", "ppo", *ENV]) == 1
    assert "Broken-v0 failed in make" in capsys.readouterr().err


def test_a_failed_run_exits_with_one_tells_the_whole_story_and_is_closed(capsys):
    engine.ending = TrainingFailed("worker 1, lane 3, step 17\nTraceback ...")
    assert main(["train", "ppo", *ENV]) == 1
    assert capsys.readouterr().err == "error: worker 1, lane 3, step 17\nTraceback ...\n"
    assert engine.closed == 1


def test_an_interrupt_outside_of_training_is_said_and_exits_with_130(monkeypatch, capsys):
    def interrupt():
        raise KeyboardInterrupt

    monkeypatch.setattr(sys.modules["penstock.engine.backends.launcher"], "prepare", interrupt)
    assert main(["train", "ppo", *ENV]) == 130
    assert capsys.readouterr().err == "interrupted\n"


def test_resume_goes_on_with_the_run(run_dir, capsys):
    engine.ending = ending(run_dir="my-run")
    flags = ["--total-steps", "400000", "--max-seconds", "90", "--learning-rate", "5e-4", "--num-epochs", "10"]
    assert main(["resume", "my-run", *flags]) == 0
    # The learning rate and the number of epochs are what they were.
    assert engine.made == [("my-run", {"total_steps": 400_000, "max_seconds": 90.0})]
    assert engine.prepared == 1
    assert capsys.readouterr().err == "warning: 30000 is damaged; using the previous one\n"


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--hidden-sizes", "8", "8"], "hidden_sizes=8 8 is not legal here: hidden_sizes cannot change within a run"),
        (["--no-normalize-returns"], "and is True in this one, because the run's weights belong to this network"),
        (["--run-dir=elsewhere"], "run_dir=elsewhere is not legal here"),
        (["--learning-rat", "1"], "--learning-rate"),
        (["--clip-range", "x"], "--clip-range"),
    ],
)
def test_what_cannot_change_within_a_run_is_refused_with_the_reason(flags, message, run_dir, capsys):
    assert main(["resume", "my-run", *flags]) == 2
    assert message in capsys.readouterr().err
    assert engine.made == []


def test_of_a_training_in_one_process_no_other_is_prepared():
    for serial in (["--backend", "serial"], ["--backend=serial"]):
        assert main(["train", "ppo", *ENV, *serial]) == 0
    config = {"env": "CartPole-v1", "backend": "serial"}
    RunDirectory.create("serial", env_name="CartPole-v1", algorithm="ppo", config=config)
    engine.ending = ending(run_dir="serial")
    assert main(["resume", "serial"]) == 0
    assert len(engine.made) == 3 and engine.prepared == 0


def test_without_flags_a_run_goes_on_as_it_was(run_dir):
    engine.ending = ending(run_dir="my-run")
    assert main(["resume", "my-run"]) == 0
    assert engine.made == [("my-run", {})]


def test_help_of_resume_lists_what_can_change_with_what_it_is_now(run_dir, capsys):
    assert main(["resume", "my-run", "--help"]) == 0
    out = re.sub(r"[\s│]+", " ", capsys.readouterr().out)
    assert "--clip-range FLOAT" in out and "(default: 20000)" in out and "added to the run" in out
    assert "--hidden-sizes" not in out
    assert engine.prepared == 0


@pytest.mark.parametrize(
    ("flags", "path", "which"),
    [
        ([], "checkpoints/best", "weights of step 10,000, best checkpoint"),
        (["--checkpoint", "latest"], "checkpoints/20000", "weights of step 20,000, checkpoint 20000"),
        (["--checkpoint", "20000"], "checkpoints/20000", "weights of step 20,000, checkpoint 20000"),
    ],
)
def test_eval_scores_the_checkpoint_that_is_meant(run_dir, flags, path, which, capsys):
    assert main(["eval", "my-run", *flags]) == 0
    ((found, how),) = engine.evaluated
    assert found.resolve() == run_dir / path
    played = {"episodes": 100, "deterministic": True, "video": None, "seed": 0, "max_steps": None}
    assert how == {**played, "trust_code": False}
    assert capsys.readouterr().out == f"mean return 500.0 +/- 1.2 over 100 episodes (CartPole-v1, {which})\n"


@pytest.mark.parametrize("sampled", ["--sampled", "--no-deterministic"])
def test_eval_passes_on_how_to_play(run_dir, capsys, sampled):
    flags = ["--episodes", "4", sampled, "--video", "a.mp4", "--seed", "7", "--max-steps", "90"]
    assert main(["eval", "my-run", *flags]) == 0
    how = {"episodes": 4, "deterministic": False, "video": "a.mp4", "seed": 7, "max_steps": 90, "trust_code": False}
    assert engine.evaluated[0][1] == how
    assert capsys.readouterr().out.endswith("video: a.mp4\n")


def test_a_film_without_a_name_lies_in_the_run(run_dir, capsys):
    (run_dir / "checkpoints/best").rename(run_dir / "checkpoints/kept")
    assert main(["eval", "my-run", "--video", "auto"]) == 0
    assert main(["eval", "my-run/checkpoints/20000", "--video", "auto"]) == 0
    assert [how["video"] for _, how in engine.evaluated] == ["my-run/videos/step-20000.mp4"] * 2
    assert capsys.readouterr().out.endswith("video: my-run/videos/step-20000.mp4\n")
    (run_dir / "checkpoints/kept").rename("saved")
    assert main(["eval", "saved", "--video", "auto"]) == 2
    assert "not a run" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("evaluation", "lines"),
    [
        (
            Evaluation((0.935, 0.975), (9, 9)),
            ["mean return 0.955 +/- 0.020 over 2 episodes (CartPole-v1, weights of step 10,000, best checkpoint)"],
        ),
        (Evaluation((0.0,), (0,)), ["no return: its agents acted in none of the games"]),
        (
            Evaluation((0.935, 0.975), (9, 9), successes=(1.0, None)),
            [
                "mean return 0.955 +/- 0.020 over 2 episodes (CartPole-v1, weights of step 10,000, best checkpoint)",
                "success rate 0.500",
            ],
        ),
        (
            Evaluation((3.0, 0.5), (9, 30_000), unfinished=1, requested=1),
            [
                "mean return 1.750 +/- 1.250 over 2 episodes, 1 of which ended "
                "(CartPole-v1, weights of step 10,000, best checkpoint)",
                "partial: 1 of them was given up after 30,000 steps and counted with its return so far. 1 whole one "
                "was requested. --max-steps sets the bound",
            ],
        ),
        (
            Evaluation((3.0, 0.5, 0.5), (9, 90, 90), unfinished=2, requested=2),
            [
                "mean return 1.333 +/- 1.179 over 3 episodes, 1 of which ended "
                "(CartPole-v1, weights of step 10,000, best checkpoint)",
                "partial: 2 of them were given up after 90 steps and counted with their returns so far. 2 whole ones "
                "were requested; playing stops when as many were given up. --max-steps sets the bound",
            ],
        ),
    ],
)
def test_eval_shows_the_digits_that_are_needed_and_how_many_episodes_ended(evaluation, lines, run_dir, capsys):
    engine.evaluation = evaluation
    assert main(["eval", "my-run"]) == 0
    assert capsys.readouterr().out.splitlines() == lines


def test_an_environment_that_fails_in_evaluation_exits_with_one(run_dir, monkeypatch, capsys):
    def fail(path, **how):
        raise EnvironmentFailure("CartPole-v1", "step", 0, 3, "ValueError: oops")

    monkeypatch.setattr(sys.modules["penstock.play.scoring"], "evaluate_run", fail)
    assert main(["eval", "my-run"]) == 1
    assert "ValueError: oops" in capsys.readouterr().err


def test_help_of_bench_lists_the_benches(capsys):
    assert main(["bench", "--help"]) == 0
    assert re.search(r"throughput +Steps per second that APPO learns from", capsys.readouterr().out)


@pytest.mark.parametrize(
    ("outcome", "code", "message"),
    [
        (True, 0, ""),
        (False, 3, ""),
        (BenchError("cpprb, 'open': check failed"), 1, "error: cpprb, 'open': check failed\n"),
        (MemoryError("4.0 GiB needed"), 2, "error: 4.0 GiB needed\n"),
    ],
)
def test_the_exit_code_of_bench_tells_whether_the_marks_hold(outcome, code, message, monkeypatch, capsys):
    asked = []

    def run(flags):
        asked.append(flags)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    monkeypatch.setattr("penstock.bench.throughput.run", run)
    assert main(["bench", "throughput", "--workload", "pong", "vizdoom", "--json", "x/figures"]) == code
    assert capsys.readouterr().err == message
    (flags,) = asked
    assert (flags.workload, flags.json) == (("pong", "vizdoom"), Path("x/figures"))

"""Runs on the Hub: published and fetched through a stand-in that speaks its HTTP interface, with attacks."""

import csv
import hashlib
import json
import os
import pickle
import shutil
import subprocess
import sys
import textwrap

import pytest
import yaml

import penstock
from penstock.cli import main
from penstock.exchange import ExchangeError, pull, push
from penstock.imports import UntrustedCodeError
from penstock.play.scoring import evaluate_run
from penstock.runs.checkpoint import load_checkpoint, save_checkpoint
from tests.exchange.stand_in import Repository, serving

REPO = "lab/ppo-cartpole"
KEY = "hunter2hunter2"
ENV = """
from gymnasium.envs.classic_control.cartpole import CartPoleEnv


class Keyed(CartPoleEnv):
    def __init__(self, api_key=None, **more):
        assert api_key == "hunter2hunter2"
        super().__init__(**more)
"""


@pytest.fixture
def hub(monkeypatch):
    with serving() as served:
        monkeypatch.setenv("HF_ENDPOINT", served.endpoint)
        monkeypatch.setenv("HF_TOKEN", "hf_secret_token")
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_XET", True)  # the stand-in has no Xet storage
        yield served


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run on an environment from a file, with a secret among its arguments; best and final weights differ."""
    folder = tmp_path_factory.mktemp("home")
    (folder / "keyed.py").write_text(textwrap.dedent(ENV))
    with penstock.PPO(
        f"{folder / 'keyed.py'}:Keyed", env_kwargs={"api_key": KEY}, backend="serial", num_workers=1,
        num_envs_per_worker=4, segment_length=32, batch_size=64, num_epochs=1, eval_episodes=2, eval_max_steps=200,
        eval_interval=128, total_steps=512, run_dir=folder / "run",
    ) as algo:  # fmt: skip
        algo.train(quiet=True)
    store = folder / "run" / "checkpoints"
    best = load_checkpoint(store / "best")
    others = {name: 0.9 * x if x.is_floating_point() else x for name, x in best.weights.items()}
    save_checkpoint(store / "best", meta={**best.meta, "steps": 128}, weights=others)
    return folder / "run"


@pytest.fixture(scope="module")
def bundle(run, tmp_path_factory):
    """The files that are published of the run."""
    (run / "videos").mkdir()
    (run / "videos" / "step-128.mp4").write_bytes(b"a film")
    folder = tmp_path_factory.mktemp("bundle") / "files"
    push(run, REPO, folder=folder, episodes=3, env_kwargs={"api_key": KEY})
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def published(hub, bundle):
    hub.repositories[REPO] = Repository(dict(bundle))
    return hub.repositories[REPO]


@pytest.mark.long
def test_a_run_is_published_in_one_commit_and_fetched_as_a_run(run, hub, tmp_path, capsys):
    flags = ["--episodes", "2", "--private", "--env-kwargs", f"api_key={KEY}"]
    assert main(["hub", "push", str(run), REPO, *flags]) == 0
    repository = hub.repositories[REPO]
    assert repository.private and f"{hub.endpoint}/{REPO}/commit/{repository.commit}" in capsys.readouterr().out
    assert main(["hub", "pull", REPO, str(tmp_path / "fetched")]) == 0
    policy = penstock.load_policy(tmp_path / "fetched", trust_code=True)
    own = penstock.load_policy(run)
    assert policy.meta["steps"] == own.meta["steps"] == 128
    for name, tensor in own.model.state_dict().items():
        assert (policy.model.state_dict()[name] == tensor).all()
    assert not [path for path in (tmp_path / "fetched").rglob("*") if path.is_symlink()]
    assert sorted(os.listdir(tmp_path)) == ["fetched"]


@pytest.mark.long
def test_a_fetched_run_is_evaluated_and_trained_further(published, run, tmp_path, monkeypatch):
    monkeypatch.chdir(run.parent)  # where keyed.py lies
    fetched = pull(REPO, tmp_path / "fetched").path
    flags = ["--trust-code", "--env-kwargs", f"api_key={KEY}"]
    assert main(["eval", str(fetched), "--episodes", "1", *flags]) == 0
    changes = {"total_steps": 768, "eval_interval": 0, "env_kwargs": {"api_key": KEY}}
    with penstock.Trainer.resume(fetched, trust_code=True, **changes) as algo:
        assert algo.train(quiet=True).steps >= 768


def test_code_that_a_fetched_run_names_needs_trust(published, run, tmp_path, monkeypatch):
    monkeypatch.chdir(run.parent)
    fetched = pull(REPO, tmp_path / "fetched").path
    penstock.load_policy(fetched)  # its network is Penstock's own
    with pytest.raises(UntrustedCodeError, match=r"keyed\.py"):
        evaluate_run(fetched, episodes=1, env_kwargs={"api_key": KEY})


def test_the_card_has_front_matter_scores_and_provenance(bundle):
    _, front, body = bundle["README.md"].decode().split("---\n", 2)
    data = yaml.safe_load(front)
    assert data["library_name"] == "penstock"
    assert {"reinforcement-learning", "deep-reinforcement-learning", "ppo", "Keyed"} <= set(data["tags"])
    (result,) = data["model-index"][0]["results"]
    assert result["task"]["type"] == "reinforcement-learning" and result["dataset"]["type"] == "Keyed"
    metric = result["metrics"][0]
    mean, _, deviation = metric["value"].partition(" +/- ")
    assert metric["type"] == "mean_reward" and float(mean) >= 8.0 and float(deviation) >= 0.0
    for part in ("| best | 128 |", "| final | 512 |", "| 3 |", "deterministic", "seed 0", "| command |", "| commit |"):
        assert part in body, part


def test_a_bundle_has_metrics_weights_and_an_onnx_file_that_acts_the_same(bundle, run, tmp_path):
    assert {name for name in bundle if name.startswith("checkpoints/")} == {
        f"checkpoints/{which}/{file}" for which in ("best", "512") for file in ("meta.json", "weights.safetensors")
    }
    assert bundle["replay.mp4"] == b"a film"
    rows = list(csv.DictReader(bundle["metrics.csv"].decode().splitlines()))
    assert rows and float(rows[-1]["steps"]) > 0
    import numpy as np
    import onnxruntime

    session = onnxruntime.InferenceSession(bundle["policy.onnx"])
    observations = np.random.default_rng(0).normal(size=(50, 4)).astype(np.float32)
    (found,) = session.run(["action"], {"obs": observations})
    assert (found == penstock.load_policy(run).act(observations)).all()


def test_nothing_private_leaves(bundle, run):
    for name, data in bundle.items():
        for private in (KEY, "seals", "hf_secret_token", os.fspath(run.parent), os.uname().nodename):
            assert private.encode() not in data, (name, private)
    config = json.loads(bundle["config.json"])
    assert config["env"] == "keyed.py:Keyed" and config["env_kwargs"] == {"api_key": {"$not_saved": "secret"}}


@pytest.mark.parametrize(
    "path", ["/etc/cron.d/x", "../evil", "checkpoints/best/../../evil", "C:/evil", "a\\..\\evil", "checkpoints//meta"]
)
def test_paths_out_of_the_directory_are_refused(path, published, tmp_path):
    published.listed.append(Repository.entry(path, b"evil"))
    with pytest.raises(ExchangeError, match="leads out of the directory"):
        pull(REPO, tmp_path / "fetched")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("name", ["checkpoints/best/state.pt", "model.pkl", "policy.pth", "pytorch_model.bin"])
def test_a_repository_with_a_pickle_is_refused(name, published, tmp_path, bomb):
    published.files[name] = pickle.dumps(bomb)
    with pytest.raises(ExchangeError, match="may hold a pickle"):
        pull(REPO, tmp_path / "fetched")
    assert os.listdir(tmp_path) == ["exploded"][:0]


@pytest.mark.parametrize("name", ["checkpoints/best/weights.safetensors", "config.json", "README.md"])
def test_content_that_differs_from_the_record_is_refused(name, published, tmp_path):
    changed = bytearray(published.files[name])
    changed[len(changed) // 2] ^= 1
    published.served[name] = bytes(changed)
    with pytest.raises(ExchangeError, match=r"differs from the Hub's record"):
        pull(REPO, tmp_path / "fetched")
    assert os.listdir(tmp_path) == []


def test_weights_of_other_bytes_than_the_checkpoint_says_are_refused(published, tmp_path):
    name = "checkpoints/best/weights.safetensors"
    published.files[name] = published.files[name][:-1] + b"\xff"
    with pytest.raises(ExchangeError, match=r"is damaged: the content of weights.safetensors was altered"):
        pull(REPO, tmp_path / "fetched")
    assert os.listdir(tmp_path) == []


def test_a_pickle_that_is_named_weights_is_refused_and_not_run(published, tmp_path, bomb):
    data = pickle.dumps(bomb)
    meta = json.loads(published.files["checkpoints/best/meta.json"])
    meta["files"]["weights.safetensors"] = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    del meta["sha256"]
    meta["sha256"] = hashlib.sha256(json.dumps(meta, sort_keys=True).encode()).hexdigest()
    published.files |= {
        "checkpoints/best/weights.safetensors": data, "checkpoints/best/meta.json": json.dumps(meta).encode(),
    }  # fmt: skip
    with pytest.raises(ExchangeError, match=r"it is not a safetensors file"):
        pull(REPO, tmp_path / "fetched")
    assert os.listdir(tmp_path) == []


def test_unknown_sizes_missing_parts_and_other_repositories_are_refused(published, hub, tmp_path):
    published.listed.append({**Repository.entry("policy-a.onnx.json", b"{}"), "size": None})
    with pytest.raises(ExchangeError, match=r"the size of 'policy-a.onnx.json' is unknown"):
        pull(REPO, tmp_path / "fetched")
    published.listed[0]["size"] = 1 << 40
    with pytest.raises(ExchangeError, match="at most 17,179,869,184 are fetched"):
        pull(REPO, tmp_path / "fetched")
    hub.repositories["lab/other"] = Repository({"README.md": b"a model"})
    with pytest.raises(ExchangeError, match=r"is not a published run of Penstock: it has no config\.json"):
        pull("lab/other", tmp_path / "fetched")
    with pytest.raises(ExchangeError, match="the Hub has no repository lab/absent, or hides it"):
        pull("lab/absent", tmp_path / "fetched")
    for name in ("../x", "lab", "lab/a/b", "https://x/y"):
        with pytest.raises(ExchangeError, match="is not a repository name"):
            pull(name, tmp_path / "fetched")
    assert os.listdir(tmp_path) == []


def test_other_files_stay_on_the_hub_and_are_named(published, tmp_path, capsys):
    published.files |= {"notes/setup.py": b"raise SystemExit", ".gitattributes": b"", "run.lock": b""}
    assert main(["hub", "pull", REPO, str(tmp_path / "fetched")]) == 0
    assert "notes/setup.py" in capsys.readouterr().out
    assert not (tmp_path / "fetched" / "notes").exists() and not (tmp_path / "fetched" / "run.lock").exists()


def test_nothing_is_overwritten_here_or_there(run, published, hub, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    with pytest.raises(ExchangeError, match="mine exists, and nothing is overwritten"):
        pull(REPO, tmp_path / "mine")
    assert pull(REPO).path.as_posix() == "runs/lab-ppo-cartpole"
    published.files |= {"checkpoints/64/meta.json": b"{}", "notes.txt": b"of a person"}
    with pytest.raises(ExchangeError, match=r"has \d+ files, and nothing is overwritten: .*--replace"):
        push(run, REPO, episodes=0)
    push(run, REPO, episodes=0, replace=True)
    assert "checkpoints/64/meta.json" not in published.files and published.files["notes.txt"] == b"of a person"
    assert b"No episodes were played" in published.files["README.md"]


def test_what_cannot_be_written_or_seeded_is_refused_before_an_episode_is_played(run, published, tmp_path, capsys):
    below_a_file = str(run / "config.json" / "new")
    for flags, message in (
        (["push", str(run), REPO, "--folder", below_a_file], "new cannot be written: Not a directory"),
        (["push", str(run), REPO, "--folder", str(tmp_path / "new"), "--seed", "-1"], "seed=-1 is not legal"),
        (["pull", REPO, below_a_file], "new cannot be written: Not a directory"),
    ):
        assert main(["hub", *flags]) == 2
        assert message in capsys.readouterr().err
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("command", [["pull", REPO, "fetched"], ["push", "RUN", REPO, "--episodes", "0"]])
def test_a_hub_that_cannot_be_reached_is_an_error_without_a_traceback(command, run, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    assert main(["hub", *[str(run) if word == "RUN" else word for word in command]]) == 2
    assert "the Hub cannot be reached (" in capsys.readouterr().err
    assert os.listdir(tmp_path) == []


def test_best_weights_that_are_the_final_ones_are_published_and_scored_once(run, tmp_path):
    store = shutil.copytree(run, tmp_path / "run") / "checkpoints"
    final = load_checkpoint(store / "512")
    save_checkpoint(store / "best", meta=final.meta, weights=final.weights)
    push(tmp_path / "run", REPO, folder=tmp_path / "new", episodes=1, env_kwargs={"api_key": KEY})
    assert os.listdir(tmp_path / "new" / "checkpoints") == ["512"]
    card = (tmp_path / "new" / "README.md").read_text()
    assert "| best | 512 |" in card and "The best weights are also the final ones" in card
    assert "| final |" not in card and "checkpoints/best" not in card


@pytest.mark.long
def test_the_command_reads_the_endpoint_from_the_environment(published, hub, tmp_path):
    command = [sys.executable, "-m", "penstock.cli", "hub", "pull", REPO, "fetched"]
    environment = {**os.environ, "HF_HUB_DISABLE_XET": "1"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "fetched" in done.stdout and (tmp_path / "fetched" / "config.json").is_file()

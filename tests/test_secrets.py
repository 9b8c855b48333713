"""One training that was given secrets in every way, and all that it leaves, prints and serves: none is to be found."""

import json
import os
import shutil
import subprocess
import sys

import pytest

import penstock
from penstock.cli import main
from penstock.config import ConfigError
from penstock.config.saved import restored, saved
from penstock.redaction import masked, masked_arguments, masked_command
from penstock.runs.remote import RemoteError
from penstock.runs.run_directory import RunDirectory
from tests.dashboard.serving import dashboard_of, event

SECRET = "hunter2"
GIVEN = {
    "api_key": SECRET, "access_key": SECRET, "private_key": SECRET, "pwd": SECRET, "auth": {"password": SECRET},
    "url": f"https://user:{SECRET}@host/?token={SECRET}", "deep": {"sites": [{"bearer": SECRET, "port": 1}]},
    "text": json.dumps({"credentials": SECRET}), "max_tokens": 512, "size": 3,
}  # fmt: skip
ASKED = ("api_key", "access_key", "private_key", "pwd", "auth", "url", "deep", "text")
SCRIPT = f"""
import gymnasium
import penstock

GIVEN = {GIVEN!r}

class Vault(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (1,))
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, **given):
        assert {{**given, "size": 3}} == GIVEN

    def reset(self, *, seed=None, options=None):
        return self.observation_space.sample(), {{}}

    def step(self, action):
        return self.observation_space.sample(), 1.0, False, True, {{}}

if __name__ == "__main__":
    with penstock.PPO(
        env="vault.py:Vault", env_kwargs=GIVEN, total_steps=64, run_dir="runs/new", backend="serial", num_workers=1,
        num_envs_per_worker=2, segment_length=8, batch_size=16, eval_episodes=1, eval_interval=32,
    ) as algo:
        algo.train()
"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A folder with a run, and one of a version of Penstock that wrote settings and commands down as they were."""
    folder = tmp_path_factory.mktemp("secrets")
    (folder / "vault.py").write_text(SCRIPT)
    flags = ["--token", "my", SECRET, f"--pwd={SECRET}", f"api_key={SECRET}", json.dumps(GIVEN), "--steps", "64"]
    done = subprocess.run(
        [sys.executable, "vault.py", *flags], cwd=folder, capture_output=True, timeout=110, check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr.decode()
    assert SECRET.encode() not in done.stdout + done.stderr
    old = folder / "runs" / "old"
    shutil.copytree(folder / "runs" / "new", old)
    config = json.loads((old / "config.json").read_text())
    config["env_kwargs"] = {**GIVEN, "size": 4}
    config["run"]["command"] = f"penstock train ppo --token {SECRET} --env-kwargs pwd={SECRET}"
    (old / "config.json").write_text(json.dumps(config))
    return folder / "runs"


@pytest.mark.long
def test_no_file_of_a_run_has_them(runs):
    files = [path for path in (runs / "new").rglob("*") if path.is_file()]
    names = {path.name for path in files}
    assert {"config.json", "status.json", "metrics.jsonl", "log.txt", "evaluations.jsonl", "state.pt"} <= names
    assert [str(path) for path in files if SECRET.encode() in path.read_bytes()] == []
    config = json.loads((runs / "new" / "config.json").read_text())
    assert {name: config["env_kwargs"][name] for name in ("api_key", "auth", "max_tokens", "size")} == {
        "api_key": {"$not_saved": "secret"}, "auth": {"$not_saved": "secret"}, "max_tokens": 512, "size": 3,
    }  # fmt: skip
    assert config["env_kwargs"]["deep"] == {"sites": [{"bearer": {"$not_saved": "secret"}, "port": 1}]}
    assert config["run"]["command"].endswith("--steps 64")


@pytest.mark.long
def test_no_command_prints_them(runs, capsys, tmp_path):
    new, old = str(runs / "new"), str(runs / "old")
    by = ["--columns", "env_kwargs"]
    shown = [
        ["runs", str(runs), *by], ["runs", str(runs), "--json"], ["runs", str(runs), "--csv", *by],
        ["runs", "diff", new, old], ["runs", str(runs), "--where", "size=1"], ["info", new],
        ["compare", str(runs), "--by", "env_kwargs"], ["compare", new, "--json", "--", old],
        ["plot", str(runs), "--group-by", "env_kwargs", "--csv", str(tmp_path / "curves.csv")],
        ["resume", new, "--help"], ["resume", old, "--help"], ["resume", new], ["eval", new, "--episodes", "1"],
    ]  # fmt: skip
    for command in shown:
        main([word for word in command if word != "--"] if command[0] == "runs" else command)
    told = capsys.readouterr()
    assert SECRET not in told.out + told.err + (tmp_path / "curves.csv").read_text()
    assert '"size": 4' in told.out and "***" in told.out, "all else is shown"


@pytest.mark.parametrize(
    "command",
    [
        ["train", "ppo", "--env", "CartPole-v1", "--api-key", SECRET],
        ["train", "ppo", "--env", "CartPole-v1", "--env-kwargs", json.dumps({"api_key": SECRET})],
        ["train", "ppo", "--env", "CartPole-v1", "--env-kwargs", "api_key=my", SECRET],
        ["train", "ppo", "--env", "CartPole-v1", "--run-dir", "none", "--env-kwargs", f"api_key={SECRET}"],
        ["multirun", "ppo", "--env", "CartPole-v1", "--env-kwargs", f"api_key={SECRET}"],
        ["search", "ppo", "--env", "CartPole-v1", "--space", "x.toml", "--env-kwargs", f"api_key={SECRET}"],
        ["pbt", "ppo", "--env", "CartPole-v1", "--space", "x.toml", "--env-kwargs", f"api_key={SECRET}"],
    ],
    ids=lambda command: " ".join(command[:1] + command[4:-1]),
)
def test_no_error_repeats_them(command, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.toml").write_text("[learning_rate]\nlow = 1e-5\nhigh = 1e-2\n")
    assert main(command) == 2
    told = capsys.readouterr().err
    assert SECRET not in told and ("api" in told or "***" in told)
    if command[0] != "train":
        assert "environment variable" in told, "their runs go on by themselves"
    assert os.listdir(tmp_path) == ["x.toml"]


def test_a_resume_asks_for_them_and_goes_on_with_them(runs, capsys):
    run = str(runs / "new")
    assert main(["resume", run, "--total-steps", "96"]) == 2
    told = capsys.readouterr().err
    assert "'api_key' (secret)" in told and f"--env-kwargs {' '.join(f'{name}=...' for name in ASKED)}" in told
    again = [f"{name}={GIVEN[name] if isinstance(GIVEN[name], str) else json.dumps(GIVEN[name])}" for name in ASKED]
    again[-1] = f"text={json.dumps(GIVEN['text'])}"  # a text, not what the JSON in it says
    assert main(["resume", run, "--total-steps", "96", "--env-kwargs", *again]) == 0
    assert main(["eval", run, "--episodes", "1", "--env-kwargs", *again]) == 0
    told = capsys.readouterr().out
    assert "penstock resume" in told and "api_key=..." in told and SECRET not in told
    with penstock.PPO.resume(run, env_kwargs={name: GIVEN[name] for name in ASKED}) as algo:
        assert algo.status.steps == 96
    test_no_file_of_a_run_has_them(runs)
    with penstock.PPO.resume(run, env_kwargs={**{name: GIVEN[name] for name in ASKED}, "size": 5}):
        log = (runs / "new" / "log.txt").read_text()
    assert "with env_kwargs=" in log and "'size': 5" in log and SECRET not in log


def test_a_resume_masks_those_of_before_in_the_log(runs, tmp_path):
    """A config.json that an earlier version of Penstock wrote holds them as they were given."""
    old = shutil.copytree(runs / "old", tmp_path / "old")
    assert SECRET in (old / "config.json").read_text() and SECRET not in (old / "log.txt").read_text()
    with penstock.PPO.resume(old, env_kwargs={"size": 5}):
        log = (old / "log.txt").read_text()
    assert "'size': 5" in log and "(was {" in log and "'size': 4" in log and SECRET not in log


def test_the_dashboard_serves_none_of_them(runs):
    pytest.importorskip("uvicorn", reason="the extra dashboard is not installed")
    with dashboard_of(runs) as served:
        pages = ["/", "/api/runs"]
        ids = [row["id"] for row in json.loads(served.ask("/api/runs")[2])["runs"]]
        pages.append(f"/api/differences?runs={','.join(ids)}")
        for run in ids:
            files = json.loads(served.ask(f"/api/runs/{run}/files")[2])["files"]
            pages += [f"/api/runs/{run}{part}" for part in ("", "/history", "/progress", "/files")]
            pages += [f"/api/runs/{run}/files/{file['id']}" for file in files if file["is_text"]]
            pages += [f"/api/runs/{run}/files/{file['id']}?whole=1" for file in files if file["is_text"]]
        answers = {page: served.ask(page) for page in pages}
        assert {page for page, (code, _, body) in answers.items() if code != 200 or SECRET.encode() in body} == set()
        streams = {"/api/stream": "runs", "/api/curves?by=env_kwargs&y=evaluation/mean_return": "curves"}
        for page, name in streams.items():
            connection, stream = served.stream(page)
            assert SECRET not in event(stream, name)["data"]
            connection.close()


@pytest.mark.parametrize("url", [f"memory://user:{SECRET}@host/run", f"memory://host/run?sig=1&access_key={SECRET}"])
def test_no_run_is_kept_at_a_url_with_one(url, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RemoteError, match=r"\*\*\*.* has a secret") as caught:
        RunDirectory.create(url, env_name="CartPole-v1", algorithm="ppo", config={})
    assert SECRET not in str(caught.value) and not list(tmp_path.iterdir())


def test_words_of_commands_are_masked_by_names():
    words = ["x", "--token", "my", f"a={SECRET}", "--seed", "3", "--env-kwargs", "api_key=my", SECRET, "size=4"]
    words += [f"--env-kwargs=pwd={SECRET}", f"url=ws://u:{SECRET}@h?cookie={SECRET}&a=1", "-c", f"f(pwd={SECRET})"]
    assert masked_arguments(words) == [
        "x", "--token", "***", "***", "--seed", "3", "--env-kwargs", "api_key=***", "***", "size=4",
        "--env-kwargs=pwd=***", "url=ws://u:***@h?cookie=***&a=1", "-c", "***",
    ]  # fmt: skip
    assert masked_command("a 'b c' --pwd=x") == "a 'b c' --pwd=***"
    assert masked_command("what has no end '") == "***"


def test_names_that_only_look_like_one_are_none():
    plain = {"max_tokens": 512, "author": "me", "use_auth": True, "token": None, "password": "", "tokenizer": "bpe"}
    assert masked(plain) == plain and restored(saved(plain)) == plain
    assert masked({"tokens": ["a"], "pin_secret": 1234}) == {"tokens": "***", "pin_secret": "***"}


def test_a_config_error_masks_what_it_shows():
    with pytest.raises(ConfigError) as caught:
        penstock.PPO("CartPole-v1", env_kwargs=json.dumps({"api_key": SECRET}), run_dir=None)
    assert SECRET not in str(caught.value) and "env_kwargs" in str(caught.value)

"""Trainings whose run_dir is in S3: killed, cut off, resumed elsewhere, read by the commands; and refused in time."""

import io
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from urllib.request import urlopen

import pytest

s3fs = pytest.importorskip("s3fs")
pytest.importorskip("moto.server")

import penstock  # noqa: E402
from penstock.cli import main  # noqa: E402
from penstock.runs.checkpoint import verify_checkpoint  # noqa: E402
from penstock.runs.remote import RemoteError  # noqa: E402

pytestmark = pytest.mark.timeout(240)
KEYS = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_DEFAULT_REGION": "us-east-1"}
SMALL = ("ppo", "--env", "CartPole-v1", "--backend", "serial", "--num-workers", "1", "--seed", "1")


class Server:
    """Local server of S3, in a process of its own; what it holds is gone when it is killed."""

    def __init__(self) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.start()

    def start(self) -> None:
        command = [sys.executable, "-m", "moto.server", "-p", str(self.port)]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_until(self.answers)
        files = s3fs.S3FileSystem(key="key", secret="secret", endpoint_url=self.url, skip_instance_cache=True)
        files.mkdir("bucket")

    def answers(self) -> bool:
        try:
            return bool(urlopen(f"{self.url}/moto-api/", timeout=5).status)
        except OSError:
            return False

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


def wait_until(is_so: Callable[[], bool], seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.fixture(scope="module")
def kept_server() -> Iterator[Server]:
    server = Server()
    yield server
    server.kill()


@pytest.fixture
def server(kept_server, monkeypatch, tmp_path) -> Server:
    """Server that answers, and the environment in which runs find it."""
    for name, value in {**KEYS, "AWS_ENDPOINT_URL": kept_server.url, "XDG_CACHE_HOME": str(tmp_path / "cache")}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    return kept_server


@pytest.fixture
def files(server):
    return s3fs.S3FileSystem(use_listings_cache=False, skip_instance_cache=True)


def penstock_process(*args: str, **options) -> subprocess.Popen:
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True} | options
    return subprocess.Popen([sys.executable, "-m", "penstock.cli", *args], **options)


def output_of(*args: str) -> str:
    """Output of a command that is run in this process."""
    out = io.StringIO()
    with redirect_stdout(out), redirect_stderr(out):
        assert main(args) == 0, out.getvalue()
    return out.getvalue()


def test_a_killed_training_goes_on_on_another_machine_and_its_remote_run_is_read(files, tmp_path):
    process = penstock_process(
        "train", *SMALL, "--run-dir", "s3://bucket/lab/cart", "--total-steps", "100000000", "--eval-interval", "0",
        "--checkpoint-interval", "2048", stdout=subprocess.DEVNULL,
    )  # fmt: skip
    wait_until(lambda: len(files.glob("bucket/lab/cart/checkpoints/*/meta.json")) >= 2 or process.poll() is not None)
    process.send_signal(signal.SIGKILL)
    process.wait()
    (tmp_path / "elsewhere").mkdir()
    os.chdir(tmp_path / "elsewhere")
    text = output_of("resume", "s3://bucket/lab/cart", "--total-steps", "1", "--eval-interval", "0")
    assert "s3://bucket/lab/cart was fetched into runs/cart" in text and "nothing is left to train" in text
    newest = max(int(path.name) for path in Path("runs/cart/checkpoints").iterdir())
    [there] = files.glob(f"bucket/lab/cart/checkpoints/{newest}*")
    files.get(there, str(tmp_path / "newest"), recursive=True)
    assert verify_checkpoint(tmp_path / "newest")["steps"] == newest
    config = json.loads(files.cat("bucket/lab/cart/config.json"))
    assert config["run_dir"] == "s3://bucket/lab/cart" and len(config["run"]["resumed"]) == 1
    assert json.loads(files.cat("bucket/lab/cart/status.json"))["state"] == "done"

    assert "cart" in (table := output_of("runs", "s3://bucket/lab")) and "1 run" in table
    assert "mean return" in output_of("eval", "s3://bucket/lab/cart", "--episodes", "2")
    assert f"step {newest:,}" in output_of("info", "s3://bucket/lab/cart")
    output_of("export", "s3://bucket/lab/cart", str(tmp_path / "policy.c"))
    assert penstock.load_policy("s3://bucket/lab/cart").meta["steps"] == newest
    with pytest.raises(RemoteError, match="holds a run, and nothing is overwritten"):
        penstock.PPO("CartPole-v1", backend="serial", run_dir="s3://bucket/lab/cart")


@pytest.mark.long
def test_a_server_that_is_killed_and_starts_anew_gets_everything_at_the_end(server, files):
    with penstock.DQN(
        "CartPole-v1", backend="serial", run_dir="s3://bucket/cut", save_replay=True, eval_interval=0, total_steps=3000,
        checkpoint_interval=1000, learning_starts=200,
    ) as algo:  # fmt: skip
        algo.train(1000, quiet=True)
        wait_until(lambda: files.exists("bucket/cut/checkpoints/1000/meta.json"))
        server.kill()
        algo.train(1000, quiet=True)
        wait_until(lambda: bool(algo.status.upload_error))
        assert algo.status.unsent_files > 0
        server.start()
        result = algo.train(quiet=True)
    assert result.unsent == ()
    here = Path(algo.run_dir)
    names = {path.relative_to(here).as_posix() for path in here.rglob("*") if path.is_file()} - {"run.lock"}
    there = {name.removeprefix("bucket/cut/") for name in files.find("bucket/cut")}
    assert there == names and "replay/manifest.json" in names
    assert all(files.cat(f"bucket/cut/{name}") == (here / name).read_bytes() for name in names if "replay" in name)
    log = (here / "log.txt").read_text()
    assert "are not sent to s3://bucket/cut yet" in log and "files can be sent again, and all are sent" in log


@pytest.mark.long
def test_what_is_not_sent_at_the_end_is_named_with_an_exit_code_of_its_own(server):
    process = penstock_process(
        "train", *SMALL, "--run-dir", "s3://bucket/lost", "--total-steps", "1000000000", "--eval-interval", "0",
        "--upload-timeout", "1",
    )  # fmt: skip
    metrics = Path("runs/lost/metrics.jsonl")
    wait_until(lambda: metrics.exists() or process.poll() is not None)
    server.kill()
    size = metrics.stat().st_size
    # With further steps, the last checkpoint is one that was not sent before.
    wait_until(lambda: metrics.stat().st_size > size or process.poll() is not None)
    process.terminate()
    text, _ = process.communicate(timeout=200)
    server.start()
    assert process.returncode == 4, text
    assert "not sent to s3://bucket/lost: " in text and "checkpoints/" in text and "penstock resume" in text
    text = output_of("resume", "runs/lost", "--total-steps", "1")
    assert "nothing is left to train" in text


def test_a_place_that_cannot_be_written_is_refused_before_training(server, monkeypatch):
    def refusal(url: str = "s3://bucket/x") -> str:
        with pytest.raises(RemoteError) as caught:
            penstock.PPO("CartPole-v1", backend="serial", run_dir=url)
        return str(caught.value)

    assert "the bucket or directory does not exist" in refusal("s3://nowhere/x")
    with monkeypatch.context() as changed:
        changed.setattr(s3fs.S3FileSystem, "_pipe_file", _denied)
        assert "files cannot be written there: permission is denied" in refusal()
    with monkeypatch.context() as changed:
        changed.setattr(s3fs.S3FileSystem, "_rm_file", _denied)
        assert "files cannot be removed there (the file .penstock-probe-" in refusal()
    with monkeypatch.context() as changed:
        for name in KEYS:
            changed.delenv(name)
        changed.setenv("AWS_EC2_METADATA_DISABLED", "true")
        assert "no credentials were found" in refusal()
    with monkeypatch.context() as changed:
        changed.setitem(sys.modules, "s3fs", None)
        changed.delitem(sys.modules["fsspec.registry"]._registry, "s3")
        assert "pip install 'penstock[s3]'" in refusal()
    assert not Path("runs").exists()


async def _denied(*args, **options):
    raise PermissionError("Access Denied")

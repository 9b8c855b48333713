"""Models of Stable-Baselines3: trained there, imported here, with the same actions and without their code."""

import base64
import io
import json
import pickle
import tracemalloc
import zipfile

import import_sb3 as bench
import numpy as np
import pytest
import torch
from gymnasium import spaces
from stable_baselines3 import A2C, DQN, PPO, SAC
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

import penstock
from penstock.cli import main
from penstock.exchange import ExchangeError, import_sb3
from penstock.exchange.sb3_files import read_normalization
from penstock.play.scoring import evaluate_run
from tests.exchange.conftest import Bomb

MODELS = (
    "ppo-normalized", "ppo-continuous", "ppo-cnn-wide", "ppo-binary", "a2c-multi", "dqn-cnn", "sac", "sac-cnn", "td3",
)  # fmt: skip
ROWS = 100


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Function that trains a model of the bench, once for all tests."""
    folder, found = tmp_path_factory.mktemp("models"), {}

    def of(name):
        if name not in found:
            found[name] = bench.train(name, folder)
        return found[name]

    return of


@pytest.mark.parametrize("name", MODELS)
def test_an_imported_policy_acts_and_values_as_the_model_does(name, trained, tmp_path):
    model = trained(name)
    found = bench.differences(model, bench.imported(model, tmp_path / "run"), ROWS)
    assert found["actions"] < 1e-6 and found["parameters"] < 1e-6 and found["values"] < 5e-6, found


@pytest.mark.parametrize("name", ["ppo-continuous", "dqn-cnn"])
def test_without_an_environment_the_spaces_are_read_from_the_model(name, trained, tmp_path):
    model = trained(name)
    imported = import_sb3(model.path, out=tmp_path / "run")
    policy = penstock.load_policy(imported.path)
    observations = model.observations(20)
    seen = np.transpose(observations, (0, 3, 1, 2)) if observations.ndim == 4 else observations  # as the model's space
    theirs, _ = model.model.predict(observations, deterministic=True)
    np.testing.assert_allclose(policy.act(seen), theirs, atol=1e-6)
    assert any("--env" in note for note in imported.notes)


def test_a_run_without_an_environment_needs_one_to_be_evaluated(trained, tmp_path, capsys):
    run = str(import_sb3(trained("ppo").path, out=tmp_path / "run").path)
    assert main(["eval", run, "--episodes", "1"]) == 2
    assert "the run was imported without an environment: give one with --env" in capsys.readouterr().err
    assert main(["eval", run, "--episodes", "1", "--env", "CartPole-v1"]) == 0


def test_whole_numbers_that_are_no_image_are_scaled_by_the_first_layer(tmp_path):
    class Dice(bench.Toy):
        def __init__(self):
            super().__init__(action="choice")
            self.observation_space = spaces.Box(np.array([-3, 10]), np.array([7, 30]), dtype=np.int32)

    model = DQN("MlpPolicy", Dice(), seed=3)
    model.save(tmp_path / "dice.zip")
    policy = penstock.load_policy(import_sb3(tmp_path / "dice.zip", out=tmp_path / "run").path)
    observations = np.array([[-3, 10], [7, 30], [0, 17]], np.int32)
    theirs = model.q_net(torch.as_tensor(observations))
    obs, *_ = policy.choose(observations)
    torch.testing.assert_close(policy.model.q(torch.from_numpy(obs)), theirs, atol=1e-6, rtol=1e-6)


def test_a_run_of_a_model_is_evaluated_and_trained_further(trained, tmp_path):
    model = trained("ppo-normalized")
    run = tmp_path / "run"
    flags = ["--vec-normalize", str(model.normalization), "--env", "CartPole-v1", "--out", str(run)]
    assert main(["import-sb3", str(model.path), *flags]) == 0
    assert evaluate_run(run, episodes=2, seed=1).episodes == 2
    before = penstock.load_policy(run).model.state_dict()["policy_head.weight"].clone()
    with penstock.Trainer.resume(run, backend="serial", num_workers=1, total_steps=1500, eval_interval=0) as algo:
        started = algo.get_parameters()[0]["policy_head.weight"]
        torch.testing.assert_close(started, before, rtol=0, atol=0)
        assert algo.config.gamma == 0.99 and algo.config.reward_scale != 1.0
        result = algo.train(quiet=True)
    assert result.steps >= 1500
    again = {"backend": "serial", "num_workers": 1, "run_dir": None, "shared_encoder": False}
    with penstock.PPO("CartPole-v1", **again) as algo:
        algo.set_parameters(run)


def test_the_bomb_explodes_where_it_is_unpickled(tmp_path):
    pickle.loads(pickle.dumps(Bomb(tmp_path / "exploded")))
    assert (tmp_path / "exploded").exists()


def rewritten(path, out, **parts):
    """Copy a model's zip with other contents of some entries."""
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(out, "w") as new:
        for name in old.namelist():
            new.writestr(name, parts.get(name.partition(".")[0].replace("-", "_"), old.read(name)))
    return out


def torch_saved(value):
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


def test_pickles_in_the_data_are_not_decoded(trained, tmp_path, bomb):
    model = trained("ppo-continuous")
    data = json.loads(zipfile.ZipFile(model.path).read("data"))
    text = base64.b64encode(pickle.dumps(bomb)).decode()
    serialized = [value for value in data.values() if isinstance(value, dict) and ":serialized:" in value]
    assert len(serialized) > 5
    for value in serialized:
        value[":serialized:"] = text
    path = rewritten(model.path, tmp_path / "bombed.zip", data=json.dumps(data).encode())
    import_sb3(path, out=tmp_path / "run")


@pytest.mark.parametrize("place", ["policy.pth", "pytorch_variables.pth", "policy.optimizer.pth"])
@pytest.mark.parametrize("is_inside", [False, True], ids=["alone", "beside a tensor"])
def test_pickles_in_place_of_tensors_are_refused_and_not_run(place, is_inside, trained, tmp_path, bomb):
    model = trained("ppo-continuous")
    path = tmp_path / "bombed.zip"
    with zipfile.ZipFile(model.path) as old, zipfile.ZipFile(path, "w") as new:
        for name in old.namelist():
            payload = {"log_std": torch.zeros(2), "extra": bomb} if is_inside else bomb
            new.writestr(name, torch_saved(payload) if name == place else old.read(name))
    if place == "policy.optimizer.pth":  # it is not read
        import_sb3(path, out=tmp_path / "run")
        return
    with pytest.raises(ExchangeError, match=rf"{place} is refused: it holds something other than tensors"):
        import_sb3(path, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("protocol", [4, 5])
def test_a_bomb_in_the_file_of_a_normalization_is_refused_and_not_run(protocol, tmp_path, bomb):
    venv = VecNormalize(DummyVecEnv([bench.Toy]))
    venv.obs_rms.mean = bomb
    path = tmp_path / "bombed.pkl"
    for content in (venv, bomb, {"obs_rms": [bomb]}):
        path.write_bytes(pickle.dumps(content, protocol))
        with pytest.raises(ExchangeError, match=r"it names posix\.mkdir, which could run code"):
            read_normalization(path)


def test_a_normalization_takes_no_more_memory_than_its_bytes_suggest(tmp_path):
    path = tmp_path / "vec_normalize.pkl"
    path.write_bytes(b"\x80\x04Nr" + (50_000_000).to_bytes(4, "little") + b".")  # None, at a high index of the memo
    tracemalloc.start()
    try:
        with pytest.raises(ExchangeError, match="without named parts"):
            read_normalization(path)
        assert tracemalloc.get_traced_memory()[1] < 1 << 29
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_a_normalization_is_read_from_any_protocol(protocol, tmp_path):
    venv = VecNormalize(DummyVecEnv([bench.Toy]), epsilon=1e-3, clip_reward=7.0)
    venv.obs_rms.mean, venv.obs_rms.var = np.array([1.0, 2.0, 3.0]), np.array([4.0, 9.0, 0.0])
    venv.ret_rms.var = np.array(16.0)
    venv.observation_space.sample()  # its random generator is pickled, too
    path = tmp_path / "norm.pkl"
    path.write_bytes(pickle.dumps(venv, protocol))
    if protocol == 2:  # it writes bytes as calls of codecs
        with pytest.raises(ExchangeError, match=r"_codecs\.encode"):
            read_normalization(path)
        return
    found = read_normalization(path)
    np.testing.assert_allclose(found.mean, [1.0, 2.0, 3.0])
    np.testing.assert_allclose(found.std, np.sqrt([4.001, 9.001, 0.001]))
    assert found.reward_scale == pytest.approx(1.0 / np.sqrt(16.001)) and found.reward_clip == 7.0


def saved(tmp_path, algorithm, policy="MlpPolicy", env=None, **arguments):
    algorithm(policy, env or bench.Toy(), **arguments).save(tmp_path / "model.zip")
    return tmp_path / "model.zip"


class OwnPolicy(ActorCriticPolicy):
    pass


@pytest.mark.parametrize(
    ("algorithm", "policy", "arguments", "reason"),
    [
        (PPO, "MlpPolicy", {"policy_kwargs": {"net_arch": {"pi": [8], "vf": [8, 8]}}}, r"net_arch has \(8,\) for the"),
        (SAC, "MlpPolicy", {"policy_kwargs": {"net_arch": {"pi": [8], "qf": [9]}}}, r"\(9,\) for the critics"),
        (PPO, "MlpPolicy", {"policy_kwargs": {"activation_fn": torch.nn.LeakyReLU}}, "activation_fn is LeakyReLU"),
        (A2C, "MlpPolicy", {"use_sde": True}, "use_sde=True"),
        (SAC, "MlpPolicy", {"policy_kwargs": {"n_critics": 3}}, "n_critics=3, but here it must be 2"),
        (PPO, "MlpPolicy", {"policy_kwargs": {"log_std_init": 4.0}}, r"log_std=.*is not in \[-20\.0, 2\.0\]"),
        (PPO, OwnPolicy, {}, "its policy is a class of tests.exchange.test_sb3"),
    ],
    ids=["net_arch", "critics", "activation", "sde", "n_critics", "log_std", "own policy"],
)
def test_a_model_without_a_counterpart_is_refused_with_the_reason(algorithm, policy, arguments, reason, tmp_path):
    with pytest.raises(ExchangeError, match=reason):
        import_sb3(saved(tmp_path, algorithm, policy, **arguments), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_other_spaces_environments_and_clips_are_refused(trained, tmp_path):
    model = trained("ppo-normalized")
    with pytest.raises(ExchangeError, match=r"the model sees float32 \(4,\), but Pendulum-v1 shows float32 \(3,\)"):
        import_sb3(model.path, env="Pendulum-v1", out=tmp_path / "run")
    with pytest.raises(ExchangeError, match=r"the model chooses choices among 2, 2, 2, but Toy takes 2 numbers"):
        import_sb3(saved(tmp_path, PPO, env=bench.Toy(action="bits")), env=bench.TOY, out=tmp_path / "run")
    venv = VecNormalize(DummyVecEnv([bench.Toy]), clip_obs=5.0)
    venv.save(tmp_path / "clipped.pkl")
    with pytest.raises(ExchangeError, match="clip_obs=5 of the VecNormalize"):
        import_sb3(saved(tmp_path, PPO), vec_normalize=tmp_path / "clipped.pkl", out=tmp_path / "run")


def test_files_that_are_none_or_would_unpack_to_more_are_refused(tmp_path, capsys):
    path = tmp_path / "bad.zip"
    path.write_bytes(b"PK\x03\x04" + bytes(100))
    assert main(["import-sb3", str(path)]) == 2
    assert "is not a readable zip file" in capsys.readouterr().err
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("data", b" " * 10_000_000)
        archive.writestr("policy.pth", b"")
    with pytest.raises(ExchangeError, match=r"would unpack to 10,000,000"):
        import_sb3(path, out=tmp_path / "run")
    with pytest.raises(ExchangeError, match="cannot be read: No such file"):
        import_sb3(tmp_path / "absent.zip", out=tmp_path / "run")

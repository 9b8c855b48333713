"""A checkpoint is loaded as it was saved, or refused with a reason."""

from pathlib import Path

import pytest
import torch

from penstock.algorithms.sac import SAC
from penstock.engine.trainer import Trainer
from penstock.runs.checkpoint import (
    FORMAT_VERSION,
    CheckpointError,
    DamagedCheckpointError,
    load_checkpoint,
    require_matching,
    save_checkpoint,
    verify_checkpoint,
)
from penstock.runs.files import previous_of
from tests.runs.limits import files_no_larger_than

META = {"algorithm": "appo", "env": "CartPole-v1", "steps": 96_256, "version": 47, "config": {"gamma": 0.99}}


def weights(value: float = 1.0) -> dict[str, torch.Tensor]:
    return {"body.weight": torch.full((3, 4), value), "body.bias": torch.full((3,), value), "count": torch.tensor(7)}


def content(directory: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in directory.iterdir()}


def test_weights_state_and_meta_come_back_as_they_were(tmp_path):
    model = torch.nn.Linear(4, 3)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 4)).sum().backward()
    optimizer.step()
    state = {"optimizer": optimizer.state_dict(), "steps": 96_256, "schedule": (0.5, None, True)}
    save_checkpoint(tmp_path / "c", meta=META, weights=weights(), state=state)

    loaded = load_checkpoint(tmp_path / "c")

    assert {name: loaded.meta[name] for name in META} == META
    assert loaded.meta["format_version"] == FORMAT_VERSION
    assert loaded.weights.keys() == weights().keys()
    for name, tensor in weights().items():
        assert loaded.weights[name].dtype == tensor.dtype
        assert torch.equal(loaded.weights[name], tensor)
    assert loaded.state is not None
    assert loaded.state["schedule"] == (0.5, None, True)
    fresh = torch.optim.Adam(torch.nn.Linear(4, 3).parameters())
    fresh.load_state_dict(loaded.state["optimizer"])
    moments = optimizer.state_dict()["state"][0]["exp_avg"]
    assert torch.equal(fresh.state_dict()["state"][0]["exp_avg"], moments)


def test_a_checkpoint_may_hold_weights_only(tmp_path):
    save_checkpoint(tmp_path / "c", meta=META, weights=weights())
    assert load_checkpoint(tmp_path / "c").state is None
    assert sorted(content(tmp_path / "c")) == ["meta.json", "weights.safetensors"]


def test_tensors_that_share_memory_are_saved_each(tmp_path):
    flat = torch.arange(6.0)
    save_checkpoint(tmp_path / "c", meta=META, weights={"a": flat[:4], "b": flat[4:], "tied": flat[:4]})
    loaded = load_checkpoint(tmp_path / "c").weights
    assert loaded["tied"].tolist() == [0, 1, 2, 3]
    assert loaded["b"].tolist() == [4, 5]


def test_state_may_be_seen_in_one_memory_as_several_dtypes(tmp_path):
    memory = torch.arange(16, dtype=torch.uint8)
    state = {"numbers": memory[:8].view(torch.int64), "rest": [memory[8:12].view(torch.int32), memory[12:]]}
    save_checkpoint(tmp_path / "c", meta=META, weights=weights(), state=state)
    loaded = load_checkpoint(tmp_path / "c").state
    for found, saved in zip((loaded["numbers"], *loaded["rest"]), (state["numbers"], *state["rest"]), strict=True):
        assert found.dtype == saved.dtype and torch.equal(found, saved)


def test_a_run_of_sac_that_normalises_observations_is_saved(tmp_path):
    tiny = {
        "num_workers": 1, "num_envs_per_worker": 1, "hidden_sizes": (4,), "batch_size": 4, "buffer_size": 100,
        "learning_starts": 8, "total_steps": 100, "run_dir": None, "backend": "serial", "eval_interval": 0,
    }  # fmt: skip
    with Trainer(SAC, env="Pendulum-v1", normalize_observations=True, **tiny) as trainer:
        trainer.train(16, quiet=True)
        trainer.save(str(tmp_path / "c"))
        parameters = trainer.get_parameters()[0]
    loaded = load_checkpoint(tmp_path / "c")
    assert loaded.state is not None and loaded.meta["steps"] == 16
    assert all(torch.equal(loaded.weights[name], tensor) for name, tensor in parameters.items())


def test_not_a_number_in_the_meta_data_is_saved_as_null(tmp_path):
    save_checkpoint(tmp_path / "c", meta={**META, "mean_return": float("nan")}, weights=weights())
    assert load_checkpoint(tmp_path / "c").meta["mean_return"] is None


STATISTICS = {
    "name": "NormalizeObservation.obs_rms", "count": 9.5, "shape": [1, 2], "mean": [0.1, 2.0], "var": [1.0, 3.0],
}  # fmt: skip


def test_running_statistics_lie_in_a_file_of_their_own_and_may_be_replaced_with_the_rest(tmp_path):
    for count in (9.5, 10.5):
        save_checkpoint(tmp_path / "a", meta={"statistics": [STATISTICS | {"count": count}]}, weights=weights())
    assert load_checkpoint(tmp_path / "a").meta["statistics"] == [STATISTICS | {"count": 10.5}]
    assert b"NormalizeObservation" in content(tmp_path / "a")["statistics.json"]
    assert b"NormalizeObservation" not in content(tmp_path / "a")["meta.json"]
    save_checkpoint(tmp_path / "a", meta={"statistics": []}, weights=weights())
    assert "statistics.json" not in content(tmp_path / "a")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"mean": "all"}, "statistics.json cannot be read"),
        ({"var": [1.0]}, "obs_rms has a count of 9.5, and 2 and 1 numbers for a shape of 2"),
        ({"shape": [-1, -2]}, "is refused"),
        ({"count": float("nan")}, "a count of None"),
        ({"count": 0.0}, "a count of 0.0"),
    ],
)
def test_running_statistics_of_other_types_and_sizes_are_refused(tmp_path, wrong, message):
    save_checkpoint(tmp_path / "a", meta={"statistics": [{**STATISTICS, **wrong}]}, weights=weights())
    with pytest.raises(CheckpointError, match=message):
        load_checkpoint(tmp_path / "a")


@pytest.mark.parametrize("exchange_works", [True, False], ids=["exchange", "two renames"])
def test_a_newer_checkpoint_replaces_the_older_and_leaves_nothing_beside(tmp_path, monkeypatch, exchange_works):
    if not exchange_works:
        monkeypatch.setattr("penstock.runs.files._exchange", lambda a, b: False)
    for value in (1.0, 2.0, 3.0):
        save_checkpoint(tmp_path / "c", meta=META, weights=weights(value))
    assert load_checkpoint(tmp_path / "c").weights["body.bias"].tolist() == [3, 3, 3]
    assert [p.name for p in tmp_path.iterdir()] == ["c"]


def test_a_kill_between_the_two_renames_loses_nothing(tmp_path):
    save_checkpoint(tmp_path / "c", meta=META, weights=weights(1.0))
    (tmp_path / "c").rename(previous_of(tmp_path / "c"))
    assert load_checkpoint(tmp_path / "c").weights["body.bias"].tolist() == [1, 1, 1]
    save_checkpoint(tmp_path / "c", meta=META, weights=weights(2.0))
    assert [p.name for p in tmp_path.iterdir()] == ["c"]


def test_a_link_to_a_checkpoint_stays_a_link(tmp_path):
    save_checkpoint(tmp_path / "real", meta=META, weights=weights(1.0))
    (tmp_path / "link").symlink_to("real")
    save_checkpoint(tmp_path / "link", meta=META, weights=weights(2.0))
    assert (tmp_path / "link").is_symlink()
    assert load_checkpoint(tmp_path / "real").weights["body.bias"].tolist() == [2, 2, 2]


@pytest.mark.parametrize("already_there", [False, True])
def test_a_full_disk_raises_and_leaves_what_was_there(tmp_path, already_there):
    if already_there:
        save_checkpoint(tmp_path / "c", meta=META, weights=weights(1.0), state={"steps": 1})
    large = {"w": torch.zeros(100_000)}
    with files_no_larger_than(4096), pytest.raises(OSError, match=r"File too large"):
        save_checkpoint(tmp_path / "c", meta=META, weights=large)
    with files_no_larger_than(4096), pytest.raises(OSError, match=r"File too large"):
        save_checkpoint(tmp_path / "c", meta=META, weights={}, state=large)
    if already_there:
        assert load_checkpoint(tmp_path / "c").weights["body.bias"].tolist() == [1, 1, 1]
    assert [p.name for p in tmp_path.iterdir()] == (["c"] if already_there else [])


@pytest.mark.parametrize(
    "value", [object(), {1, 2}, [{"x": torch.dtype}], torch.ones(2).numpy(), torch.ones(2).numpy()[0]]
)
def test_state_that_could_not_be_loaded_again_is_refused_when_saved(tmp_path, value):
    with pytest.raises(TypeError, match=r"state\['rng'\].* which a checkpoint cannot hold"):
        save_checkpoint(tmp_path / "c", meta=META, weights=weights(), state={"rng": value})
    assert not (tmp_path / "c").exists()


@pytest.mark.parametrize("name", ["notes.txt", "weights.safetensors", "meta.json"])
def test_a_directory_of_the_users_is_never_replaced(tmp_path, name):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / name).write_text("{}")
    with pytest.raises(CheckpointError, match=rf"mine is not replaced: .*{name}"):
        save_checkpoint(tmp_path / "mine", meta=META, weights=weights())
    assert content(tmp_path / "mine") == {name: b"{}"}


def test_a_checkpoint_with_a_file_of_the_users_in_it_is_never_replaced(tmp_path):
    save_checkpoint(tmp_path / "c", meta=META, weights=weights(1.0))
    (tmp_path / "c" / "notes.txt").write_text("lr was too high")
    with pytest.raises(CheckpointError, match="not replaced"):
        save_checkpoint(tmp_path / "c", meta=META, weights=weights(2.0))
    assert (tmp_path / "c" / "notes.txt").read_text() == "lr was too high"


def test_a_file_is_never_replaced(tmp_path):
    (tmp_path / "mine").write_text("x")
    with pytest.raises(CheckpointError, match="not replaced"):
        save_checkpoint(tmp_path / "mine", meta=META, weights=weights())


def test_an_empty_directory_is_filled(tmp_path):
    (tmp_path / "c").mkdir()
    save_checkpoint(tmp_path / "c", meta=META, weights=weights())
    assert load_checkpoint(tmp_path / "c").meta["steps"] == 96_256


@pytest.mark.parametrize("name", ["meta.json", "state.pt", "weights.safetensors"])
@pytest.mark.parametrize("damage", ["lost", "emptied", "cut", "altered"])
def test_damage_of_any_file_is_found_and_the_file_named(tmp_path, name, damage):
    save_checkpoint(tmp_path / "c", meta=META, weights=weights(), state={"steps": 96_256})
    file = tmp_path / "c" / name
    data = file.read_bytes()
    if damage == "lost":
        file.unlink()
    elif damage == "altered":
        middle = data.index(b"96256") if name == "meta.json" else len(data) // 2
        file.write_bytes(data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :])
    else:
        file.write_bytes(b"" if damage == "emptied" else data[:-9])
    with pytest.raises(DamagedCheckpointError, match=rf"/c is damaged: .*{name}"):
        load_checkpoint(tmp_path / "c")


def test_a_damaged_checkpoint_may_be_replaced(tmp_path):
    save_checkpoint(tmp_path / "c", meta=META, weights=weights(1.0))
    for name in ("weights.safetensors", "meta.json"):
        data = (tmp_path / "c" / name).read_bytes()
        (tmp_path / "c" / name).write_bytes(data[:-5])
        save_checkpoint(tmp_path / "c", meta=META, weights=weights(2.0))
        assert load_checkpoint(tmp_path / "c").weights["body.bias"].tolist() == [2, 2, 2]


def test_no_single_bit_of_the_description_turns_over_unnoticed(tmp_path):
    # Where it makes another format or a newer version of it, the run must still go on from the checkpoint before.
    save_checkpoint(tmp_path / "c", meta={"steps": 5}, weights={})
    file = tmp_path / "c" / "meta.json"
    data = file.read_bytes()
    for bit in range(8 * len(data)):
        byte = bit // 8
        file.write_bytes(data[:byte] + bytes([data[byte] ^ 1 << bit % 8]) + data[byte + 1 :])
        with pytest.raises(DamagedCheckpointError, match=r"meta\.json"):
            verify_checkpoint(tmp_path / "c")
    save_checkpoint(tmp_path / "c", meta={"steps": 6}, weights={})
    assert verify_checkpoint(tmp_path / "c")["steps"] == 6


@pytest.mark.parametrize("word", [b"penstock checkpoint", b'"sha256": "'])
def test_a_checkpoint_damaged_where_it_says_what_it_is_may_be_replaced(tmp_path, word):
    save_checkpoint(tmp_path / "c", meta=META, weights=weights(1.0))
    file = tmp_path / "c" / "meta.json"
    data = file.read_bytes()
    assert data.count(word) >= 1
    file.write_bytes(data.replace(word, word.upper()))
    save_checkpoint(tmp_path / "c", meta=META, weights=weights(2.0))
    assert load_checkpoint(tmp_path / "c").weights["body.bias"].tolist() == [2, 2, 2]


def test_a_checkpoint_of_a_newer_penstock_asks_for_an_upgrade(tmp_path, monkeypatch):
    with monkeypatch.context() as newer:
        newer.setattr("penstock.runs.checkpoint.FORMAT_VERSION", FORMAT_VERSION + 1)
        save_checkpoint(tmp_path / "c", meta=META, weights=weights())
    with pytest.raises(CheckpointError, match=rf"newer Penstock: it has format version {FORMAT_VERSION + 1}, and") as e:
        load_checkpoint(tmp_path / "c")
    assert not isinstance(e.value, DamagedCheckpointError)


def test_what_is_no_checkpoint_is_told_apart_from_what_is_missing(tmp_path):
    with pytest.raises(CheckpointError, match="nowhere does not exist"):
        load_checkpoint(tmp_path / "nowhere")
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.png").touch()
    with pytest.raises(CheckpointError, match=r"photos is not a checkpoint: found cat\.png"):
        load_checkpoint(tmp_path / "photos")
    (tmp_path / "photos" / "meta.json").write_text('{"album": 1}')
    with pytest.raises(CheckpointError, match="not a checkpoint of Penstock"):
        load_checkpoint(tmp_path / "photos")
    with pytest.raises(CheckpointError, match="found a file"):
        load_checkpoint(tmp_path / "photos" / "cat.png")


class Bomb:
    def __reduce__(self):
        return Path.touch, (Path("exploded"),)


def test_loading_never_executes_code(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("penstock.runs.tensors._plain", lambda value, where: value)
    save_checkpoint(tmp_path / "c", meta=META, weights=weights(), state={"bomb": Bomb()})
    with pytest.raises(CheckpointError, match=r"state\.pt is refused"):
        load_checkpoint(tmp_path / "c")
    assert not Path("exploded").exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"body.bias": None}, r"my-run is of another architecture: 'body.bias' of shape \(3,\) is missing"),
        ({"body.weight": torch.zeros(3, 5)}, r"its 'body.weight' has shape \(3, 5\), and this model's has \(3, 4\)"),
        ({"head.weight": torch.zeros(1)}, r"'head.weight' does not exist in this model"),
    ],
    ids=["missing", "mis-shaped", "unexpected"],
)
def test_weights_of_another_architecture_are_refused_by_name(change, message):
    loaded = {name: tensor for name, tensor in {**weights(), **change}.items() if tensor is not None}
    with pytest.raises(CheckpointError, match=message):
        require_matching(loaded, weights(), "my-run")


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_are_refused_by_name(value):
    loaded = {**weights(), "body.bias": torch.tensor([0.0, value, 0.0])}
    with pytest.raises(CheckpointError, match=r"my-run cannot be used: its 'body\.bias' holds NaN or infinity"):
        require_matching(loaded, weights(), "my-run")


def test_weights_of_the_same_architecture_are_accepted():
    require_matching(weights(2.0), weights(1.0), "my-run")

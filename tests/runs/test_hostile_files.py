"""One odd file costs a message about its own run, and nothing of the others."""

import hashlib
import io
import json
import zipfile

import pytest
import torch

from penstock.algorithms.ppo import PPO, PPOConfig
from penstock.config import ConfigError
from penstock.envs.spaces import ActionSpec, ObservationSpec
from penstock.play.policy import load_policy, specs_to_json
from penstock.population.lineage import Lineage
from penstock.population.schedule import load_schedule
from penstock.runs.checkpoint import META, CheckpointError, load_checkpoint, save_checkpoint
from penstock.runs.documents import DocumentError, document_in, read_document
from penstock.runs.files import LinesLog
from penstock.runs.reading import find_runs
from penstock.runs.run_directory import RunDirectory, UnreadableRunError
from penstock.runs.tensors import as_bytes
from penstock.search.directory import SearchDirectory
from penstock.studies.table import as_csv, as_table, command, differences
from tests.dashboard.serving import dashboard_of
from tests.runs.hostile import DEEP, configs, described, statuses, write_all
from tests.studies.recorded import record

SPECS = ObservationSpec((4,), "float32"), ActionSpec((), "int64", 2)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with one good run, and copies of it with every file that may be odd."""
    place = tmp_path_factory.mktemp("runs")
    good = record(place / "good", [(100, 5.0), (200, 7.0)], seed=7).directory.path
    config, status = (json.loads((good / name).read_text()) for name in ("config.json", "status.json"))
    write_all(place / "odd", "config.json", configs(config), good)
    write_all(place / "odd", "status.json", statuses(status), good)
    return place


def test_the_table_of_all_runs_has_the_good_one_whatever_the_others_hold(place, capsys):
    runs = find_runs([place])
    assert command([str(place)]) == command([str(place), "--csv"]) == command([str(place), "--json"]) == 0
    printed = capsys.readouterr().out
    assert "good" in printed and " is unreadable: " in printed
    as_table(runs), as_csv(runs), differences(runs)
    row = next(run.summary for run in runs if run.name == "good")
    assert (row["state"], row["seed"], row["steps"]) == ("done", 7, 200)
    unreadable = [run.summary for run in runs if run.summary["state"] == "unreadable"]
    assert len(unreadable) > 50
    assert all("json" in row["reason"] and row["run"].startswith("odd/") for row in unreadable)
    of_the_status = [row for row in unreadable if row["run"].startswith("odd/status")]
    assert of_the_status and all((row["algorithm"], row["seed"]) == ("ppo", 7) for row in of_the_status)


@pytest.mark.long
def test_the_overview_and_every_page_of_the_dashboard_answer(place):
    pytest.importorskip("uvicorn", reason="the extra dashboard is not installed")
    with dashboard_of(place) as served:

        def answer(path):
            code, _, body = served.ask(path)
            assert code == 200, path
            return json.loads(body)

        rows = answer("/api/runs")["runs"]
        assert {row["run"] for row in rows} >= {"good", "odd/config.json-1", "odd/status.json-1"}
        for number, row in enumerate(rows):
            for page in ("", "/history", "/files") if number % 9 == 0 else ("",):
                answer(f"/api/runs/{row['id']}{page}")
        answer(f"/api/differences?runs={','.join(row['id'] for row in rows[:20])}")
    shown = next(row for row in rows if row["run"] == "odd/config.json-1")
    assert shown["state"] == "unreadable" and "config.json cannot be read: it is not JSON" in shown["reason"]


def test_a_run_that_is_asked_for_by_name_says_why_it_cannot_be_read(place):
    with pytest.raises(UnreadableRunError, match=r"config\.json cannot be read: it is not JSON"):
        RunDirectory.open(place / "odd" / "config.json-1")


def test_a_file_is_refused_by_size_depth_and_type_with_its_name_and_what_was_found(tmp_path):
    file = tmp_path / "a.json"
    file.write_bytes(b"[" + b"1," * 600 + b"1]")
    with pytest.raises(DocumentError, match=r"a\.json cannot be read: it has more than 1,000 bytes"):
        read_document(file, list[int], 1000)
    with pytest.raises(DocumentError, match=r'it cannot be read: \[3\] is "a", not a whole number'):
        document_in('[1, 2, 3, "a"]', "it", list[int])
    for text in ("[" * 65 + "]" * 65, "[" * 10**6):
        with pytest.raises(DocumentError, match="nested deeper than 64 levels"):
            document_in(text, "it", list)
    assert document_in('{"a": NaN, "b": [[1.5]]}', "it") == {"a": None, "b": [[1.5]]}


def sealed(data):
    return {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}


@pytest.fixture
def checkpoint(tmp_path):
    """A checkpoint of a small network of PPO, as `load_policy` reads it."""
    actor = PPO(PPOConfig(env="CartPole-v1", hidden_sizes=(8,)), *SPECS)
    meta = {"algorithm": "ppo", "config": actor.config.to_json(), "specs": specs_to_json(*SPECS)}
    return save_checkpoint(tmp_path / "c", meta=meta, weights=actor.build_model().state_dict(), state={"steps": 3})


@pytest.mark.parametrize("name", ["../secret", "/etc/hostname", "sub/../../secret", "other", "", ".", "state.pt/"])
def test_a_checkpoint_reads_no_file_but_its_own(checkpoint, name):
    (checkpoint.parent / "secret").write_bytes(b"secret")
    described(checkpoint, files={name: sealed(b"secret")})
    with pytest.raises(CheckpointError, match=r"names the file .*, which no checkpoint has"):
        load_checkpoint(checkpoint)


def test_a_checkpoint_follows_no_link(checkpoint):
    state = checkpoint / "state.pt"
    state.rename(checkpoint.parent / "elsewhere")
    state.symlink_to(checkpoint.parent / "elsewhere")
    with pytest.raises(CheckpointError, match=r"state\.pt is not an ordinary file"):
        load_checkpoint(checkpoint)


@pytest.mark.parametrize(
    "files", [None, [], {"state.pt": 3}, {"state.pt": {"bytes": "3", "sha256": ""}}, {"state.pt": {"bytes": 1}}]
)
def test_a_description_of_other_types_is_refused(checkpoint, files):
    with pytest.raises(CheckpointError, match=r"meta\.json cannot be read: files"):
        load_checkpoint(described(checkpoint, files=files))


@pytest.mark.parametrize("name", ["weights.safetensors", "state.pt"])
def test_files_that_no_library_can_read_are_refused_with_their_name(checkpoint, name):
    garbage = b"\x08" + bytes(7) + b'{"a": 1}' + bytes(100)
    (checkpoint / name).write_bytes(garbage)
    files = json.loads((checkpoint / META).read_bytes())["files"]
    with pytest.raises(CheckpointError, match=f"{name} is refused"):
        load_checkpoint(described(checkpoint, files={**files, name: sealed(garbage)}))


def test_state_that_unpacks_to_more_than_its_bytes_is_refused(tmp_path, monkeypatch):
    packed, small = as_bytes({"zeros": torch.zeros(1_000_000)}), io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(packed)) as stored, zipfile.ZipFile(small, "w", zipfile.ZIP_DEFLATED) as deflated:
        for entry in stored.infolist():
            deflated.writestr(entry.filename, stored.read(entry))
    monkeypatch.setattr("penstock.runs.checkpoint.as_bytes", lambda state: small.getvalue())
    save_checkpoint(tmp_path / "c", meta={}, weights={"w": torch.zeros(1)}, state={})
    with pytest.raises(CheckpointError, match=r"state\.pt is refused.* has \S+ bytes and would unpack to 4,000,\d+"):
        load_checkpoint(tmp_path / "c")


def test_a_number_that_stands_for_a_large_tensor_is_refused(tmp_path, monkeypatch):
    data, many = io.BytesIO(), [torch.zeros(1).expand(10**9)]
    for _ in range(60):
        many = [many, many]  # each list counts once
    torch.save({"optimizer": {"state": many}}, data)
    monkeypatch.setattr("penstock.runs.checkpoint.as_bytes", lambda state: data.getvalue())
    save_checkpoint(tmp_path / "c", meta={}, weights={"w": torch.zeros(1)}, state={})
    with pytest.raises(CheckpointError, match=r"state\.pt is refused.* has \S+ bytes and tensors of 4,000,000,000"):
        load_checkpoint(tmp_path / "c")


@pytest.mark.parametrize("sizes", [[10**9, 10**9], [10**9], [64] * 10**5])
def test_a_network_that_its_weights_do_not_fill_is_refused_before_it_is_made(checkpoint, sizes):
    config = json.loads((checkpoint / META).read_bytes())["config"]
    assert load_policy(checkpoint).act([0.0] * 4) in (0, 1)
    with pytest.raises(CheckpointError, match=r"is refused: its weights have \d+ bytes, but its settings make"):
        load_policy(described(checkpoint, config={**config, "hidden_sizes": sizes}))


@pytest.mark.parametrize("specs", [{}, {"observation": [], "action": {}}, {"observation": {"shape": 3}, "action": 1}])
def test_specs_of_other_types_are_refused(checkpoint, specs):
    with pytest.raises(CheckpointError, match="is not the checkpoint of a policy"):
        load_policy(described(checkpoint, specs=specs))


def test_layers_that_memory_does_not_hold_are_refused_with_the_arithmetic():
    with pytest.raises(MemoryError, match=r"1000000000 x 1000000000: 1,000,000,006,000,000,000 float32\) needs"):
        PPO(PPOConfig(env="CartPole-v1", hidden_sizes=(10**9, 10**9)), *SPECS).build_model()


@pytest.mark.parametrize("text", ["", "[]", DEEP, '{"facts": 3}', '{"algorithm": "ppo"}'])
def test_the_facts_of_a_search_are_refused_by_what_is_wrong(tmp_path, text):
    (tmp_path / "search.json").write_text(text)
    with pytest.raises(ConfigError, match=r"search\.json cannot be read: "):
        SearchDirectory.open(tmp_path)


@pytest.mark.parametrize("line", ["", "[]", DEEP, '{"event": "start", "policy": [], "steps": 0, "after": {}}'])
def test_a_lineage_is_refused_by_the_line_that_is_wrong(tmp_path, line):
    (tmp_path / "lineage.jsonl").write_text(f"{line}\n")
    with pytest.raises(ConfigError, match="is no lineage: line 1"):
        load_schedule(tmp_path)
    with pytest.raises(ConfigError, match="is no lineage: line 1"):
        Lineage(LinesLog(tmp_path / "lineage.jsonl", print), ["0"]).truncate(1)

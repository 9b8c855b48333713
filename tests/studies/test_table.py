"""`penstock runs`: which runs it shows, in which order, and as what."""

import csv
import io
import json

import pytest
from rich.console import Console

from penstock.cli import main
from penstock.runs.reading import find_runs
from penstock.studies.table import as_table
from tests.studies.recorded import record


@pytest.fixture
def runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    record(tmp_path / "runs" / "a", [(100, 5.0)], learning_rate=1e-3, hidden_sizes=[64, 64])
    record(tmp_path / "runs" / "b", [(100, 50.0)], learning_rate=3e-4, seed=1, state="failed", reason="boom")
    record(tmp_path / "runs" / "c", [(100, 10.0)], algorithm="dqn", env="ALE/Pong-v5", buffer_size=7)
    return tmp_path / "runs"


def shown(capsys, *args):
    assert main(["runs", *args, "--json"]) == 0
    return [run["run"] for run in json.loads(capsys.readouterr().out)]


@pytest.mark.parametrize(
    ("where", "found"),
    [
        ("", "abc"), ("state=done", "ac"), ("state!=done", "b"), ("env=ALE*", "c"), ("learning_rate<1e-3", "b"),
        ("learning_rate<=1e-3 seed=0", "a"), ("best_return>5", "bc"), ("best_return>=5", "abc"), ("seed=1", "b"),
        ("buffer_size=None", "ab"), ("buffer_size>0", "c"), ("hidden_sizes=[64,64]", "a"), ("algorithm=d?n", "c"),
    ],
)  # fmt: skip
def test_conditions_choose(runs, capsys, where, found):
    assert shown(capsys, "--where", where) == list(found)


def test_order_is_by_any_column_or_setting_and_what_is_not_known_comes_last(runs, capsys):
    assert shown(capsys, "--sort", "best_return") == ["a", "c", "b"]
    assert shown(capsys, "--sort", "best_return", "--reverse") == ["b", "c", "a"]
    assert shown(capsys, "--sort", "learning_rate") == ["b", "a", "c"]
    assert shown(capsys, "--sort", "learning_rate", "--reverse") == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--where", "stat=done"], "'stat' is neither a column nor a setting of these runs; did you mean 'state'?"),
        (["--where", "state"], "--where 'state' is not a condition: write KEY=VALUE"),
        (["--where", "seed<x"], "'x' is not a number"),
        (["--sort", "bset_return"], "did you mean 'best_return'?"),
        (["--columns", "gama"], "--columns 'gama'"),
        (["nowhere"], "nowhere does not exist"),
        (["diff", "runs/a"], "usage: penstock runs diff A B"),
        (["diff", "runs/a", "runs"], "not a run"),
    ],
)  # fmt: skip
def test_wrong_usage_is_told(runs, capsys, args, message):
    assert main(["runs", *args]) == 2
    assert message in capsys.readouterr().err


def test_json_has_everything_and_csv_what_is_asked_for(runs, capsys):
    main(["runs", "--json", "--where", "state=failed"])
    (run,) = json.loads(capsys.readouterr().out)
    assert (run["reason"], run["config"]["learning_rate"]) == ("boom", 3e-4) and run["made"]["machine"]["cpu"]
    main(["runs", "--csv", "--columns", "hidden_sizes"])
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [row["hidden_sizes"] for row in rows] == ["[64, 64]", "", ""]
    assert [row["eval_return"] for row in rows] == ["5.0", "50.0", "10.0"]


def test_the_table_shows_what_there_is(runs, capsys):
    main(["runs", "--where", "algorithm=ppo", "--columns", "learning_rate"])
    out = capsys.readouterr().out
    assert all(word in out for word in ("failed", "CartPole-v1", "0.0003", "50.0", "2 runs, 1 other not shown"))
    assert "Pong" not in out
    (runs.parent / "empty").mkdir()
    main(["runs", "empty"])
    assert capsys.readouterr().out == "no runs in empty\n"


@pytest.mark.parametrize(
    ("width", "left_out"), [(60, "algorithm, env, seed, steps, time, best, steps/s, limited by, ago"), (200, "")],
)  # fmt: skip
def test_a_narrow_terminal_leaves_columns_out_and_cuts_no_number(runs, width, left_out):
    name = "lr/CartPole-v1-ppo-learning_rate-1e-3-seed4"
    record(runs / name, [(1_234_567, -1234.5)], target=5.0)
    console = Console(file=io.StringIO(), width=width)
    console.print(as_table(find_runs([runs]), (), width))
    text = console.file.getvalue()
    assert "-1,234.5" in text and text.count("…") == bool(left_out) and "-seed4" in text
    assert (f"60 columns have no room for: {left_out}" in " ".join(text.split())) == bool(left_out)
    assert (name in text) == (not left_out)


def test_what_a_copied_run_is_called_is_shown_and_not_obeyed(runs, capsys):
    record(runs / "d", env="\x1b[2J[red]evil[/red]\x07")
    main(["runs", "--where", "run=d"])
    out = capsys.readouterr().out
    assert "\x1b" not in out and "\x07" not in out and "[red]evil[/red]" in out


def test_two_runs_differ_in_what_they_were_made_with(runs, capsys):
    assert main(["runs", "diff", "runs/a", "runs/b"]) == 0
    out = capsys.readouterr().out
    assert all(word in out for word in ("learning_rate", "0.001", "0.0003", "seed"))
    assert "run_dir" not in out and "total_steps" not in out
    assert main(["runs", "diff", "runs/a", "runs/a"]) == 0
    assert capsys.readouterr().out.startswith("the same")

"""`penstock plot`: what is drawn, the same bytes each time, and what a reader is warned of."""

import csv
import io
import re
import sys
from xml.etree import ElementTree

import pytest

from penstock.cli import main
from tests.studies.recorded import record

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for seed in range(5):
        record(tmp_path / f"runs/ppo-{seed}", [(100, 1.0 + seed), (200, 11.0 + seed)], seed=seed)
    for seed in range(2):
        record(tmp_path / f"runs/dqn-{seed}", [(100, 3.0), (200, 5.0)], algorithm="dqn", seed=seed, env="Acrobot-v1")
    return tmp_path / "runs"


def texts(path):
    return ["".join(text.itertext()).strip() for text in ElementTree.parse(path).iter(f"{SVG}text")]


@pytest.mark.parametrize("form", ["svg", "png", "pdf"])
def test_the_same_runs_give_the_same_bytes(runs, monkeypatch, form):
    assert main(["plot", "--out", f"a.{form}"]) == 0
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1")
    import matplotlib

    matplotlib.rcParams["font.size"] = 20  # a user's own style changes nothing
    try:
        assert main(["plot", "--out", f"b.{form}"]) == 0
    finally:
        matplotlib.rcdefaults()
    drawn = (runs.parent / f"a.{form}").read_bytes()
    assert drawn == (runs.parent / f"b.{form}").read_bytes()
    assert drawn.startswith({"svg": b"<?xml", "png": b"\x89PNG", "pdf": b"%PDF"}[form])


def test_environments_have_axes_each_and_groups_a_curve_each(runs, capsys):
    assert main(["plot", "--out", "a.svg", "--target", "9"]) == 0
    found = texts(runs.parent / "a.svg")
    assert {"CartPole-v1", "Acrobot-v1", "ppo (5)", "dqn (2)"} <= set(found)
    assert found.count("evaluation/mean_return") == found.count("steps") == 2


def test_a_line_of_words_tells_each_curve(runs, capsys):
    assert main(["plot", "--where", "algorithm=ppo"]) == 0
    out, err = capsys.readouterr()
    assert "ppo  5 runs" in out and "13.0 [" in out and out.rstrip().endswith("at 200")
    assert err == ""
    main(["plot", "--where", "algorithm=ppo", "--band", "none"])
    assert "13.0 at 200" in capsys.readouterr().out


def test_a_table_has_every_point_of_every_run_and_of_the_curve(runs):
    main(["plot", "--where", "algorithm=ppo", "--csv", "a.csv"])
    rows = list(csv.DictReader(io.StringIO((runs.parent / "a.csv").read_text())))
    of_runs = [row for row in rows if row["run"]]
    assert len(of_runs) == 10 and {row["seed"] for row in of_runs} == set("01234")
    last = [row for row in rows if not row["run"]][-1]
    assert (float(last["steps"]), float(last["evaluation/mean_return"])) == (200.0, 13.0)
    assert 11.0 <= float(last["low"]) < 13.0 < float(last["high"]) <= 15.0


def test_few_seeds_are_warned_of_and_each_is_drawn(runs, capsys):
    main(["plot", "--where", "algorithm=dqn", "--out", "few.svg", "--csv", "few.csv"])
    out, err = capsys.readouterr()
    assert "dqn on Acrobot-v1: 2 runs are too few for an interval" in err
    assert "[" not in out
    rows = list(csv.DictReader(io.StringIO((runs.parent / "few.csv").read_text())))
    assert all(row["low"] == row["high"] == "" for row in rows)
    main(["plot", "--where", "algorithm=dqn seed=0", "--out", "one.svg"])
    lines = [
        sum(element.get("id", "").startswith("line2d") for element in ElementTree.parse(name).iter())
        for name in ("one.svg", "few.svg")
    ]
    assert lines[1] == lines[0] + 1


def test_a_reader_is_told_of_runs_that_are_missing_broken_short_or_alike(runs, capsys):
    record(runs / "none", algorithm="a2c")
    record(runs / "short", [(100, 1.0), (120, 1.0)], seed=9, state="failed")
    record(runs / "twin", [(100, 1.0), (200, 1.0)], seed=0, gamma=0.5)
    main(["plot", "--where", "env=CartPole-v1"])
    err = capsys.readouterr().err
    assert "1 run without such a metric, not drawn: none" in err
    assert "1 run not done: short" in err
    assert "the curve ends with its shortest run at 120, its longest run at 200" in err
    assert "several runs have the same seed" in err


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--y", "loss/nothing"], "none of these 7 runs has 'loss/nothing' over 'steps'; they have evaluation/mean"),
        (["--group-by", "gama"], "--group-by 'gama' is neither"),
        (["--out", "a.gif"], "the name must end in .svg, .png, .pdf"),
        (["nowhere"], "nowhere does not exist"),
    ],
)  # fmt: skip
def test_wrong_usage_is_told(runs, capsys, args, message):
    assert main(["plot", *args]) == 2
    assert message in capsys.readouterr().err


def test_without_matplotlib_it_says_how_to_get_it(runs, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main(["plot", "--out", "a.svg"]) == 2
    assert "pip install 'penstock[plot]'" in capsys.readouterr().err
    assert main(["plot"]) == 0


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--csv", "nowhere/x.csv"], "--csv nowhere/x.csv cannot be written: there is no directory"),
        (["--csv", "runs"], "--csv runs cannot be written: it exists; give another name"),
        (["--out", "nowhere/x.svg"], "--out nowhere/x.svg cannot be written: there is no directory"),
    ],
)
def test_a_file_that_cannot_be_written_is_refused(runs, capsys, args, message):
    assert main(["plot", *args]) == 2
    assert message in capsys.readouterr().err


def test_runs_without_steps_in_common_have_no_curve(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    record(tmp_path / "runs/early", [(100, 1.0), (200, 2.0)], seed=0)
    record(tmp_path / "runs/late", [(300, 1.0), (400, 2.0)], seed=1)
    assert main(["plot"]) == 0
    out, err = capsys.readouterr()
    assert "2 runs, with no steps in common" in out
    assert "ppo on CartPole-v1: no curve: the runs have no steps in common: early ends at 200, and late begins" in err
    assert main(["plot", *re.search("(--where) '(.*?)'", err).groups()]) == 0
    out, err = capsys.readouterr()
    assert "ppo  1 run" in out and "no curve" not in err

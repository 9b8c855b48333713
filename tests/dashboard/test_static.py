"""Files of the page: none from elsewhere, none that runs text as code, and uPlot unchanged."""

import hashlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.cli import main

STATIC = Path(__file__).parents[2] / "penstock" / "dashboard" / "static"
OWN = [path for path in STATIC.iterdir() if not path.name.startswith("uPlot")]
UPLOT = {  # of uplot 1.6.32 on npm
    "uPlot.esm.js": "5dd9b3281aa64b461b42d9945f6adb2649d346502b12281a9ae0d46599a80eba",
    "uPlot.min.css": "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
    "uPlot.LICENSE": "8f989229699b4fe2f1a0432d0e9edc338a8a911e250e2d1b01ecd770a5f5b1bd",
}


@pytest.mark.parametrize("name", UPLOT)
def test_uplot_is_as_it_was_published(name):
    assert hashlib.sha256((STATIC / name).read_bytes()).hexdigest() == UPLOT[name]


@pytest.mark.parametrize("path", OWN, ids=lambda path: path.name)
def test_nothing_comes_from_elsewhere_and_no_text_becomes_code(path):
    text = path.read_text().replace("http://www.w3.org/2000/svg", "")
    assert not re.search(r"https?://|//cdn|@import", text)
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function|srcdoc", text)


def test_every_file_is_served_and_no_other():
    from penstock.dashboard.server import FILES

    assert set(FILES) | {"index.html"} == {path.name for path in STATIC.iterdir()}


def test_without_the_extra_it_says_how_to_get_it(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert main(["dashboard"]) == 2
    assert "pip install 'penstock[dashboard]'" in capsys.readouterr().err


@pytest.mark.timeout(60)
def test_help_answers_without_it():
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "penstock.cli", "dashboard", "--help"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "--allow-host" in done.stdout and not imported & {"uvicorn", "starlette", "torch", "numpy"}


def test_the_set_up_of_a_browser_changes_nothing_where_it_cannot_be_done(tmp_path):
    script = Path(__file__).with_name("set_up_browser.sh")
    done = subprocess.run(
        ["/bin/sh", script, tmp_path], env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=True
    )  # fmt: skip
    assert done.stdout.count("will be skipped") == 3 and list(tmp_path.iterdir()) == []

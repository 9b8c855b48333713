"""Every public name has its place in the Python API reference, and every page there has an example."""

import dataclasses
import importlib
import inspect
import re

import pytest

import penstock
from penstock import replay, studies
from penstock.algorithms.bases.algorithm import Request
from penstock.experience.batch import Batch, SequenceBatch, TransitionBatch
from penstock.experience.layout import Column
from penstock.runs import status
from tests.places import DOCS

PAGES = {page.name: page.read_text() for page in sorted((DOCS / "reference" / "python").glob("*.md"))}
DIRECTIVE = re.compile(r"^\.\. auto\w+:: ([\w.]+)$", re.MULTILINE)
DESCRIBED = [name for text in PAGES.values() for name in DIRECTIVE.findall(text)]
NO_PAGE = {"__version__", "replay"}
MODULES_OF_ERRORS = (
    "penstock.config", "penstock.envs", "penstock.engine.trainer", "penstock.runs.checkpoint",
    "penstock.runs.run_directory", "penstock.runs.vacancy", "penstock.studies", "penstock.replay",
    "penstock.export",
)  # fmt: skip
"""Modules from which users import exceptions."""
RESULTS = (
    "penstock.engine.trainer.TrainResult", "penstock.play.evaluation.Evaluation", "penstock.play.evaluation.Match",
    "penstock.engine.acting.inference.Best", "penstock.engine.inspection.Inspection",
)  # fmt: skip
"""Classes of what public methods return."""


def found(name: str) -> object:
    """Return the object that a dotted name leads to."""
    module, _, attribute = name.rpartition(".")
    return getattr(importlib.import_module(module), attribute)


def errors_of(module: str) -> set[str]:
    """Return the dotted names of the exceptions that a module offers, or has where it does not say what it offers."""
    there = importlib.import_module(module)
    names = getattr(there, "__all__", [name for name, each in vars(there).items() if _is_of(each, module)])
    return {f"{module}.{name}" for name in names if _is_error(getattr(there, name))}


def _is_error(member: object) -> bool:
    return inspect.isclass(member) and issubclass(member, BaseException)


def _is_of(member: object, module: str) -> bool:
    return inspect.isclass(member) and member.__module__ == module


def test_every_public_name_is_described():
    public = {f"penstock.{name}" for name in penstock.__all__ if name not in NO_PAGE}
    assert public - set(DESCRIBED) == set()


def test_every_name_of_the_replay_library_is_described():
    assert {f"penstock.replay.{name}" for name in replay.__all__} - set(DESCRIBED) == set()


def test_every_name_of_the_studies_is_described():
    assert {f"penstock.studies.{name}" for name in studies.__all__} - set(DESCRIBED) == set()


def test_every_part_of_a_status_is_described():
    own = [each for each in vars(status).values() if inspect.isclass(each) and each.__module__ == status.__name__]
    assert {f"{status.__name__}.{each.__name__}" for each in own} - set(DESCRIBED) == set()


def test_every_result_is_described():
    assert set(RESULTS) - set(DESCRIBED) == set()


@pytest.mark.parametrize("module", MODULES_OF_ERRORS)
def test_every_error_is_described(module):
    assert errors_of(module) - set(DESCRIBED) == set()


@pytest.mark.parametrize("kind", [Batch, TransitionBatch, SequenceBatch, Request, Column])
def test_every_field_of_what_methods_of_an_algorithm_receive_is_described(kind):
    table = PAGES["base-classes.md"].partition(f"| field of `{kind.__name__}` |")[2].partition("\n\n")[0]
    named = re.findall(r"`(\w+)`", " ".join(re.findall(r"^\|(.*?)\|", table, re.MULTILINE)))
    assert sorted(named) == sorted(field.name for field in dataclasses.fields(kind))


def test_nothing_is_described_twice():
    assert sorted(DESCRIBED) == sorted(set(DESCRIBED))


@pytest.mark.parametrize("name", DESCRIBED)
def test_what_is_described_has_a_docstring_of_its_own(name):
    described = found(name)
    own = vars(described).get("__doc__") if inspect.isclass(described) else inspect.getdoc(described)
    assert own


@pytest.mark.parametrize("name", [name for name in PAGES if name != "index.md"])
def test_every_page_has_an_example(name):
    assert "```python\n" in PAGES[name]

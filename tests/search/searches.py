"""Searches of tests."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

from penstock.algorithms.appo import APPOConfig
from penstock.search.directory import SearchDirectory
from penstock.search.space import space_of
from tests.search import fake_training

LEARNING_RATE = {"learning_rate": {"low": 1e-3, "high": 1.0}}


def search_in(path: Path, *, seeds: int = 1, tables=LEARNING_RATE, is_pruned: bool = True, **changes):
    """A search of APPO: its directory, its study, and what makes a `Searching` of them."""
    from penstock.search.job import Shared
    from penstock.search.searching import Searching
    from penstock.search.study import Study

    config = replace(APPOConfig(env="CartPole-v1", total_steps=fake_training.STEPS, num_workers=1), **changes)
    space = space_of(tables, config)
    facts = {
        "algorithm": "appo", "flags": ["--env", "CartPole-v1"], "workers": 1, "config": config.to_json(),
        "space": space.to_json(), "seeds": seeds,
    }  # fmt: skip
    directory = SearchDirectory.share(path, facts)
    study = Study(directory, space, config, seeds, is_pruned=is_pruned)
    lines: list[str] = []

    def searching(trials: int, *, jobs: int = 1, cores=None, report=lines.append) -> Searching:
        seeds_of_trial = range(config.seed, config.seed + seeds)
        shared = Shared(directory, ["appo", "--env", "CartPole-v1"], config, seeds_of_trial, report)
        return Searching(shared, study, trials, cores or [[0]] * jobs)

    return SimpleNamespace(directory=directory, study=study, space=space, searching=searching, lines=lines)

"""Many runs from Python: rows for a data frame, comparisons, and curves on Matplotlib axes.

Tables are lists of dicts, one per row, as ``pandas.DataFrame(rows)`` and ``polars.DataFrame(rows)`` accept them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from penstock.runs.reading import find_runs, readable
from penstock.studies import EVALUATION, StudyError, compare, multirun, plan, plot, warn
from penstock.studies.conditions import chosen, value_of
from penstock.studies.curves import curves_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Place = str | os.PathLike[str]
Row = dict[str, Any]

_ABOUT = ("env", "algorithm", "seed")


def train_runs(
    algorithms: str | Sequence[str], *, seeds: int | None = None, jobs: int | None = None, name: str | None = None,
    grid: Mapping[str, Sequence[Any]] | None = None, zip_grid: bool = False, **settings: Any,
) -> list[Row]:  # fmt: skip
    """Train a run for each algorithm, combination of settings and seed, as ``penstock multirun`` does.

    Repeating the call skips finished runs and resumes the others. Every run is a separate process, so settings are
    plain values: an environment is an id, "module:Class" or "file.py:Class".

    Parameters
    ----------
    algorithms
        Name of an algorithm as on the command line, or several.
    seeds
        Number of seeds, from 0 on; None: one, or the ``seed`` in `settings` or `grid`.
    jobs
        Runs at a time, each on its own cores; None: one, or on a cluster as many as fit.
    name
        Folder in ``runs/``; None: derived from algorithms and settings.
    grid
        Values of settings to combine, by name.
    zip_grid
        Whether values are paired, first with first, instead of combined.
    **settings
        Settings of all runs; with ``backend="ray"``, and without `nodes`, the runs train on the nodes of a cluster.

    Returns
    -------
    list of dict
        Rows of the runs, as from `run_table`.

    Raises
    ------
    StudyError, ConfigError
        The request is not legal; nothing was trained.
    KeyboardInterrupt
        Ctrl-C was pressed; the running trainings have saved.
    """
    contents: dict[str, Any] = {
        "algorithms": [algorithms] if isinstance(algorithms, str) else list(algorithms),
        "zip": zip_grid, "settings": settings, "grid": {key: list(values) for key, values in (grid or {}).items()},
    }  # fmt: skip
    contents |= {key: value for key, value in (("seeds", seeds), ("name", name), ("jobs", jobs)) if value is not None}
    asked = plan.request(contents)
    cluster = plan.take_cluster(asked)
    study = multirun.Study(plan.folder_of(asked), plan.plan(asked, is_here=cluster is None))
    if multirun.train(study, jobs, cluster) == multirun.INTERRUPTED:
        raise KeyboardInterrupt
    return run_table(study.folder)


def run_table(*places: Place, where: str = "") -> list[Row]:
    """Return a row per run: its state, scores and settings.

    Parameters
    ----------
    *places
        Runs, or folders that hold runs; none: ``runs``.
    where
        Conditions on the runs, as in ``penstock runs``: ``"env=CartPole-v1 state=done learning_rate<1e-3"``.

    Returns
    -------
    list of dict
        Sorted by the start of the runs. Columns are those of ``penstock runs --json``, and every setting.

    Raises
    ------
    RunDirectoryError
        A place does not exist.
    StudyError
        A condition is not legal.
    """
    runs = chosen(readable(find_runs(places or ("runs",)), warn), where)
    return [{**run.settings, **run.summary} for run in runs]


def curve_table(*places: Place, y: str = EVALUATION, x: str = "steps", where: str = "") -> list[Row]:
    """Return a row per point of a metric of many runs.

    Parameters
    ----------
    *places
        Runs, or folders that hold runs; none: ``runs``.
    y, x
        Names of the metric and of the horizontal axis.
    where
        Conditions on the runs, as in ``penstock runs``.

    Returns
    -------
    list of dict
        ``run``, ``env``, ``algorithm``, ``seed``, and the values of `x` and `y` under their names. Metrics of more than
        800 lines are averaged over stretches.

    Raises
    ------
    RunDirectoryError
        A place does not exist.
    StudyError
        A condition is not legal.
    """
    runs = chosen(readable(find_runs(places or ("runs",)), warn), where)
    return [
        {"run": curve.run.name, **{key: value_of(curve.run, key) for key in _ABOUT}, x: at, y: value}
        for curve in curves_of(runs, x, y)
        for at, value in zip(curve.x.tolist(), curve.y.tolist(), strict=True)
    ]


def compare_runs(
    places: Mapping[str, Sequence[Place]] | Sequence[Place] = ("runs",), *, by: str = "", where: str = "",
    score: Literal["final", "best"] = "final", target: float | None = None, bounds: compare.Bounds | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Compare groups of runs, the first with each of the others, as ``penstock compare`` does.

    Parameters
    ----------
    places
        Runs, or folders that hold runs, by name of the group; or those of all groups, which `by` divides.
    by
        Columns or settings, separated by commas, whose values make the groups.
    where
        Conditions on the runs, as in ``penstock runs``.
    score
        A run's mean return in its last evaluation, or in its best, which is biased upwards.
    target
        Return to be reached; None: the runs' own ``target_return``, where they have one.
    bounds
        Returns that become 0 and 1, by environment; needed to combine scores of several environments.

    Returns
    -------
    dict
        ``scores``: a row per group and environment with number of runs, interquartile mean and its 95 % interval;
        ``improvement``: probability that the first group scores higher than each other; ``targets``: time to the
        target; ``profiles``: share of runs above each of ``thresholds``; ``settings``: settings in which groups differ.

    Raises
    ------
    StudyError, RunDirectoryError
        The request is not legal, or a group has no evaluated run.
    """
    given = places if isinstance(places, Mapping) else {"all": places}
    sides = [(name, chosen(readable(find_runs(those), warn), where)) for name, those in given.items()]
    groups = [compare.group_of(name, runs, score, bounds or {}) for name, runs in compare.divided(sides, by)]
    return compare.comparison(groups, target, is_normalized=bool(bounds))


def plot_runs(
    *places: Place, y: str = EVALUATION, x: str = "steps", group_by: str = "algorithm", where: str = "",
    band: Literal["ci", "minmax", "none"] = "ci", target: float | None = None,
    axes: Sequence[Axes] | Axes | None = None,
) -> dict[str, Axes]:  # fmt: skip
    """Plot a metric of many runs; runs that differ only in the seed form one curve with a band.

    Parameters
    ----------
    *places
        Runs, or folders that hold runs; none: ``runs``.
    y, x, group_by, where, band, target
        As in ``penstock plot``.
    axes
        Axes to draw on, one for each environment; None: make a new figure.

    Returns
    -------
    dict of str to Axes
        Axes by the name of the environment.

    Raises
    ------
    StudyError, RunDirectoryError
        The request is not legal, no run has such a curve, there are fewer axes than environments, or the extra "plot"
        is not installed.
    """
    flags = plot.Flags(tuple(map(Path, places or ("runs",))), y, x, group_by, where, band, target)
    _, panels, bands = plot.read(flags)
    if axes is None:
        try:
            from matplotlib import pyplot
        except ImportError:
            raise StudyError("plot_runs needs the package matplotlib: pip install 'penstock[plot]'") from None
        _, made = pyplot.subplots(1, len(panels), squeeze=False, figsize=(6.4 * len(panels), 3.8), layout="constrained")
        axes = list(made.flatten())
    every = list(axes) if isinstance(axes, Sequence) else [axes]
    if len(every) < len(panels):
        raise StudyError(f"{len(every)} axes are too few for the environments {', '.join(panels)}: give one for each")
    plot.draw(every, panels, bands, flags)
    return dict(zip(panels, every, strict=False))

"""Curves of many runs, seeds aggregated into one curve with a band: as a picture, CSV, or lines in a terminal."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from penstock.flags import Places, parse_flags
from penstock.runs.descriptions import NO_FRAMES
from penstock.runs.files import why_no_new_file
from penstock.runs.formatting import counted, number, printable, spark_line
from penstock.runs.reading import RecordedRun, find_runs, readable
from penstock.studies import EVALUATION, StudyError, warn
from penstock.studies.conditions import chosen, require_known, value_of
from penstock.studies.curves import FEW, Band, Curve, band_of, curves_of, has_band, panels_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Colours of Okabe and Ito, distinct for colour-blind readers, without yellow, which is too light for a line.
_COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000")
_DASHES = ("-", "--", "-.", ":")
_STYLE: Any = {
    "svg.hashsalt": "penstock", "svg.fonttype": "none", "font.family": "DejaVu Sans", "font.size": 9.0,
    "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "grid.alpha": 0.25, "grid.linewidth": 0.6,
    "legend.frameon": False, "figure.dpi": 100, "path.simplify": False,
}  # fmt: skip
_FORMATS = (".svg", ".png", ".pdf")
_DOTS_PER_INCH = 200  # of PNG files
_UNDATED: Any = {
    "svg": {"Date": None, "Creator": None},
    "png": {"Software": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}
"""Metadata without a date and without the version of matplotlib, by format."""
_SPARK_WIDTH = 40

Panels = dict[str, dict[str, list[Curve]]]
"""Curves by environment, then by group."""
Bands = Mapping[str, Mapping[str, Band]]
"""Aggregate of the curves of each group."""


@dataclass(frozen=True)
class Flags:
    """Plot a metric of many runs; runs that differ only in the seed form one curve with a band."""

    dirs: Places = (Path("runs"),)
    """Runs, or folders of runs."""
    y: str = EVALUATION
    """Metric to draw."""
    x: str = "steps"
    """Horizontal axis: "steps", "seconds", "updates", "frames" (of environments with a frame skip), or another metric
    recorded with y."""
    group_by: str = "algorithm"
    """Columns or settings, separated by commas: runs with equal values form a curve. Each environment has its axes."""
    where: str = ""
    """Conditions on the runs, as in penstock runs: "env=CartPole* state=done"."""
    band: Literal["ci", "quartiles", "minmax", "none"] = "ci"
    """"ci": 95 % interval of the interquartile mean, by bootstrap; "quartiles": the middle half of the runs; "minmax":
    from the lowest run to the highest."""
    target: float | None = None
    """Value at which a horizontal line is drawn."""
    out: Path | None = None
    """New file for the plot: .svg, .png or .pdf (needs the extra "plot"); the same runs give the same bytes."""
    csv: Path | None = None
    """New CSV file for the curves."""


def command(args: list[str]) -> int:
    """Run the command; return its exit code. A request may raise `StudyError` or `RunDirectoryError`."""
    flags = parse_flags(Flags, args, prog="penstock plot")
    if flags.out is not None and flags.out.suffix not in _FORMATS:
        raise StudyError(f"--out {flags.out} is not legal: the name must end in {', '.join(_FORMATS)}")
    for flag, file in (("--csv", flags.csv), ("--out", flags.out)):
        if file is not None and (reason := why_no_new_file(file)):
            raise StudyError(f"{flag} {file} cannot be written: {reason}")
    runs, panels, bands = read(flags)
    for line in warnings_about(runs, panels, bands, flags.x):
        warn(line)
    print(in_words(panels, bands, flags))
    if flags.csv is not None:
        _write("--csv", flags.csv, as_csv(panels, bands, flags).encode())
    if flags.out is not None:
        _write("--out", flags.out, as_picture(panels, bands, flags, flags.out.suffix[1:]))
    return 0


def _write(flag: str, file: Path, content: bytes) -> None:
    try:
        with open(file, "xb") as opened:
            opened.write(content)
    except OSError as error:
        raise StudyError(f"{flag} {file} cannot be written: {error.strerror}: give another file") from None
    print(f"written: {file}")


def read(flags: Flags) -> tuple[list[RecordedRun], Panels, Bands]:
    """Return the selected runs, their curves, and the aggregates of the curves.

    Raises
    ------
    StudyError, RunDirectoryError
        The request is not legal, or no run has such a curve.
    """
    runs = chosen(readable(find_runs(flags.dirs), warn), flags.where)
    keys = [key for key in flags.group_by.split(",") if key]
    for key in keys:
        require_known(key, runs, "--group-by")
    panels = panels_of(curves_of(runs, flags.x, flags.y), keys)
    if not panels:
        known = sorted({name for run in runs for name in run.metric_names})
        near = f"; they have {', '.join(known)}" if known else ""
        why = f": {NO_FRAMES}" if flags.x == "frames" else ""
        none = {0: "no run has", 1: "the run has no"}.get(len(runs), f"none of these {len(runs)} runs has")
        raise StudyError(f"{none} {flags.y!r} over {flags.x!r}{why}{near}")
    kind = "minmax" if flags.band == "none" else flags.band
    bands = {env: {name: band_of(curves, kind) for name, curves in groups.items()} for env, groups in panels.items()}
    return runs, panels, bands


def warnings_about(runs: Sequence[RecordedRun], panels: Panels, bands: Bands, x: str = "steps") -> list[str]:
    """Return warnings about a plot: few seeds, runs without a curve, curves that end early."""
    found = []
    drawn = {id(curve.run) for groups in panels.values() for curves in groups.values() for curve in curves}
    if without := [run.name for run in runs if id(run) not in drawn]:
        what = f"frames ({NO_FRAMES})" if x == "frames" else "such a metric"
        found.append(f"{counted(len(without), 'run')} without {what}, not drawn: {', '.join(without)}")
    if broken := [run.name for run in runs if id(run) in drawn and run.state not in ("done", "running", "unknown")]:
        found.append(f"{counted(len(broken), 'run')} not done: {', '.join(broken)}")
    for env, groups in panels.items():
        for name, curves in groups.items():
            where = f"{name} on {env}"
            seeds = [value_of(curve.run, "seed") for curve in curves]
            if len(set(seeds)) < len(seeds):
                found.append(f"{where}: several runs have the same seed; do they differ in a setting? See --group-by")
            if len(curves) < FEW:
                few = f"{counted(len(curves), 'run')} {'is' if len(curves) == 1 else 'are'}"
                found.append(f"{where}: {few} too few for an interval, so each is drawn; use {FEW} or more")
            last, places = max(curve.x[-1] for curve in curves), bands[env][name].x
            if not places.size:
                early, late = min(curves, key=lambda curve: curve.x[-1]), max(curves, key=lambda curve: curve.x[0])
                why = f"{early.run.name} ends at {early.x[-1]:,.0f}, and {late.run.name} begins at {late.x[0]:,.0f}"
                remedy = f"leave one out with --where 'run!={late.run.name}', or separate them with --group-by"
                found.append(f"{where}: no curve: the runs have no {x} in common: {why}; {remedy}")
            elif places[-1] < 0.9 * last:
                ends = f"the curve ends with its shortest run at {places[-1]:,.0f}, its longest run at {last:,.0f}"
                found.append(f"{where}: {ends}")
    return found


def in_words(panels: Panels, bands: Bands, flags: Flags) -> str:
    """Describe each curve in one line: number of runs, shape, last value."""
    lines = [f"{flags.y} over {flags.x}"]
    width = max(len(name) for groups in panels.values() for name in groups)
    for env, groups in panels.items():
        lines.append(env)
        for name, curves in groups.items():
            band = bands[env][name]
            if not band.x.size:
                lines.append(f"  {name:<{width}}  {counted(len(curves), 'run')}, with no {flags.x} in common")
                continue
            ends = f" [{number(band.low[-1])}, {number(band.high[-1])}]" if has_band(flags.band, len(curves)) else ""
            last = f"{number(band.middle[-1])}{ends} at {band.x[-1]:,.0f}"
            line = spark_line(band.middle.tolist(), _SPARK_WIDTH)
            lines.append(f"  {name:<{width}}  {counted(len(curves), 'run')}  {line}  {last}")
    return "\n".join(map(printable, lines))


def as_csv(panels: Panels, bands: Bands, flags: Flags) -> str:
    """Return the points of all runs and curves as CSV: env, group, run ("" for a curve), seed, x, y, low, high."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["env", "group", "run", "seed", flags.x, flags.y, "low", "high"])
    for env, groups in panels.items():
        for name, curves in groups.items():
            for curve in curves:
                about = [env, name, curve.run.name, value_of(curve.run, "seed")]
                pairs = zip(curve.x.tolist(), curve.y.tolist(), strict=True)
                writer.writerows([*about, *pair, "", ""] for pair in pairs)
            band = bands[env][name]
            ends: tuple[Any, Any] = (band.low.tolist(), band.high.tolist())
            if not has_band(flags.band, len(curves)):
                ends = ([""] * band.x.size,) * 2
            points = zip(band.x.tolist(), band.middle.tolist(), *ends, strict=True)
            writer.writerows([env, name, "", "", *point] for point in points)
    return file.getvalue()


def as_picture(panels: Panels, bands: Bands, flags: Flags, form: str) -> bytes:
    """Draw the curves as "svg", "png" or "pdf"; the same curves always give the same bytes.

    Raises
    ------
    StudyError
        The extra "plot" is not installed.
    """
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError:
        raise StudyError("--out needs the package matplotlib: pip install 'penstock[plot]'") from None
    with matplotlib.rc_context({**matplotlib.rcParamsDefault, **_STYLE}):
        columns = min(len(panels), 3)
        rows = -(-len(panels) // columns)
        figure = Figure(figsize=(4.8 * columns if columns > 1 else 6.4, 3.4 * rows), layout="constrained")
        all_axes = figure.subplots(rows, columns, squeeze=False).flatten()
        draw(all_axes, panels, bands, flags)
        for axes in all_axes[len(panels) :]:
            axes.set_axis_off()
        file = io.BytesIO()
        figure.savefig(file, format=form, dpi=_DOTS_PER_INCH if form == "png" else "figure", metadata=_UNDATED[form])
    return file.getvalue()


def draw(all_axes: Iterable[Axes], panels: Panels, bands: Bands, flags: Flags) -> None:
    """Draw the curves of each environment on its own axes."""
    names = sorted({name for groups in panels.values() for name in groups})
    looks = {name: (_COLORS[n % len(_COLORS)], _DASHES[n % len(_DASHES)]) for n, name in enumerate(names)}
    for axes, (env, groups) in zip(all_axes, panels.items(), strict=False):
        for name, curves in groups.items():
            _draw(axes, name, curves, bands[env][name], looks[name], flags)
        if flags.target is not None:
            axes.axhline(flags.target, color="#666666", linewidth=0.8, linestyle=(0, (1, 2)))
        axes.set(title=env, xlabel=flags.x, ylabel=flags.y)
        if axes.get_xlim()[1] >= 1000:
            axes.xaxis.set_major_formatter("{x:,.0f}")
        axes.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1.0, 1.0), borderaxespad=0.0)


def _draw(axes: Axes, name: str, curves: Sequence[Curve], band: Band, look: tuple[str, str], flags: Flags) -> None:
    color, dash = look
    axes.plot(band.x, band.middle, color=color, linestyle=dash, linewidth=1.8, label=f"{name} ({len(curves)})")
    if has_band(flags.band, len(curves)):
        axes.fill_between(band.x, band.low, band.high, color=color, alpha=0.18, linewidth=0)
    if len(curves) < FEW:
        for curve in curves:
            axes.plot(curve.x, curve.y, color=color, linestyle=dash, linewidth=0.7, alpha=0.6)

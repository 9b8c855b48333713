"""Live view of a run: panels in a terminal, a line every two seconds elsewhere."""

from __future__ import annotations

import io
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import isfinite
from time import monotonic, sleep
from typing import Any, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from penstock.ipc.ownership import Owned, owner_only
from penstock.runs.keys import Keys
from penstock.runs.panels import panels, plain_line
from penstock.runs.panes import Point
from penstock.runs.status import Status
from penstock.runs.tables import each_of

_LIVE_INTERVAL = 0.25
_PLAIN_INTERVAL = 2.0
MOST_RETURNS = 256
"""Largest number of returns that a view remembers."""
_NOTEBOOK_WIDTH = 100
_ARROWS = {b"A": -1, b"D": -1, b"B": 1, b"C": 1}
_ENDS = (b"q", b"\x04")


class ViewConsole(Console):
    """Console that survives a closed pipe; rich's own console ends the program."""

    def on_broken_pipe(self) -> None:
        """Re-raise the `BrokenPipeError`."""
        raise


def open_view(console: Console | None = None, *, quiet: bool = False) -> View:
    """Return the view for a console (default: standard output; with `quiet`: no output)."""
    # Names are not markup: a policy may be called "[red]".
    console = console or ViewConsole(quiet=quiet, highlight=False, markup=False, emoji=False)
    if console.is_jupyter and not console.quiet:
        return NotebookView(console)
    is_live = console.is_terminal and not console.is_dumb_terminal and console.encoding.startswith("utf")
    return LiveView(console) if is_live else PlainView(console)


class View(Owned, ABC):
    """View of a run, and its context manager."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._next = 0.0
        self._closed = False
        self.has_ended = False
        """Whether a key has ended the view; a training ignores this."""

    def remember(self, histories: Sequence[Sequence[Point]]) -> None:
        """Set the returns of each policy from before the view began; views without a chart ignore them."""

    def wait(self, seconds: float) -> None:
        """Wait for at most `seconds`, less if a key of the view is pressed."""
        sleep(seconds)

    @abstractmethod
    def update(self, status: Status) -> None:
        """Show a status, if the interval of the view has passed."""

    @abstractmethod
    def event(self, text: str) -> None:
        """Print an event at once; it stays on the screen."""

    @abstractmethod
    def close(self, status: Status | None = None) -> None:
        """Show a last status and restore the terminal; it may be called again."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def _giving_up(self) -> Iterator[None]:
        """Close the view, not the run, when the output fails: closed pipe, lost terminal, full disk."""
        try:
            yield
        except OSError:
            self._closed = self._console.quiet = True


class LiveView(View):
    """Panels that are redrawn in place at most four times a second, with events above them.

    Panels are drawn in the thread that calls `update`, in the terminal's height, so that the last ones remain whole.
    Keys 1 to 9 and the arrows choose the policy whose returns and losses are shown, of several.
    """

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._live = Live(console=console, auto_refresh=False)
        self._histories: list[list[Point]] = []  # of the policies
        self._stride = 1
        self._updates = 0
        self._keys: Keys | None = None
        self._has_begun = False
        self._chosen, self._count = 0, 0  # of the policies

    def update(self, status: Status) -> None:
        """Redraw, if a quarter of a second has passed."""
        now = monotonic()
        if now < self._next or self._closed:
            return
        self._next = now + _LIVE_INTERVAL
        self._count = len(status.policies)
        if self._count > 1:  # otherwise typed keys are left to the shell
            self.wait(0.0)
        self._remember(status)
        self._draw(status)

    def remember(self, histories: Sequence[Sequence[Point]]) -> None:
        """Set the histories of the returns to earlier ones."""
        self._histories = [list(history[: MOST_RETURNS - 1]) for history in histories]

    def wait(self, seconds: float) -> None:
        """Wait for keys for at most `seconds`."""
        for key in self._keys.pressed(seconds) if self._keys is not None else ():
            self._next = 0.0
            self.has_ended |= key in _ENDS
            number = int(key) - 1 if key in b"123456789" else self._chosen + _ARROWS.get(key[2:], 0)
            self._chosen = max(0, min(number, self._count - 1))

    def event(self, text: str) -> None:
        """Print a line above the panels."""
        with self._giving_up():
            if self._keys is not None and self._keys.is_behind:
                self._begin_below()
            self._console.print(Text(text))

    @owner_only
    def close(self, status: Status | None = None) -> None:
        """Draw for the last time and restore the cursor; the panels stay on the screen."""
        was_closed, self._closed = self._closed, True
        try:
            if status is not None and not was_closed:
                self._draw(status)
        finally:
            if self._keys is not None:  # even after a failure: standard output is redirected until then
                self._keys.close()
                with self._giving_up():
                    if self._has_begun:
                        self._live.stop()

    def _draw(self, status: Status) -> None:
        with self._giving_up():
            if self._keys is None:
                self._keys = Keys(self._leave)
            if self._keys.is_behind and not self._closed:
                return  # the shell has the screen
            self._live.start()
            self._has_begun = True
            width, height = self._console.size
            shown = panels(status, self._history, width, height - 1, self._chosen)
            # The cursor is on a line of its own, otherwise a terminal's "^C" would move the panels.
            self._live.update(shown if self._closed else Group(shown, ""), refresh=True)

    def _leave(self, is_leaving: bool) -> None:
        """Leave the terminal to a shell, or begin anew below what it has written."""
        if not is_leaving:
            self._begin_below()
        if self._live.is_started and not (self._keys and self._keys.is_behind):
            self._console.show_cursor(is_leaving)

    def _begin_below(self) -> None:
        self._live._live_render._shape = None  # otherwise rich would overwrite the lines of the last panels

    @property
    def _history(self) -> Sequence[Point]:
        """Returns of the chosen policy."""
        return self._histories[min(self._chosen, len(self._histories) - 1)] if self._histories else ()

    def _remember(self, status: Status) -> None:
        """Keep bounded, evenly spaced histories of the returns; when full, every second value is dropped."""
        each = each_of(status)
        now = [(status.steps, _finite(policy.mean_return), _finite(policy.eval_return)) for policy in each]
        self._histories += [[] for _ in each[len(self._histories) :]]
        if any(point[1:] != (None, None) for point in now):
            if self._updates % self._stride == 0:
                for history, point in zip(self._histories, now, strict=False):
                    history.append(point)
            self._updates += 1
        if max(map(len, self._histories)) >= MOST_RETURNS:
            self._histories = [history[::2] for history in self._histories]
            self._stride *= 2


def _finite(value: float | None) -> float | None:
    return None if value is None or not isfinite(value) else value


class NotebookView(LiveView):
    """Panels in the output of a notebook's cell, redrawn in place at most four times a second."""

    _shown: Any = None  # IPython's handle of the output

    def _draw(self, status: Status) -> None:
        from IPython.display import HTML, display

        page = HTML(as_html(panels(status, self._history, _NOTEBOOK_WIDTH)))
        if self._shown is None:
            self._shown = display(page, display_id=True)
        else:
            self._shown.update(page)


def as_html(shown: RenderableType) -> str:
    """Return what a terminal would show, as preformatted HTML."""
    console = Console(
        width=_NOTEBOOK_WIDTH, file=io.StringIO(), record=True, force_jupyter=False, color_system="truecolor"
    )
    console.print(shown)
    return console.export_html(
        inline_styles=True, code_format='<pre style="line-height: 1.2; white-space: pre">{code}</pre>'
    )


class PlainView(View):
    """One line every two seconds without control characters, for files, pipes and CI."""

    _line = ""  # last one printed

    def update(self, status: Status) -> None:
        """Print a line, if two seconds have passed."""
        now = monotonic()
        if now >= self._next and not self._closed:
            self._next = now + _PLAIN_INTERVAL
            self._line = plain_line(status)
            self._print(self._line)

    def event(self, text: str) -> None:
        """Print a line."""
        self._print(text)

    @owner_only
    def close(self, status: Status | None = None) -> None:
        """Print a last line, if it differs from the one before."""
        if not self._closed and status is not None and (line := plain_line(status)) != self._line:
            self._print(line)
        self._closed = True

    def _print(self, line: str) -> None:
        with self._giving_up():
            self._console.print(Text(line), soft_wrap=True)
            self._console.file.flush()  # a pipe would buffer lines for minutes

"""Outbox of a node: calls of its lanes' writers on their way to the replay buffer at home, one call per row."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.experience.arena import ExperienceArena
from penstock.experience.run_replay import Replay, RowWriter, give_priorities
from penstock.replay import Field, ReplayBuffer

SIGNALS = {"terminated": False, "truncated": False, "mask": True}
"""Arguments of a writer other than fields, with their defaults."""
WRITER = "writer"
SPARE_CALLS = 8  # additional room, beside the calls that lanes may make before they wait

Rows = dict[str, np.ndarray]


def fields_of_call(fields: Mapping[str, Field], lanes: int) -> dict[str, Field]:
    """Return the fields of a call that adds a step of every lane: its values, and the number of its writer."""
    values = {name: Field((lanes, *field.shape), field.dtype) for name, field in fields.items()}
    signals = {name: Field((lanes,), "bool") for name in SIGNALS}
    return {f"step_{name}": field for name, field in (values | signals).items()} | {WRITER: Field((), "int64")}


@dataclass(frozen=True)
class Outbox:
    """Replacement of the replay buffer on a node, shared by all processes that it is pickled to.

    Attributes
    ----------
    calls
        Buffer of calls.
    """

    calls: ReplayBuffer

    @classmethod
    def make(cls, fields: Mapping[str, Field], lanes: int, most_calls: int) -> Outbox:
        """Make an outbox for writers of `lanes` lanes, with room for `most_calls` calls and some more."""
        return cls(ReplayBuffer(most_calls + SPARE_CALLS, fields_of_call(fields, lanes)))

    def writer(self, lanes: int = 1) -> OutboxWriter:
        """Make the writer of a group of lanes."""
        return OutboxWriter(self.calls)

    def __len__(self) -> int:
        """Return 1, as if there were rows: home decides which steps are admitted."""
        return 1


class OutboxWriter:
    """Replacement of `penstock.replay.writer.Writer`, whose calls are repeated at home.

    Parameters
    ----------
    calls
        Buffer of calls.
    writes_steps
        Whether rows are steps of lanes; False: the writer's number is negative, and its rows are not counted as steps.
    """

    written = np.empty(0, np.int64)

    def __init__(self, calls: ReplayBuffer, writes_steps: bool = True) -> None:
        self._writer = calls.writer()
        number = secrets.randbits(62)  # home makes a writer for each number
        self._number = number if writes_steps else ~number

    def add(self, **values: Any) -> None:
        """Write a step of every lane."""
        lanes = len(values["reward"])
        signals = {name: np.full(lanes, usual) for name, usual in SIGNALS.items() if name not in values}
        call = {f"step_{name}": value for name, value in (values | signals).items()}
        self._writer.add(**call, **{WRITER: np.int64(self._number)})


class OutboxRows(RowWriter):
    """Replacement of `penstock.experience.run_replay.RowWriter`: rows wait, and are sent with the lanes' next steps.

    This way, the rows of an episode of any length are sent no faster than the outbox has room for.

    Parameters
    ----------
    outbox
        Outbox of the node.
    lanes
        Rows of a call.
    rows_per_step
        Mean number of rows for each step of a lane; one more may be sent.
    """

    def __init__(self, outbox: Outbox, lanes: int, rows_per_step: int) -> None:
        self._calls = OutboxWriter(outbox.calls, writes_steps=False)
        self._lanes, self._rows_per_step = lanes, rows_per_step
        self._waiting: Rows = {}

    def add(self, **rows: np.ndarray) -> None:
        """Keep K transitions, ``[K, ...]`` by field."""
        held = self._waiting
        self._waiting = {name: np.concatenate([held[name], rows[name]]) for name in rows} if held else rows

    def send_due(self, num_steps: int) -> None:
        """Send as many rows as `num_steps` steps of lanes allow, in whole calls."""
        for _ in range(0, num_steps * (self._rows_per_step + 1), self._lanes):
            if count := min(self._lanes, self.num_waiting):
                self._send(count)

    @property
    def num_waiting(self) -> int:
        """Number of rows not sent yet."""
        return len(self._waiting["reward"]) if self._waiting else 0

    def _send(self, count: int) -> None:
        """Make a call of `count` rows, each an episode of its own."""
        rows, lanes = self._waiting, self._lanes
        self._waiting = {name: values[count:] for name, values in rows.items()}
        call = {name: np.zeros((lanes, *values.shape[1:]), values.dtype) for name, values in rows.items()}
        for name, values in rows.items():
            call[name][:count] = values[:count]
        self._calls.add(**call, truncated=np.ones(lanes, np.bool_), mask=np.arange(lanes) < count)


class RelayInbox:
    """Replacement of an `Inbox` at a gateway: calls of nodes go into the gateway's outbox as they are."""

    def __init__(self, outbox: Outbox) -> None:
        self._writer = outbox.calls.writer()

    def add(self, calls: Rows) -> None:
        """Write calls, ``[K, ...]`` by field."""
        for place in range(len(calls[WRITER])):
            self._writer.add(**{name: values[place] for name, values in calls.items()})


class OutboxReader:
    """Reader of an outbox: each call once, those of a writer in order."""

    def __init__(self, outbox: Outbox) -> None:
        self._calls = outbox.calls
        self._read = np.empty(0, np.int64)  # ids of those rows of the outbox that were read
        self._num_read = 0

    def take(self) -> Rows | None:
        """Return the calls since the last one, ``[K, ...]`` by field; None if there are none.

        Raises
        ------
        RuntimeError
            Calls were overwritten before they were read.
        """
        written, begun = self._calls.num_added, self._calls.num_begun
        rows, ids = self._calls.live()
        is_earlier = ids < begun  # rows are read in turn: a writer's later call may be seen, and an earlier one missed
        rows, ids = rows[is_earlier], ids[is_earlier]
        is_new = ~np.isin(ids, self._read)
        self._read = ids
        if not is_new.any():
            return None
        found, is_there = self._calls.read(rows[is_new], ids[is_new])
        self._num_read += int(is_new.sum())
        if not is_there.all() or self._num_read < written:
            raise RuntimeError("steps were overwritten before they were sent home: the sender is too slow")
        return {name: np.ascontiguousarray(found[name]) for name in self._calls.fields}


def steps_in(calls: Rows) -> int:
    """Return the number of lanes' steps in calls."""
    counted = calls["step_valid" if "step_valid" in calls else "step_mask"]
    return int(counted[calls[WRITER] >= 0].sum())


class Inbox:
    """Repeats the calls of a node's writers at home.

    Parameters
    ----------
    replay
        Replay of the run.
    """

    def __init__(self, replay: Replay) -> None:
        self._replay = replay
        self._writers: dict[int, Any] = {}

    def add(self, calls: Rows) -> None:
        """Repeat calls, ``[K, ...]`` by field; rows that a dead writer has not finished are dropped."""
        for place, number in enumerate(calls[WRITER].tolist()):
            call = {name.removeprefix("step_"): calls[name][place] for name in calls if name != WRITER}
            if number not in self._writers:
                self._writers[number] = self._writer_of(call)
            writer = self._writers[number]
            writer.add(**call)
            give_priorities(self._replay, writer.written)

    def _writer_of(self, call: Rows) -> Any:
        """Make the writer of calls like this one."""
        return self._replay.buffer.writer(len(call["mask"]))


@dataclass(frozen=True)
class NodeReplay(Replay):
    """Replay of a run on a node: an outbox, and steps that home has granted.

    A granted step is an entry in the ring of the node's arena that announces full slots in other runs.
    """

    @classmethod
    def of(cls, replay: Replay) -> NodeReplay:
        """Return a replay with those fields of `replay` that are sent to nodes."""
        nothing: Any = None
        return cls(
            nothing, nothing, replay.batch_size, replay.updates_per_step, reward_scale=replay.reward_scale,
            reward_clip=replay.reward_clip, initial_priorities=replay.initial_priorities,
            return_discount=replay.return_discount,
        )  # fmt: skip

    def row_writer(self, lanes: int, rows_per_step: int) -> OutboxRows:
        """Make the writer that sends rows with the lanes' steps."""
        outbox: Any = self.buffer
        return OutboxRows(outbox, lanes, rows_per_step)

    def steps_of_exploration(self, learned: int, asked: int) -> int:
        """Return the steps learned from: a node does not know the steps taken."""
        return learned

    def is_wanted(self, goal: int) -> bool:
        """Return True: home decides by the steps that it grants."""
        return True

    def admit(self, num_steps: int, arena: ExperienceArena) -> bool:
        """Take `num_steps` granted steps, and return whether there were that many."""
        return len(arena.full.pop_many(num_steps, least=num_steps)) == num_steps

"""The states of a slot."""

from enum import IntEnum


class SlotState(IntEnum):
    """State of a slot; the numbers are those of ``SlotTable``.

    ``FREE -> WRITING -> FULL -> READING -> FREE`` is the way of a segment.
    """

    FREE = 0  # nobody's
    WRITING = 1  # a rollout worker writes experience
    FULL = 2  # a whole segment waits for the learner
    READING = 3  # the learner reads it

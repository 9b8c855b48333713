"""Batches of sequences, drawn from the replay buffer as transitions are."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from penstock.experience.transition_batch import TransitionReader


@dataclass(frozen=True)
class SequenceBatch:
    """B sequences to learn from, each of T successive rows of one episode and one more, time-major.

    Attributes
    ----------
    obs
        ``[T + 1, B, ...]``: observations. After an episode's last step comes the one that the step led to: the true
        final one where the episode was truncated; of no meaning where it terminated.
    first
        bool ``[T + 1, B]``: the observation begins an episode, and memory is forgotten before it.
    action
        int64 ``[T, B]`` or float32 ``[T, B, d]``.
    reward
        float32 ``[T, B]``: of each step, scaled and clipped for learning.
    discount
        float32 ``[T, B]``: gamma, 0 where the step terminated the episode.
    valid
        bool ``[T, B]``: the row is a step. What lies before an episode's first and behind its last one is none.
    memory
        float32 ``[B, S]``: memory state before row 0, as it was when the steps were taken.
    weights
        float32 ``[B]``: importance weights of prioritized replay; 1 without.
    number
        Of this update, counted from 1 over the whole run.
    progress
        Fraction of ``total_steps`` learned from so far, for schedules.
    """

    obs: Tensor
    first: Tensor
    action: Tensor
    reward: Tensor
    discount: Tensor
    valid: Tensor
    memory: Tensor
    weights: Tensor
    number: int
    progress: float

    @property
    def observed(self) -> tuple[Tensor, Tensor]:
        """Observations that running normalisations take in, ``[T, B, ...]``, and which of them count."""
        return self.obs[:-1], self.valid


class SequenceReader(TransitionReader):
    """Draws batches of sequences. See `TransitionReader`."""

    fields = ("obs", "first", "action", "reward", "discount", "valid", "memory")

    def _batch(self, tensors: dict[str, Tensor], weights: Tensor, number: int, progress: float) -> SequenceBatch:
        rows = {name: tensor.transpose(0, 1) for name, tensor in tensors.items() if name != "memory"}
        steps = {name: rows[name][:-1] for name in ("action", "reward", "discount", "valid")}
        return SequenceBatch(
            obs=rows["obs"], first=rows["first"], **steps,
            memory=tensors["memory"], weights=weights, number=number, progress=progress,
        )  # fmt: skip

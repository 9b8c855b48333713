"""Training of the predictor of returns from whole episodes: lessons, and updates (arXiv:1806.07857)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from penstock.algorithms.arithmetic.optimizers import fused_adam, load_moments
from penstock.nn import training_mode
from penstock.rudder.arithmetic import (
    completeness,
    gate,
    loss_weights,
    return_losses,
    squared_error,
    unexplained,
    variance_to_explain,
)
from penstock.rudder.predictor import COUNTED, TOLD, ReturnPredictor, contributions, integrated
from penstock.rudder.settings import DelayedRewardConfig

DECAY = 0.95  # of running means, per episode
ENCODER_RATE = 0.1  # of the step size, for an image encoder, which learns nothing with larger steps
AUXILIARY = 0.5  # weight of the auxiliary loss
MAX_GRAD_NORM = 0.5
LESSONS_NBYTES = 1 << 29
LOOKED_AT_ONCE = 16  # new episodes
AT_ONCE_NBYTES = 1 << 26  # of padded episodes side by side; more take several passes
TEMPERATURE = 1.0  # of the softmax by which lessons are drawn


def build_optimizer(predictor: ReturnPredictor, learning_rate: float) -> torch.optim.Optimizer:
    """Make the predictor's optimiser, with smaller steps for the parameters of its encoder."""
    encoder = list(predictor.encoder.parameters())
    others = [parameter for name, parameter in predictor.named_parameters() if not name.startswith("encoder.")]
    optimizer = fused_adam(others, learning_rate)
    if encoder:
        optimizer.add_param_group({"params": encoder, "lr": ENCODER_RATE * learning_rate})
    return optimizer


class PredictorTraining:
    """Training of the predictor of returns from whole episodes.

    Parameters
    ----------
    config
        Settings.
    predictor
        The predictor.

    Attributes
    ----------
    lessons
        Episodes to learn from.
    updates, episodes
        Number of updates, and of episodes seen.
    losses
        Main and auxiliary loss of the last update.
    """

    def __init__(self, config: DelayedRewardConfig, predictor: ReturnPredictor) -> None:
        self._config = config
        self.predictor = predictor
        self._training = training_mode(predictor, config.seed)
        self._optimizer = build_optimizer(predictor, config.redistributor_learning_rate)
        self._random = np.random.default_rng([config.seed, 21])
        self.lessons = Lessons(config.redistributor_lessons, LESSONS_NBYTES)
        self.updates = self.episodes = 0
        self._complete = 1.0
        self._mean_return = self._mean_square = self._squared_error = 0.0
        self.losses = (0.0, 0.0)

    @property
    def quality(self) -> float:
        """Quality of the predictions; 0: they are not used."""
        return gate(self.error, self._complete, self._config.redistribution_max_error)

    @property
    def error(self) -> float:
        """Share of the variance of new episodes' returns that predictions do not explain; 1 at first."""
        return max(DECAY**self.episodes, unexplained(self._squared_error, self._variance))

    @property
    def _variance(self) -> float:
        recent = max(0.0, self._mean_square - self._mean_return**2)
        return variance_to_explain(recent, self.predictor.returns.var.item())

    @property
    def has_equal_returns(self) -> bool:
        """Whether all returns so far are equal, so that there is nothing to learn."""
        return not self.predictor.returns.var.item() > 0.0

    def write_told(self, dropped: int) -> None:
        """Write the running means and the number of dropped episodes to the predictor, to be published."""
        found = (self.quality, self.error, self._complete, *self.losses, len(self.lessons), dropped, self.updates)
        counted = (getattr(self, name) for name in COUNTED)
        self.predictor.told.copy_(torch.tensor([*found, *counted], dtype=torch.float64))

    def recall(self) -> None:
        """Continue from the running means in the predictor."""
        for name, value in zip(COUNTED, self.predictor.told[len(TOLD) :].tolist(), strict=True):
            setattr(self, name, value)
        self.updates = int(self.predictor.told[TOLD.index("updates")])

    def take(self, episodes: Sequence[Episode]) -> None:
        """Measure the predictions for new episodes, and keep the episodes with the largest errors as lessons."""
        for begin in range(0, len(episodes), LOOKED_AT_ONCE):
            for part in side_by_side(episodes[begin : begin + LOOKED_AT_ONCE]):
                self._take(part)

    @torch.no_grad()
    def _take(self, episodes: Sequence[Episode]) -> None:
        predictor, batch = self.predictor, LessonBatch(episodes)
        predictor.input.update_moments(batch.obs, batch.valid)
        predicted = predictor.as_return(batch.last(torch.cat([part for part, _ in self._predictions(batch)])))
        if points := self._config.points_of_attribution:
            complete = completeness_of(predictor, batch, points, self._config.redistributor_chunk)
        else:
            complete = torch.ones(len(episodes))
        for episode, prediction, share in zip(episodes, predicted.tolist(), complete.tolist(), strict=True):
            self._measure(episode.return_, prediction, share)
        predictor.take_returns(batch.returns)
        losses = (predicted - batch.returns).div(predictor.returns.std).square()
        for episode, loss in zip(episodes, losses.tolist(), strict=True):
            self.lessons.add(replace(episode, loss=loss, reward=episode.reward[:0]))

    def _measure(self, return_: float, prediction: float, complete: float) -> None:
        """Add the prediction for a new episode to the running means."""
        weight = max(1.0 - DECAY, 1.0 / (self.episodes + 1))  # a plain mean at first
        self._mean_return += weight * (return_ - self._mean_return)
        self._mean_square += weight * (return_**2 - self._mean_square)
        error = squared_error(return_, prediction, self._mean_return, self._variance)
        self._squared_error += weight * (error - self._squared_error)
        self._complete += (1.0 - DECAY) * (complete - self._complete)
        self.episodes += 1

    @property
    def can_learn(self) -> bool:
        """Whether there are lessons for a batch, or as many as memory holds; they are drawn with replacement."""
        return len(self.lessons) >= self._config.redistributor_batch_size or self.lessons.is_full

    def update(self) -> None:
        """Make one update from lessons drawn by their loss."""
        episodes = self.lessons.draw(self._config.redistributor_batch_size, self._random)
        self._optimizer.zero_grad(set_to_none=False)
        main, auxiliary = 0.0, 0.0
        with self._training:
            for part in side_by_side(episodes):
                losses = self._add_gradient(part, len(part) / len(episodes))
                main, auxiliary = main + losses[0], auxiliary + losses[1]
        norm = torch.nn.utils.clip_grad_norm_(self.predictor.parameters(), MAX_GRAD_NORM)
        if torch.isfinite(norm):
            self._optimizer.step()
        self.losses = (main, auxiliary)
        self.updates += 1

    def _add_gradient(self, episodes: Sequence[Episode], share: float) -> tuple[float, float]:
        """Add the gradient for a share of a batch's episodes; return their part of the batch's losses."""
        predictor, batch = self.predictor, LessonBatch(episodes)
        target = (batch.returns - predictor.returns.mean) / predictor.returns.std
        main_weight, auxiliary_weight = (share * weight for weight in loss_weights(batch.valid))
        main, auxiliary, found = 0.0, 0.0, []
        for prediction, begin in self._predictions(batch):
            rows = slice(begin, begin + len(prediction))
            losses = return_losses(prediction, target, main_weight[rows], auxiliary_weight[rows])
            (losses[0] + AUXILIARY * losses[1]).backward()
            main, auxiliary = main + losses[0].item(), auxiliary + losses[1].item()
            found.append(prediction.detach())
        costs = (batch.last(torch.cat(found)) - target).square()
        for episode, cost in zip(episodes, costs.tolist(), strict=True):
            episode.loss = cost
        return main, auxiliary

    def _predictions(self, batch: LessonBatch) -> Any:
        """Yield predictions of successive chunks ``[T', N]``, each with its first row.

        A longer episode is cut into chunks that overlap by half: gradients go back to the beginning of a chunk, whose
        first half is unrolled again only for them.
        """
        predictor, size = self.predictor, self._config.redistributor_chunk
        length = len(batch.valid)
        half, memory = max(1, size // 2), predictor.initial_memory(batch.valid.shape[1])
        begin, done = 0, 0  # first row of the chunk, and number of rows predicted
        while done < length:
            end = min(begin + size, length)
            rows = slice(begin, end)
            inputs = batch.inputs(predictor, rows)
            prediction, _ = predictor.unroll(inputs, batch.first[rows], batch.valid[rows], memory)
            yield prediction[done - begin :], done
            if end < length:
                with torch.no_grad():
                    _, memory = predictor.unroll(
                        inputs[:half].detach(), batch.first[rows][:half], batch.valid[rows][:half], memory
                    )
            begin, done = begin + half, end

    def state(self) -> dict[str, Any]:
        """Return the state other than the predictor's, as tensors and plain values."""
        return {
            "optimizer": self._optimizer.state_dict(),
            "random": self._random.bit_generator.state,
            "lessons": [
                {"obs": torch.from_numpy(e.obs), "action": torch.from_numpy(e.action), "of": [e.return_, e.loss]}
                for e in self.lessons.episodes
            ],
        }

    def load_state(self, state: dict[str, Any]) -> None:
        """Continue from a result of `state`."""
        load_moments(self._optimizer, state["optimizer"])
        self._random.bit_generator.state = state["random"]
        for lesson in state["lessons"]:
            self.lessons.add(Episode(lesson["obs"].numpy(), lesson["action"].numpy(), *lesson["of"]))


def side_by_side(episodes: Sequence[Episode]) -> Iterator[Sequence[Episode]]:
    """Split episodes into successive parts of at most `AT_ONCE_NBYTES`, or of one larger episode."""
    begin, largest = 0, 0
    for number, episode in enumerate(episodes):
        largest = max(largest, episode.nbytes)
        if number > begin and (number + 1 - begin) * largest > AT_ONCE_NBYTES:
            yield episodes[begin:number]
            begin, largest = number, episode.nbytes
    yield episodes[begin:]


class LessonBatch:
    """N episodes side by side, padded to the longest.

    Attributes
    ----------
    obs, action
        Observations and actions, ``[T, N, ...]``.
    first, valid
        Whether a row begins an episode, and whether it is a step, bool ``[T, N]``.
    returns
        Returns, float32 ``[N]``.
    """

    def __init__(self, episodes: Sequence[Episode]) -> None:
        lengths = torch.tensor([episode.length for episode in episodes])
        length, count = int(lengths.max()), len(episodes)

        def padded(name: str) -> Tensor:
            values = [getattr(episode, name) for episode in episodes]
            filled = np.zeros((length, count, *values[0].shape[1:]), values[0].dtype)
            for n, value in enumerate(values):
                filled[: len(value), n] = value
            return torch.from_numpy(filled)

        rows = torch.arange(length).unsqueeze(1)
        self.obs, self.action = padded("obs"), padded("action")
        self.first = (rows == 0).expand(length, count)
        self.valid = rows < lengths
        self.returns = torch.tensor([episode.return_ for episode in episodes], dtype=torch.float32)
        self._last = lengths - 1

    def inputs(self, predictor: ReturnPredictor, rows: slice) -> Tensor:
        """Return the inputs of a predictor for successive rows."""
        before = self.obs[max(0, rows.start - 1)]  # no effect if episodes begin in the first row
        return predictor.inputs(self.obs[rows], before, self.first[rows], self.action[rows])

    def last(self, prediction: Tensor) -> Tensor:
        """Return the predictions after each episode's last step, ``[N]``, from predictions ``[T, N]``."""
        return prediction.gather(0, self._last.unsqueeze(0)).squeeze(0)


@torch.no_grad()
def contributions_in(predictor: ReturnPredictor, batch: LessonBatch, num_points: int, chunk: int) -> Tensor:
    """Return the contribution of each step of whole episodes, computed in chunks, float32 ``[T, N]``."""
    lanes = len(batch.returns)
    memory, predicted, found = predictor.initial_memory(lanes), torch.zeros(lanes), list[Tensor]()
    for begin in range(0, len(batch.valid), chunk):
        rows = slice(begin, begin + chunk)
        inputs, first, valid = batch.inputs(predictor, rows), batch.first[rows], batch.valid[rows]
        part, predicted, memory = contributions(predictor, inputs, first, valid, memory, predicted, num_points)
        found.append(part)
    return torch.cat(found)


@torch.no_grad()
def completeness_of(predictor: ReturnPredictor, batch: LessonBatch, num_points: int, chunk: int) -> Tensor:
    """Return the completeness of integrated gradients of whole episodes, ``[N]``.

    As in redistribution, an episode of more than `chunk` steps is explained chunk by chunk, each from the cells that
    the previous chunk left. Gradients and changes of predictions are summed over chunks.
    """
    memory = predictor.initial_memory(len(batch.returns))
    explained, changed = torch.zeros(len(memory)), torch.zeros(len(memory))
    for begin in range(0, len(batch.valid), chunk):
        rows = slice(begin, begin + chunk)
        inputs, first, valid = batch.inputs(predictor, rows), batch.first[rows], batch.valid[rows]
        explained += integrated(predictor, inputs, first, valid, memory, num_points).sum(0)
        without, _ = predictor.unroll(torch.zeros_like(inputs), first, valid, memory)
        prediction, memory = predictor.unroll(inputs, first, valid, memory)
        changed += prediction[-1] - without[-1]
    return completeness(explained.unsqueeze(0), changed * predictor.returns.std)


@dataclass
class Episode:
    """An episode that has ended.

    Attributes
    ----------
    obs, action
        Observations and actions as in their columns, ``[T, ...]``.
    return_
        Sum of its rewards; for a truncated episode with values, the value of its last row in place of the last reward.
    loss
        Loss in the last update from it, or at its first prediction.
    is_truncated
        Whether it was truncated; not restored from a save.
    reward
        Rewards of its steps, float32 ``[T]``; neither kept as a lesson nor restored from a save.
    """

    obs: np.ndarray
    action: np.ndarray
    return_: float
    loss: float = 0.0
    is_truncated: bool = False
    reward: np.ndarray = field(default_factory=lambda: np.empty(0, np.float32))

    @property
    def length(self) -> int:
        """T."""
        return len(self.obs)

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        return int(self.obs.nbytes + self.action.nbytes)


class Lessons:
    """Buffer of the episodes with the largest losses (arXiv:1806.07857, "lessons replay buffer").

    Parameters
    ----------
    capacity
        Largest number of episodes.
    max_nbytes
        Largest memory in bytes; beyond it, episodes with the smallest losses are dropped.
    """

    def __init__(self, capacity: int, max_nbytes: int) -> None:
        self.episodes: list[Episode] = []
        self._capacity = capacity
        self._max_nbytes = max_nbytes

    def __len__(self) -> int:
        return len(self.episodes)

    @property
    def is_full(self) -> bool:
        """Whether another episode as large as the largest would exceed the memory."""
        sizes = [episode.nbytes for episode in self.episodes]
        return bool(sizes) and sum(sizes) + max(sizes) > self._max_nbytes

    def add(self, episode: Episode) -> bool:
        """Keep an episode if there is room, or in place of one with a smaller loss; return whether it is kept."""
        if len(self.episodes) == self._capacity:
            least = self._least()
            if self.episodes[least].loss >= episode.loss:
                return False
            self.episodes[least] = episode
        else:
            self.episodes.append(episode)
        while len(self.episodes) > 1 and sum(each.nbytes for each in self.episodes) > self._max_nbytes:
            del self.episodes[self._least()]
        return True

    def draw(self, count: int, random: np.random.Generator) -> list[Episode]:
        """Draw episodes with replacement, by the softmax of their losses."""
        losses = np.array([episode.loss for episode in self.episodes]) / TEMPERATURE
        weights = np.exp(losses - losses.max())
        drawn = random.choice(len(self.episodes), count, p=weights / weights.sum())
        return [self.episodes[number] for number in drawn]

    def _least(self) -> int:
        return int(np.argmin([episode.loss for episode in self.episodes]))

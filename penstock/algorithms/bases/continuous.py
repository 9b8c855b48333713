"""Base of algorithms for continuous control: an actor with actions in [-1, 1], critics, moving targets."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from penstock.algorithms.bases.algorithm import Metrics, Request
from penstock.algorithms.bases.q_losses import SupportWatch
from penstock.algorithms.bases.replay import ReplayAlgorithm
from penstock.config import STORED, Config, ConfigError, PrioritizedReplayConfig, Scheduled, Tunable, require
from penstock.envs.spaces import ActionKind, ActionSpec
from penstock.experience.batch import TransitionBatch
from penstock.nn import CategoricalReturns, PolicyNetwork, uniform_action

RETURN_RATE = 1e-3
SMALLEST_DIVISOR = 1e-8


@dataclass(frozen=True, kw_only=True)
class ControlConfig(PrioritizedReplayConfig):
    """Settings of algorithms for continuous control from replay."""

    fixed: ClassVar[Mapping[str, str]] = {"return_bound": STORED}

    learning_rate: Tunable[Scheduled] = 3e-4
    actor_learning_rate: Tunable[Scheduled | None] = None
    """Step size of the policy's optimiser, or a function of progress; None: learning_rate."""
    tau: Tunable[float] = 0.005
    """Fraction by which target networks move towards the online networks per update."""
    noise_hold: int = 1
    """Largest number of steps for which a lane keeps its exploration noise: n steps with probability proportional to
    n^-2 (arXiv:2604.04539: 16); 1: new noise in every step."""
    return_bound: float | None = None
    """Divide rewards by the standard deviation of the running discounted return, or by more, so that no such return or
    reward exceeds this bound (arXiv:2604.04539: 5); None: no scaling."""
    reset_interval: int | None = None
    """Updates between resets of networks and optimisers to newly initialised ones; replay and normalisation are kept
    (arXiv:2205.07802: 200,000). None: never."""

    def validate(self) -> None:
        super().validate()
        require(self.noise_hold > 0, "noise_hold", self.noise_hold, "1 or more")
        bound, interval = self.return_bound, self.reset_interval
        require(bound is None or 0.0 < bound < math.inf, "return_bound", bound, "more than 0 and finite, or None")
        require(interval is None or interval > 0, "reset_interval", interval, "1 or more, or None")
        if bound is not None and self.hindsight is not None:
            raise ConfigError(
                f"return_bound={bound:g} is not possible with hindsight={self.hindsight!r}: relabelled steps have no "
                "running return; use return_bound=None"
            )
        rate = self.actor_learning_rate
        require(not isinstance(rate, float) or rate > 0, "actor_learning_rate", rate, "more than 0, or None")
        require(0.0 < self.tau <= 1.0, "tau", self.tau, "more than 0, at most 1")

    def final_rewards(self) -> str | None:
        if self.return_bound is None:
            return super().final_rewards()
        return f"return_bound={self.return_bound:g}: running returns are stored when a step is taken; use None"


class ControlAlgorithm(ReplayAlgorithm):
    """Base of algorithms with an actor and critics. Actions are in [-1, 1]; lanes scale them to the bounds.

    Importance weights correct the critics' loss for prioritized replay. The policy's loss stays unweighted, as in most
    code: it is no expectation over outcomes of an action, and the policy may well learn most where the critics err.
    """

    Config: ClassVar[type[Config]] = ControlConfig
    config: ControlConfig
    actions: ClassVar[tuple[ActionKind, ...]] = ("continuous",)
    _return_scale: ReturnScale | None = None
    _support: SupportWatch | None = None

    @property
    def scales_rewards(self) -> bool:  # type: ignore[override]
        """Whether running returns are stored next to rewards: with ``return_bound``."""
        return self.config.return_bound is not None

    @property
    def noise_hold(self) -> int:  # type: ignore[override]
        """Largest number of steps for which a lane keeps its exploration noise."""
        return self.config.noise_hold

    def act(self, model: Any, request: Request) -> tuple[dict[str, Tensor], Tensor]:
        """Choose random actions until learning starts, then the policy's with exploration."""
        if request.steps < self.config.learning_starts:
            return {"action": uniform_action(request.noise)}, request.memory
        choice, memory = model.act(request.obs, request.first, request.memory)
        return {"action": choice.sample(request.noise)}, memory

    def trained_parameters(self, model: Any) -> dict[str, tuple[list[nn.Parameter], Scheduled]]:
        """Return the parameters of the critics, and of the policy."""
        rate = self.config.learning_rate
        return {
            "critic": (model.critic_parameters(), rate),
            "actor": (model.actor_parameters(), self.config.actor_learning_rate or rate),
        }

    def begin(self, model: PolicyNetwork, learning: dict[str, Any] | None = None) -> None:
        if self.config.return_bound is not None:
            self._return_scale = ReturnScale(self.config.return_bound, next(model.parameters()).device)
        super().begin(model, learning)
        if self._return_scale is None and isinstance(returns := getattr(model, "returns", None), CategoricalReturns):
            self._support = SupportWatch(returns.atoms[0].item(), returns.atoms[-1].item(), self.remarks.append)

    def after_update(self, model: Any, batch: TransitionBatch, metrics: Metrics) -> None:
        """Check, unless rewards are scaled, the share of targets outside the support of distributional critics."""
        is_repeated = self.nonfinite is not None or self.recording is not None
        if self._support is not None and "outside_support" in metrics and not is_repeated:
            self._support.see(metrics["outside_support"], batch.reward, batch.discount, batch.number)

    def learning_state(self) -> dict[str, Any]:
        """Return the learner's own state, with the moments of running returns."""
        scale = self._return_scale
        return super().learning_state() | ({} if scale is None else {"return_scale": scale.state})

    def inherit(self, learning: dict[str, Any]) -> None:
        super().inherit(learning)
        if self._return_scale is not None:
            self._return_scale.state.copy_(learning["return_scale"])

    def prepare(self, model: Any, batch: TransitionBatch) -> tuple[TransitionBatch, Metrics]:
        """Return the batch with scaled rewards; with ``reset_interval``, reset before an interval's first update."""
        interval = self.config.reset_interval
        if interval is not None and batch.number > 1 and (batch.number - 1) % interval == 0:
            self.reset(model)
        if self._return_scale is None:
            return batch, {}
        assert batch.running_return is not None
        divisor = self._return_scale.update(batch.running_return, batch.reward)
        return replace(batch, reward=batch.reward / divisor), {"reward_divisor": divisor}

    def reset(self, model: PolicyNetwork) -> None:
        """Reinitialise all weights, and clear the optimisers' moments (arXiv:2205.07802).

        The normalisation of observations and rewards is kept, as is replay.
        """
        device = self.generator.device
        seed = torch.randint(2**62, (), device=device, generator=self.generator)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(seed))
            new = self.make_model(device)
        new.input.load_state_dict(model.input.state_dict())
        model.load_state_dict(new.state_dict())
        self.reset_target(model)
        for optimizer in self.optimizers.values():
            optimizer.state.clear()

    def normal(self, shape: tuple[int, ...]) -> Tensor:
        """Draw standard normal numbers from the learner's generator."""
        return torch.randn(shape, device=self.generator.device, generator=self.generator)

    def _require_fitting(self, action: ActionSpec) -> None:
        super()._require_fitting(action)
        assert action.low is not None and action.high is not None
        for i, (low, high) in enumerate(zip(action.low, action.high, strict=True)):
            if not (math.isfinite(low) and math.isfinite(high)):
                raise ConfigError(
                    f"{self.name()} chooses actions between two bounds, but dimension {i} of this environment's is "
                    f"unbounded (from {low:g} to {high:g}): wrap it in gymnasium.wrappers.RescaleAction or ClipAction "
                    "with finite bounds, or use ppo or appo"
                )


class ReturnScale:
    """Divisor of rewards by running discounted returns ``G_t = r_t + gamma G_{t-1}`` (arXiv:2604.04539).

        max(sqrt(Var G), max(|G|, |r|) / bound)

    G begins at 0 in every episode. Its moments are exponential means over about a thousand drawn batches, corrected for
    their initial 0; importance weights of prioritized replay are ignored. The maximum is over all returns and rewards
    drawn so far. Rewards count because an n-step reward reaches beyond the step of its G, which may still be 0.

    Parameters
    ----------
    bound : float
        Bound of the scaled running returns and rewards.
    device : torch.device
        Device of the returns.

    Attributes
    ----------
    state : Tensor
        Weight of the means, mean and mean square of returns, and largest magnitude, float64 ``[4]``.
    """

    def __init__(self, bound: float, device: torch.device) -> None:
        self._bound = bound
        self.state = torch.zeros(4, dtype=torch.float64, device=device)

    @torch.no_grad()
    def update(self, returns: Tensor, rewards: Tensor) -> Tensor:
        """Add running returns and rewards of a batch, float32 ``[B]``; return the divisor, float32, at least 1e-8."""
        found, means = returns.double(), self.state[:3]
        means.lerp_(torch.stack((torch.ones_like(means[0]), found.mean(), found.square().mean())), RETURN_RATE)
        torch.maximum(self.state[3], torch.cat((found, rewards.double())).abs().amax(), out=self.state[3])
        weight, mean, square = means
        variance = square / weight - (mean / weight).square()
        std = variance.clamp(min=0.0).sqrt()
        return torch.maximum(std, self.state[3] / self._bound).clamp(min=SMALLEST_DIVISOR).float()


def require_critics(config: Any) -> None:
    """Raise `ConfigError` unless widths, number and range of a config's distributional critics are legal."""
    sizes = config.critic_hidden_sizes
    is_legal = sizes is None or all(size > 0 for size in sizes)
    require(is_legal, "critic_hidden_sizes", sizes, "all more than 0, or None")
    require(config.num_atoms > 1, "num_atoms", config.num_atoms, "2 or more")
    if not -math.inf < config.v_min < config.v_max < math.inf:
        raise ConfigError(f"v_min={config.v_min:g} must be less than v_max={config.v_max:g}, and both finite")

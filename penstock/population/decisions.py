"""Decisions of population-based training: pure functions of their inputs and a seed.

A member is ready when it has taken enough steps since the last decision about it. Scores are means over the episodes
since it was last replaced, and are compared only by rank, because returns may be negative or close to zero.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from penstock.config import Config
from penstock.population.space import Dimension, PopulationSpace

Rule = Literal["truncation", "tournament", "sample-factory"]

RETURN = "return"
"""Members are ranked by returns; any other ``pbt_metric`` is a name in ``info["metrics"]``."""
DECISIONS = 20
"""Decisions about each member in its budget, unless ``pbt_interval`` is given."""
FRACTIONS: dict[Rule, float] = {"truncation": 0.2, "tournament": 0.2, "sample-factory": 0.3}
"""Shares of the worst and the best: arXiv:1711.09846, appendix A, and Sample Factory's ``pbt_replace_fraction``."""
WINDOW = 100
"""Most episodes in the mean of a score."""
MUTATION_RATE = 0.15
"""Sample Factory: probability that a setting is mutated (``pbt_mutation_rate``)."""
MOST_RESCUES = 3
"""Rescues in a row, per member, after which the population counts as failed."""
SMALLEST_GAP, SMALLEST_RELATIVE_GAP = 1e-6, 0.1
"""Sample Factory: required lead of the best over a replaced member, absolute and relative to their score."""


@dataclass(frozen=True)
class Rules:
    """Rules of population-based training.

    Attributes
    ----------
    rule
        Rule that selects members to replace, and their replacements.
    interval, start
        Steps of a member between two decisions about it, and before the first.
    fraction
        Share of the members that counts as the worst, and as the best.
    episodes
        Episodes that a score needs.
    """

    rule: Rule
    interval: int
    start: int
    fraction: float
    episodes: int


@dataclass(frozen=True)
class Decision:
    """Decision about a member.

    Attributes
    ----------
    event
        "exploit": the member continues as a copy of its parent; "diverged": the same, because it could not continue;
        "explore": it keeps its weights.
    member, parent
        Numbers of the members; None: no copy.
    before, after
        Settings of the member.
    operations
        Change of each of the parent's settings: "x0.8", "drawn" or "kept".
    scores
        Scores of all members at the decision; None where a score is unknown.
    """

    event: Literal["exploit", "diverged", "explore"]
    member: int
    parent: int | None
    before: dict[str, float]
    after: dict[str, float]
    operations: dict[str, str]
    scores: tuple[float | None, ...]


@dataclass
class Member:
    """State of one member.

    Attributes
    ----------
    settings
        Settings of the member that the space varies.
    since
        Steps of the member at the last decision about it.
    decisions
        Number of decisions: each has random numbers of its own, so that no state of a generator has to be kept.
    exploits
        Number of replacements.
    scores
        Scores of the latest episodes since the last replacement.
    episodes
        Number of episodes since the last replacement.
    """

    settings: dict[str, float]
    since: int = 0
    decisions: int = 0
    exploits: int = 0
    episodes: int = 0
    scores: deque[float] = field(default_factory=lambda: deque(maxlen=WINDOW))


def rules_of(config: Config, steps: int) -> Rules:
    """Return the rules of a config for members with a number of steps each."""
    assert config.pbt is not None
    interval = config.pbt_interval or max(1, steps // DECISIONS)
    fraction = config.pbt_fraction or FRACTIONS[config.pbt]
    return Rules(config.pbt, interval, config.pbt_start or interval, fraction, config.pbt_episodes)


class Population:
    """Members of a population, their scores, and decisions about them.

    Parameters
    ----------
    rules, space
        Rules of the decisions, and settings that vary.
    given
        Settings that each member starts from, instead of drawn ones.
    seed
        Seed of all draws.

    Attributes
    ----------
    members : list of Member
        In the order of their numbers.
    """

    def __init__(self, rules: Rules, space: PopulationSpace, given: Sequence[Mapping[str, Any]], seed: int) -> None:
        self.rules, self.space, self._seed = rules, space, seed
        self._rescues = 0  # in a row
        self.members = [Member(settings) for settings in space.starts(given, self.random(0, 0))]

    def add_scores(self, member: int, scores: Iterable[float], episodes: int | None = None) -> None:
        """Add scores of a member's episodes; `episodes`: their number, where it differs from that of the scores."""
        values = list(scores)
        self.members[member].scores.extend(values)
        self.members[member].episodes += len(values) if episodes is None else episodes

    def forget(self, member: int) -> None:
        """Drop a member's scores."""
        self.members[member].scores.clear()
        self.members[member].episodes = 0

    def score(self, member: int) -> float | None:
        """Return the mean score since the member was last replaced; None while it has too few episodes."""
        found = self.members[member]
        if found.episodes < self.rules.episodes or not found.scores:
            return None
        return float(np.mean(found.scores))

    def decide(self, steps: Sequence[int]) -> list[Decision]:
        """Decide about every member that is ready, in the order in which decisions are carried out.

        All decisions use the same scores. A member is replaced before its parent is, so that it copies ranked weights.

        Parameters
        ----------
        steps
            Steps of each member so far.
        """
        ready = [number for number, count in enumerate(steps) if self._is_ready(number, count)]
        scores = tuple(self.score(number) for number in range(len(self.members)))
        if not ready or (None in scores and self.rules.rule != "tournament"):
            return []
        made: list[Decision] = []
        for number in sorted(ready, key=lambda each: (-math.inf if scores[each] is None else scores[each], each)):
            if scores[number] is None:
                continue
            random = self._begin(number, steps[number])
            parent = self._parent(number, scores, random)
            if parent is not None:
                made.append(self._decision("exploit", number, parent, scores, random))
            elif self._mutates_in_place(number, scores):
                made.append(self._decision("explore", number, None, scores, random))
        return made

    def rescue(self, member: int, steps: int) -> Decision | None:
        """Choose the replacement of a member that keeps failing; None: all members keep failing."""
        self._rescues += 1
        if self._rescues > MOST_RESCUES * len(self.members):
            return None
        scores = tuple(self.score(number) for number in range(len(self.members)))
        others = [number for number in range(len(self.members)) if number != member]
        ranked = sorted((n for n in others if scores[n] is not None), key=lambda n: -(scores[n] or 0.0))
        random = self._begin(member, steps)
        best = ranked[: self._extreme(len(self.members))] or others
        return self._decision("diverged", member, int(random.choice(best)), scores, random)

    def carried_out(self, decision: Decision) -> None:
        """Record a decision that was carried out: set the member's settings, and drop its scores if it was replaced."""
        member = self.members[decision.member]
        member.settings = dict(decision.after)
        if decision.event != "diverged":
            self._rescues = 0
        if decision.parent is not None:
            member.exploits += 1
            self.forget(decision.member)

    def state(self) -> dict[str, Any]:
        """Return the state of the population, as JSON values."""
        return {"members": [{**vars(member), "scores": list(member.scores)} for member in self.members]}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore a state returned by `state`."""
        self.members = [
            Member(**{**found, "scores": deque(found["scores"], maxlen=WINDOW)}) for found in state["members"]
        ]

    # -- ranking ---------------------------------------------------------------------------------------------------

    def _is_ready(self, member: int, steps: int) -> bool:
        return steps >= self.rules.start and steps - self.members[member].since >= self.rules.interval

    def _extreme(self, count: int) -> int:
        """Return the number of members that count as the worst, and as the best; the two sets never overlap."""
        return min(math.ceil(round(self.rules.fraction * count, 9)), count // 2)

    def _rank(self, scores: Sequence[float | None]) -> list[int]:
        """Return the members by score, best first; among equals, by number."""
        return sorted(range(len(scores)), key=lambda number: (-(scores[number] or 0.0), number))

    def _parent(self, member: int, scores: Sequence[float | None], random: np.random.Generator) -> int | None:
        """Return the member to copy; None: the member is not replaced."""
        own = scores[member]
        assert own is not None
        if self.rules.rule == "tournament":
            other = int(random.choice([number for number in range(len(scores)) if number != member]))
            theirs = scores[other]
            return other if theirs is not None and theirs > own else None
        order, extreme = self._rank(scores), self._extreme(len(scores))
        if member not in order[len(order) - extreme :]:
            return None
        parent = int(random.choice(order[:extreme]))
        gap = (scores[parent] or 0.0) - own
        if self.rules.rule == "sample-factory":
            least = max(SMALLEST_GAP, SMALLEST_RELATIVE_GAP * abs(scores[parent] or 0.0))
            return parent if gap > least else None
        return parent if gap > 0.0 else None

    def _mutates_in_place(self, member: int, scores: Sequence[float | None]) -> bool:
        """Whether the settings of a member change without a copy: Sample Factory, all but the best and the first."""
        if self.rules.rule != "sample-factory" or member == 0:
            return False
        return member not in self._rank(scores)[: self._extreme(len(scores))]

    # -- settings --------------------------------------------------------------------------------------------------

    def _decision(
        self, event: Literal["exploit", "diverged", "explore"], member: int, parent: int | None,
        scores: tuple[float | None, ...], random: np.random.Generator,
    ) -> Decision:  # fmt: skip
        start = self.members[member if parent is None else parent].settings
        is_reference = self.rules.rule == "sample-factory" and member == 0
        found = {
            dimension.name: (start[dimension.name], "kept") if is_reference
            else self._explored(dimension, start[dimension.name], random)
            for dimension in self.space.dimensions
        }  # fmt: skip
        after = {name: value for name, (value, _) in found.items()}
        operations = {name: operation for name, (_, operation) in found.items()}
        return Decision(event, member, parent, dict(self.members[member].settings), after, operations, scores)

    def _explored(self, dimension: Dimension, value: float, random: np.random.Generator) -> tuple[float, str]:
        """Return another value of a setting, and the change in words."""
        if self.rules.rule == "sample-factory":
            if random.random() >= MUTATION_RATE:
                return value, "kept"
            factor = random.uniform(1.01, 1.2) if dimension.complement else random.uniform(1.1, 1.5)
            factor = factor if random.random() < 0.5 else 1.0 / factor
        elif random.random() < dimension.resample:
            return dimension.drawn(random), "drawn"
        else:
            factor = float(random.choice(dimension.perturb))
        return dimension.multiplied(value, factor), f"x{factor:.4g}"

    def _begin(self, member: int, steps: int) -> np.random.Generator:
        """Count a decision, and return its random numbers; the next decision is due an interval later."""
        found = self.members[member]
        found.since = steps
        found.decisions += 1
        return self.random(member, found.decisions)

    def random(self, member: int, decision: int) -> np.random.Generator:
        """Return the generator of one decision about a member; decision 0 about member 0 draws initial settings."""
        return np.random.default_rng([self._seed, member, decision])

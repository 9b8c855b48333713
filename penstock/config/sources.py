"""Sources of a batch of segments: fresh ones from the lanes and replayed ones, each with its share."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal, get_args, get_type_hints

from penstock.config.checking import ConfigError, checked, closest

Kind = Literal["queue", "uniform", "reservoir", "prioritized", "attentive", "elite"]
KINDS: tuple[str, ...] = get_args(Kind)

_STORED = ("capacity", "min_size", "disk")
_COMPARED = (*_STORED, "candidates", "anneal", "distance", "p", "projection")
_OPTIONS: dict[str, tuple[str, ...]] = {
    "queue": (),
    "uniform": _STORED,
    "reservoir": _STORED,
    "prioritized": (*_STORED, "alpha", "beta"),
    "attentive": _COMPARED,
    "elite": (*_COMPARED, "strategy", "insertion", "insertion_group"),
}
"""Settings of each kind of source, other than its share."""


@dataclass(frozen=True, kw_only=True)
class Source:
    """Source of a share of every batch.

    As text: ``kind:share`` and the settings that differ from the defaults, such as ``elite:1/2,capacity=1000``.

    Attributes
    ----------
    kind
        "queue": fresh segments, each once. "uniform", "prioritized", "attentive", "elite": the newest segments, drawn
        uniformly, by priority, by similarity to the lanes' current states, or by how little the network's features of
        them have changed. "reservoir": a uniform sample of all segments so far, drawn uniformly.
    share
        Fraction of the batch, in (0, 1].
    capacity
        Number of segments kept.
    min_size
        Segments stored before learning starts; None: a tenth of the capacity, at least the source's segments per
        batch.
    disk
        Directory of the file that stores the segments; None: memory.
    alpha, beta
        Exponents of priorities and of importance weights (arXiv:1511.05952).
    candidates
        Candidates per drawn segment, of which the best are taken.
    anneal
        Fraction of total_steps over which `candidates` falls to 1, which is uniform sampling.
    distance
        Distance between feature vectors: "ln_norm", "cosine" or "kl".
    p
        Exponent of "ln_norm".
    projection
        Width of a fixed random projection of the features; 0: none.
    strategy
        Elite sampling: 1, nearest; 2, nearest in each stretch of equal length; 3, least used; 4, that in each stretch.
    insertion
        Segment that a new one replaces: "oldest", or with "elite" the farthest of `insertion_group` segments.
    insertion_group
        Number of segments compared for insertion="elite".
    """

    kind: str
    share: Fraction
    capacity: int = 1_000
    min_size: int | None = None
    disk: str | None = None
    alpha: float = 0.6
    beta: float = 0.4
    candidates: float = 6.0
    anneal: float = 1.0
    distance: Literal["ln_norm", "cosine", "kl"] = "ln_norm"
    p: float = 2.0
    projection: int = 0
    strategy: Literal[1, 2, 3, 4] = 3
    insertion: Literal["oldest", "elite"] = "oldest"
    insertion_group: int = 20

    @property
    def is_fresh(self) -> bool:
        """Whether the segments are fresh."""
        return self.kind == "queue"

    @property
    def compares(self) -> bool:
        """Whether sampling compares the network's features."""
        return self.kind in ("attentive", "elite")

    def __str__(self) -> str:
        parts = [f"{self.kind}:{self.share}"]
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.name not in ("kind", "share") and value != field.default:
                parts.append(f"{field.name}={value}")
        return ",".join(parts)

    def starts_at(self, needed: int) -> int:
        """Return the number of stored segments at which learning starts, for a batch that needs `needed` of them."""
        return max(needed, self.capacity // 10 if self.min_size is None else self.min_size)


def parse_source(text: str | Mapping[str, Any]) -> Source:
    """Read a source: ``"uniform:0.5,capacity=1000"``, or a table with the keys type, share and others.

    Raises
    ------
    ConfigError
        The text or table is not a source; the message shows it and the legal forms.
    """
    if isinstance(text, Mapping):
        given = dict(text)
        kind, share = given.pop("type", None), given.pop("share", None)
        if not isinstance(kind, str) or share is None:
            raise ConfigError(f"replay has {dict(text)!r}: a source needs a type ({', '.join(KINDS)}) and a share")
    else:
        head, *rest = str(text).split(",")
        kind, colon, share = head.strip().partition(":")
        pairs = [option.partition("=") for option in rest]
        if not colon or not all(equals for _, equals, _ in pairs):
            raise ConfigError(f"replay={text!r} is not legal: write kind:share, such as uniform:0.5,capacity=1000")
        given = {name.strip(): _read(value.strip()) for name, _, value in pairs}
    if kind not in KINDS:
        raise ConfigError(f"replay has no source {kind!r}{closest(kind, list(KINDS))} (legal: {', '.join(KINDS)})")
    options = _OPTIONS[kind]
    hints = get_type_hints(Source)
    for name in given:
        if name not in options:
            legal = ", ".join(options) or "none"
            raise ConfigError(f"replay source {kind!r} has no setting {name!r}{closest(name, list(options))} ({legal})")
    values = {name: checked(f"{kind}: {name}", value, hints[name]) for name, value in given.items()}
    source = Source(kind=kind, share=_share(kind, share), **values)
    _require_legal(source)
    return source


def parse_sources(texts: Sequence[str], batch: int) -> tuple[Source, ...]:
    """Read the sources of a batch of `batch` segments.

    Raises
    ------
    ConfigError
        A source cannot be read, a kind occurs twice, none is fresh, or the shares are not legal (the message gives the
        nearest legal ones).
    """
    sources = tuple(parse_source(text) for text in texts)
    kinds = [source.kind for source in sources]
    for kind in kinds:
        if kinds.count(kind) > 1:
            raise ConfigError(f"replay has {kind!r} {kinds.count(kind)} times: name each kind of source once")
    shown = " ".join(f"{source.kind}:{source.share}" for source in sources) or "no source"
    if "queue" not in kinds:
        raise ConfigError(
            f"replay has no fresh segments ({shown}): they set the pace of learning and ground value targets; add them "
            f"with a share, such as queue:{Fraction(1, min(batch, 8))}"
        )
    total = sum((source.share for source in sources), Fraction(0))
    counts = [source.share * batch for source in sources]
    if total != 1 or any(count.denominator != 1 for count in counts):
        wrong = f"sum to {total}" if total != 1 else f"are not whole numbers of the {batch} segments of a batch"
        nearest = _nearest(sources, total, batch)
        raise ConfigError(
            f"replay has shares that {wrong} ({shown}): "
            + (f"the nearest legal shares are {nearest}" if nearest else "use a larger batch_size")
        )
    for source, count in zip(sources, counts, strict=True):
        if not source.is_fresh and source.capacity < count:
            raise ConfigError(
                f"replay source {source.kind!r} keeps capacity={source.capacity} segments, fewer than the {count} that "
                f"each batch takes from it: use a larger capacity, or a smaller share"
            )
    return sources


def _nearest(sources: Sequence[Source], total: Fraction, batch: int) -> str:
    """Return the nearest shares that give whole segments, at least one of each source."""
    if batch < len(sources):
        return ""
    wanted = [source.share / total * batch for source in sources]
    counts = [max(1, math.floor(count)) for count in wanted]
    while sum(counts) != batch:
        step = 1 if sum(counts) < batch else -1
        free = [i for i, count in enumerate(counts) if step > 0 or count > 1]
        farthest = max(free, key=lambda i: step * (wanted[i] - counts[i]))
        counts[farthest] += step
    return " ".join(f"{s.kind}:{Fraction(count, batch)}" for s, count in zip(sources, counts, strict=True))


def _share(kind: str, value: Any) -> Fraction:
    try:
        share = Fraction(str(value).strip())
    except (ValueError, ZeroDivisionError):
        share = Fraction(0)
    if not 0 < share <= 1:
        raise ConfigError(f"replay source {kind!r} has share {value!r}: use a fraction above 0, at most 1, like 7/8")
    return share


def _read(value: str) -> int | float | str:
    for read in (int, float):
        try:
            return read(value)
        except ValueError:
            pass
    return value


def _require_legal(source: Source) -> None:
    def require(condition: bool, name: str, legal: str) -> None:
        if not condition:
            found = getattr(source, name)
            raise ConfigError(f"replay source {source.kind!r} has {name}={found!r}: it must be {legal}")

    require(source.capacity > 0, "capacity", "1 or more")
    is_reachable = source.min_size is None or 0 < source.min_size <= source.capacity
    require(is_reachable, "min_size", f"1 or more, and at most capacity={source.capacity}")
    require(0.0 <= source.alpha < math.inf, "alpha", "0 or more, and finite")
    require(0.0 <= source.beta <= 1.0, "beta", "from 0 to 1")
    require(1.0 <= source.candidates < math.inf, "candidates", "1 or more, and finite")
    require(0.0 < source.anneal < math.inf, "anneal", "more than 0, and finite")
    require(source.p > 0.0, "p", "more than 0")
    require(source.projection >= 0, "projection", "0 or more")
    require(source.insertion_group > 0, "insertion_group", "1 or more")
    if source.insertion == "elite" and source.candidates == 1:
        raise ConfigError(
            f"replay source {source.kind!r} has insertion='elite' and candidates=1: distances are known only of "
            "compared segments; use more candidates, or insertion='oldest'"
        )

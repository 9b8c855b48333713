"""Settings shared by every algorithm."""

from __future__ import annotations

import dataclasses
import functools
import math
import os
import re
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Self

from penstock.config.checking import ConfigError, Tunable, checked, require, require_fields
from penstock.config.foreign_names import value_hint
from penstock.config.nodes import counts_of, levels_of, require_nodes
from penstock.config.saved import saved
from penstock.config.schedules import Schedule, Scheduled, is_json, tried_schedule
from penstock.imports import place_of
from penstock.self_play import settings as self_play

NETWORK = "the run's weights belong to this network"
STATE = "the run's optimiser state is of this kind"
STORED = "the contents of the replay buffer were stored with it"


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings shared by every algorithm."""

    fixed: ClassVar[Mapping[str, str]] = {
        "encoder": NETWORK,
        "hidden_sizes": NETWORK,
        "activation": NETWORK,
        "normalize_observations": NETWORK,
        "num_agents": "the run's experience has one lane for each of these agents",
        "num_policies": "the run's checkpoints hold these policies",
        "policies": "the run's checkpoints hold these policies",
        "policy_of": "the run's experience has these lanes",
        "pbt_space": "the settings of its population were drawn from it",
        "run_dir": "a run stays in its directory; copy the directory to continue elsewhere",
    }
    """Settings that cannot change within a run, by name, with the reason. All others can."""
    legacy_defaults: ClassVar[Mapping[str, Any]] = {}
    """Values that settings had in runs saved before they existed, if other than the defaults."""

    learning_rates: ClassVar[tuple[float, float] | None] = None
    """Rates that ``learning_rate=None`` stands for, without and with an image encoder; None: it is not legal."""

    env: str | Callable[..., Any]
    """Environment: a Gymnasium id, "EnvPool/Id", "module:Class" or "file.py:Class"; in Python also a class, or a
    callable that returns an environment."""
    env_kwargs: dict[str, Any] = field(default_factory=dict)
    """Keyword arguments of the environment's constructor."""
    vectorize: Literal["make", "vector"] = "make"
    """"make": one environment per lane; "vector": one vector environment per group of lanes."""
    num_agents: int | None = None
    """Agents per environment, each of which is a lane; None: the number that the environment declares."""
    team_reward: Literal["own", "mean", "sum"] = "own"
    """With several agents, reward of each: its own, or the mean or sum over its team."""
    num_policies: int = 1
    """Number of policies with identical settings. They are assigned to the agents in turn; with one agent per
    environment, each policy gets its own environments."""
    policies: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Policies by name, each with its own settings; with several agents also ``agents``, one or more patterns of agent
    names."""
    policy_of: str | Callable[..., Any] | None = None
    """Function that maps (agent, environment index) to a policy name, instead of ``agents``; in environments with one
    agent, the agent is "". "module:function" or "file.py:function"; in Python also the function itself."""
    seats: Literal["fixed", "shuffled"] = "fixed"
    """With several policies and agents. "fixed": each policy always plays its own agents; "shuffled": agents are
    assigned to the policies at random before each game, the number per policy unchanged."""
    opponents: str = "none"
    """With several agents, opponents that do not learn. "past": some games use frozen past versions as opponents; with
    one policy they play all seats but one, with several policies one policy learns in the game and past versions of the
    others play the remaining agents. The name of a policy: some games use its newest weights, without learning from
    them. "none": every seat learns."""
    opponent_pool: int = 8
    """Number of past versions kept as opponents, per policy."""
    opponent_interval: int | None = None
    """Steps between versions added to the pool; None: total_steps / 20."""
    opponent_share: float = 0.5
    """Share of games played against opponents that do not learn."""
    opponent_sampling: Literal["uniform", "hard"] = "uniform"
    """"uniform": past versions are drawn with equal probability; "hard": in proportion to (1 - win rate)^2 against
    them."""
    eval_against: tuple[str | Callable[..., Any], ...] = ()
    """With several agents, opponents in evaluations: "random", "best", or a class or function as "module:name" or
    "file.py:name", in Python also the object; with several policies also "others", the other policies. Empty: one
    policy plays all seats, or the policies play each other."""
    pbt: Literal["truncation", "tournament", "sample-factory"] | None = None
    """Population-based training of the run's policies (arXiv:1711.09846): at intervals a weak policy becomes a copy of
    a stronger one, with perturbed settings. "truncation": the best replace the worst; "tournament": a policy is
    replaced by a randomly drawn other one if that has a higher score; "sample-factory": like "truncation", and settings
    of the policies in between are perturbed, too."""
    pbt_space: str | os.PathLike[str] | dict[str, Any] | None = None
    """Settings that may change: a TOML file with a table per setting, as for `penstock search`; in Python also the
    tables."""
    pbt_interval: int | None = None
    """Steps of each policy between decisions about it; None: a twentieth of its share of total_steps."""
    pbt_start: int | None = None
    """Steps of each policy before the first decision about it; None: pbt_interval."""
    pbt_fraction: float | None = None
    """Share of the policies that counts as the worst, and as the best; None: 0.2, for "sample-factory" 0.3."""
    pbt_metric: str = "return"
    """Metric that ranks policies: "return" (mean return of training episodes), or a name in info["metrics"]."""
    pbt_episodes: int = 10
    """Episodes that a policy needs since its last replacement to be ranked."""
    schedule: str | os.PathLike[str] | dict[Any, Any] | None = None
    """Values of tunable settings over the policy's steps, which override the settings: a population's lineage.jsonl or
    run directory, or {steps: {setting: value}}, on the command line as JSON."""
    schedule_policy: str | None = None
    """Policy of the lineage whose schedule is used; None: the policy with the best final score."""
    on_env_error: Literal["stop", "restart"] = "stop"
    """On an exception or NaN in an environment: "stop" the run, or "restart" the rollout worker and count the error."""
    reward_scale: float = 1.0
    """Factor applied to rewards for learning; reported returns stay unscaled."""
    reward_clip: float | None = None
    """Scaled rewards are clipped to [-reward_clip, reward_clip] for learning; reported returns stay unclipped. None: no
    clipping."""

    num_workers: int | None = None
    """Rollout workers; with backend="ray", per node. None: one per core, at most 16."""
    pin_workers: bool | None = None
    """Keep each rollout worker on one core. None: only with a GPU and one worker per core, where the scheduler would
    otherwise leave cores idle."""
    num_envs_per_worker: int = 16
    """Environments per rollout worker; with one agent each, also its number of lanes."""
    num_groups: int | None = None
    """Groups of environments per worker that step in turn; None: 2 with central inference, 1 with local."""
    inference: Literal["auto", "local", "central"] = "auto"
    """"local": each rollout worker chooses its own actions; "central": a policy worker batches requests of several
    rollout workers; "auto": central on a GPU, local on a CPU and with backend="ray"."""
    backend: Literal["local", "serial", "ray"] = "local"
    """"local": one process per role; "serial": everything in this process, bit-for-bit reproducible; "ray": the nodes
    of a Ray cluster step the lanes."""
    address: str | None = None
    """With backend="ray", address of the cluster's head node, or "auto"; None: a cluster on this machine, started for
    the run."""
    nodes: int | str | dict[str, int] = 1
    """With backend="ray", number of nodes that step lanes, "all", "2:64" for 2 to 64 that come and go during the run,
    or the number of nodes with a custom Ray resource, by resource name."""
    evaluator: Literal["home", "node"] = "home"
    """With backend="ray", machine that runs evaluations: "home", or "node", the first node, on a core of its own beside
    the rollout workers'."""
    num_evaluators: int = 1
    """With evaluator="node", number of evaluators, one on each of the first nodes, which share the episodes of every
    evaluation."""
    num_learners: int = 1
    """Learners of the policy, one process each, with device="cuda" one GPU each; each computes a share of every update.
    With backend="local" and central inference, each has its own policy worker."""
    nodes_per_gateway: int | None = None
    """With backend="ray", largest number of nodes per gateway, a process on one of them that relays between home and
    these nodes; None: no gateways for up to 8 nodes, else one per 64 nodes."""
    node_weights: Literal["float32", "bfloat16"] = "float32"
    """With backend="ray", precision in which weights are sent to nodes: "bfloat16" halves the bytes; lanes act with the
    rounded weights, and record their probabilities."""
    learner_nodes: int | dict[str, int] = 0
    """With backend="ray", number of learners on separate nodes, or the number on nodes with a custom Ray resource, by
    resource name. The first learner always runs at home."""
    device: str = "cpu"
    """Torch device of the learner and of central inference: "cpu", "cuda", "cuda:1", ..."""
    precision: Literal["auto", "float32", "bfloat16"] = "float32"
    """Arithmetic of the network's body (bfloat16 through autocast); heads, losses and weights stay float32. "auto":
    bfloat16 where the role's GPU or CPU is faster with it, else float32."""
    seed: int = 0
    """Seed of weights, environments and exploration."""

    encoder: str | Callable[..., Any] = "auto"
    """"mlp", "nature_cnn", "nature_cnn_mlp" (the latter with hidden_sizes), "impala_resnet", or "auto" (by
    observation); a custom nn.Module as "module:Class" or "file.py:Class", in Python also the class itself or a
    callable."""
    hidden_sizes: tuple[int, ...] = (64, 64)
    """Widths of the hidden layers of mlp networks."""
    activation: Literal["tanh", "relu", "elu", "silu"] = "tanh"
    """Activation of mlp networks."""
    normalize_observations: bool = True
    """Running normalisation of float observations; its statistics are part of the weights."""

    gamma: Tunable[float] = 0.99
    """Discount per step."""
    learning_rate: Tunable[Scheduled | None] = 3e-4
    """Step size of the optimiser, or a function of progress in [0, 1]: "module:name" or "file.py:name", in Python also
    the function itself."""
    learning_rate_schedule: Literal["constant", "linear"] = "constant"
    """"linear": a numeric learning_rate decays to 0 over total_steps. Ignored when learning_rate is a function."""

    total_steps: int = 1_000_000
    """Budget in steps; schedules span it."""
    max_seconds: float | None = None
    """Budget in seconds of wall-clock time. The final evaluation may take an extra tenth of it, at least 10 s. With
    backend="ray", time counts from the moment a node has joined."""
    target_return: float | None = None
    """The run ends when the mean return of an evaluation reaches this value; None: no target."""
    eval_interval: int | float | Literal["continuous"] | None = None
    """Steps between evaluations; below 1, a fraction of total_steps; "continuous": back to back, always with the newest
    weights; 0: never. None: total_steps / 20, or with a target_return after each batch; after the first second of play,
    they take at most 3 % of the cores' time, or 10 % with a target_return (no limit with backend="serial")."""
    eval_episodes: int = 20
    """Episodes per evaluation; in games, episodes per opponent and seat or policy."""
    eval_exploration: bool = False
    """Sample actions in evaluations; algorithms that do not sample explore as at the end of training."""
    eval_max_steps: int = 30_000
    """Steps after which an evaluation ends an episode early and plays another; the return up to then counts."""
    eval_videos: int = 0
    """Largest number of evaluation videos kept in the run, spread over the training, among them the newest and that of
    the best weights; 0: no videos. A video shows one extra episode (needs the extra "video")."""
    checkpoint_interval: int | None = None
    """Steps between checkpoints; 0: only at the end of training; None: total_steps / 10."""
    keep_checkpoints: int = 3
    """Number of checkpoints kept, besides the best."""
    run_dir: str | os.PathLike[str] | None = "auto"
    """Directory of the run; "auto": runs/<env>-<algorithm>-<time>; None: nothing is written. A URL such as
    s3://bucket/name is a directory runs/name whose files are also sent there (needs the extra "s3"); with a slash at
    its end, a directory within it, named as with "auto"."""
    upload_timeout: float = 300.0
    """Longest wait, in seconds, at the end of training until all files are sent to the URL of run_dir."""

    def __post_init__(self) -> None:
        if not isinstance(self.env, str | type):
            from penstock.envs.factories import made_hint  # here, because most environments are names or classes

            if hint := made_hint(self.env):
                raise ConfigError(hint)
        for name, hint in self.field_types().items():
            value = checked(name, getattr(self, name), hint)
            require(not (isinstance(value, float) and math.isnan(value)), name, value, "a number")
            object.__setattr__(self, name, value)
        self.validate()
        self._validate_learners()

    @classmethod
    @functools.cache
    def field_types(cls) -> dict[str, Any]:
        """Return the types of the fields, by name; raise `ConfigError` for illegal ones."""
        hints = typing.get_type_hints(cls)
        for owner in filter(lambda owner: issubclass(owner, Config), cls.__mro__):
            require_fields(owner, hints)
        return {f.name: hints[f.name] for f in dataclasses.fields(cls)}

    def validate(self) -> None:
        """Raise `ConfigError` for a value that is not legal."""
        self_play.require_legal(self)
        positive = (
            "num_envs_per_worker", "num_policies", "total_steps", "eval_episodes", "eval_max_steps", "keep_checkpoints",
            "reward_scale",
        )  # fmt: skip
        for name in positive:
            require(getattr(self, name) > 0, name, getattr(self, name), "more than 0")
        for name in ("num_workers", "num_groups", "num_agents", "max_seconds", "reward_clip"):
            value = getattr(self, name)
            require(value is None or value > 0, name, value, "more than 0, or None")
        self._validate_files()
        interval = self.checkpoint_interval
        require(interval is None or interval >= 0, "checkpoint_interval", interval, "0 or more, or None")
        pace = self.eval_interval
        is_pace = not isinstance(pace, int | float) or 0 <= pace < 1 or (1 <= pace < math.inf and pace == int(pace))
        legal = 'a whole number of steps, a fraction of total_steps below 1, 0, "continuous" or None'
        require(is_pace, "eval_interval", pace, legal)
        legal = "more than 0, or None, with a target_return, which only an evaluation can reach"
        require(pace != 0 or self.target_return is None, "eval_interval", pace, legal)
        rate = self.learning_rate
        require(rate is not None or self.learning_rates is not None, "learning_rate", rate, "a number, or a function")
        if isinstance(rate, float):
            require(rate > 0, "learning_rate", rate, "more than 0")
            require(rate < math.inf, "learning_rate", rate, "finite")
        require(0.0 <= self.gamma <= 1.0, "gamma", self.gamma, "from 0 to 1")
        for name in ("seed", "upload_timeout"):
            require(getattr(self, name) >= 0, name, getattr(self, name), "0 or more")
        require(all(size > 0 for size in self.hidden_sizes), "hidden_sizes", self.hidden_sizes, "all more than 0")
        is_foreign = isinstance(self.encoder, str) and value_hint("encoder", self.encoder) != ""
        require(not is_foreign, "encoder", self.encoder, "the name of an encoder, or your own")
        if self.pin_workers and self.backend != "local":
            raise ConfigError(
                f'pin_workers=True is for backend="local", found backend="{self.backend}", whose rollout workers are '
                "not processes of this machine: leave it out"
            )
        is_device = re.fullmatch(r"cpu|cuda(:\d+)?", self.device) is not None
        require(is_device, "device", self.device, '"cpu", "cuda" or "cuda:<index>"')
        self._validate_population()
        require_nodes(self)
        if self.num_groups is not None and self.num_envs_per_worker % self.num_groups:
            raise ConfigError(
                f"num_envs_per_worker={self.num_envs_per_worker} cannot be split into num_groups={self.num_groups} "
                f"groups: use a multiple of {self.num_groups}, or num_groups=1"
            )

    def _validate_files(self) -> None:
        require(self.run_dir != "", "run_dir", self.run_dir, 'a directory, a URL, "auto", or None')
        require(self.eval_videos == 0 or self.eval_videos > 1, "eval_videos", self.eval_videos, "0, or 2 or more")
        if self.eval_videos and (self.run_dir is None or self.eval_interval == 0 or self.evaluator != "home"):
            raise ConfigError(
                f"eval_videos={self.eval_videos} is not legal with run_dir=None, eval_interval=0 or evaluator='node': "
                "the evaluator at home writes videos into the run"
            )

    def _validate_population(self) -> None:
        for name in ("pbt_interval", "pbt_start"):
            value = getattr(self, name)
            require(value is None or value > 0, name, value, "1 or more, or None")
        share = self.pbt_fraction
        require(share is None or 0.0 < share <= 0.5, "pbt_fraction", share, "more than 0 and at most 0.5, or None")
        require(self.pbt_episodes > 0, "pbt_episodes", self.pbt_episodes, "1 or more")
        require(bool(self.pbt_metric), "pbt_metric", self.pbt_metric, '"return", or a name in info["metrics"]')
        if self.pbt is not None and not self.pbt_space:
            raise ConfigError(
                f"pbt={self.pbt!r} needs a pbt_space: a TOML file with the bounds of the settings that may change, "
                "such as [learning_rate] with low = 1e-5, high = 1e-2 and log = true"
            )
        if self.pbt is None and self.pbt_space:
            raise ConfigError('pbt_space is given, but pbt is None: use pbt="truncation", or leave pbt_space out')
        if self.pbt is not None and self.schedule is not None:
            raise ConfigError(f"schedule and pbt={self.pbt!r} both change the settings of policies: give only one")
        if self.schedule_policy is not None:
            which = f"schedule_policy={self.schedule_policy!r} chooses a policy of a lineage"
            if is_json(self.schedule) or isinstance(self.schedule, Mapping):
                raise ConfigError(
                    f"{which}, but schedule is of one policy: leave schedule_policy out, or give the path of a lineage "
                    "as schedule"
                )
            if not isinstance(self.schedule, str):
                raise ConfigError(f"{which}: give schedule, the path of the lineage, too")

    def _validate_learners(self) -> None:
        """Raise `ConfigError` if the learners cannot share updates equally; the message lists the numbers that can."""
        size, on_nodes = self.num_learners, self.num_learner_nodes
        require(size > 0, "num_learners", size, "1 or more")
        if on_nodes >= size:
            raise ConfigError(
                f"learner_nodes={self.learner_nodes!r} puts {on_nodes} of num_learners={size} learners on nodes, but "
                f"the first is at home: use num_learners={on_nodes + 1} or more, or fewer learner_nodes"
            )
        if size == 1:
            return
        if self.backend == "serial":
            raise ConfigError(
                f'num_learners={size} needs as many processes, but backend="serial" has one: use backend="local", or '
                "num_learners=1"
            )
        if (count := len(self.policies) or self.num_policies) > 1:
            raise ConfigError(
                f"num_learners={size} is for one policy, found {count}: each of several policies already has its own "
                "learner; use num_learners=1"
            )
        shared = self.shared_by_learners
        most = math.gcd(*shared.values()) or size  # a custom config may share nothing: any number of learners is legal
        legal = [number for number in range(1, most + 1) if most % number == 0]
        near = [*[number for number in legal if number < size][-1:], *[number for number in legal if number > size][:1]]
        for what, count in shared.items():
            if count % size:
                raise ConfigError(
                    f"num_learners={size} is {'more than' if size > count else 'no divisor of'} the {count} {what}, "
                    f"which learners share equally: use {' or '.join(map(str, near))}"
                )

    def resolved(self, *, encodes_images: bool) -> Self:
        """Return a config with numbers in place of None in settings that depend on the network.

        Parameters
        ----------
        encodes_images
            Whether the network has an encoder of images.
        """
        if self.learning_rate is not None or self.learning_rates is None:
            return self
        usual, of_images = self.learning_rates
        return dataclasses.replace(self, learning_rate=of_images if encodes_images else usual)

    def with_schedules(self) -> Self:
        """Return a config with functions of progress instead of their import paths; each is tried.

        Raises
        ------
        ConfigError
            The function does not exist, or returns something other than a finite number, 0 or more.
        """
        scheduled = [name for name, hint in self.field_types().items() if Schedule in typing.get_args(hint)]
        given = {name: getattr(self, name) for name in scheduled}
        found: dict[str, Any] = {
            name: tried_schedule(name, value)
            for name, value in given.items()
            if isinstance(value, str) or callable(value)
        }
        return dataclasses.replace(self, **found) if found else self

    @property
    def policy_names(self) -> list[str]:
        """Names of the policies; empty in a run of one policy."""
        numbers = range(self.num_policies if self.num_policies > 1 else 0)
        return list(self.policies) or [str(number) for number in numbers]

    @property
    def num_nodes(self) -> int:
        """Largest number of nodes that step lanes. 1 for "all" until the run starts and counts them."""
        return self._bounds_of_nodes[1]

    @property
    def least_nodes(self) -> int:
        """Number of nodes with which the run begins; with fewer, it waits for lost nodes to return."""
        return self._bounds_of_nodes[0]

    @property
    def nodes_requested(self) -> str:
        """Number of nodes, including those with learners, in words: "3", "2 to 64"; empty without nodes."""
        least, most = (number + self.num_learner_nodes for number in self._bounds_of_nodes)
        return "" if self.backend != "ray" else str(most) if least == most else f"{least} to {most}"

    @property
    def _bounds_of_nodes(self) -> tuple[int, int]:
        if isinstance(self.nodes, str):
            least, _, most = "1:1".partition(":") if self.nodes == "all" else self.nodes.partition(":")
            return int(least), int(most)
        return (sum(counts_of(self.nodes)),) * 2

    @property
    def gateway_levels(self) -> list[list[range]]:
        """Numbers of the nodes below each gateway, level by level from home on; empty: no gateways."""
        return levels_of(self.num_nodes, self.nodes_per_gateway)

    @property
    def num_learner_nodes(self) -> int:
        """Number of nodes with a learner each."""
        return sum(counts_of(self.learner_nodes))

    @property
    def learners_at_home(self) -> int:
        """Number of a policy's learners on this machine."""
        return self.num_learners - self.num_learner_nodes

    @property
    def workers_per_node(self) -> int:
        """Rollout workers per node, resolved for this machine: one per core, at most 16."""
        from penstock.ipc import whole_cores  # here, because settings are read without anything native

        return self.num_workers or min(whole_cores(), 16)

    @property
    def workers(self) -> int:
        """Number of rollout workers of the run."""
        return self.workers_per_node * self.num_nodes

    @property
    def lanes_per_worker(self) -> int:
        """Lanes of each rollout worker: environments times learning agents per environment."""
        return self.num_envs_per_worker * (self.num_agents or 1) - self_play.lanes_without(self)

    @property
    def num_lanes(self) -> int:
        """Number of lanes of all rollout workers."""
        return self.workers * self.lanes_per_worker

    def data_path_for(self, usual: str | type, algorithm: str) -> str | type:
        """Return the data path that an algorithm uses with these settings.

        Parameters
        ----------
        usual
            The algorithm's data path, unless settings need another.
        algorithm
            Name of the algorithm, for messages.

        Raises
        ------
        ConfigError
            The settings need another data path, which cannot replace the usual one.
        """
        return usual

    @property
    def shared_by_learners(self) -> dict[str, int]:
        """Return the quantities that learners share equally: amounts by description."""
        return {}

    @property
    def lanes_in_words(self) -> str:
        """Describe how the number of lanes follows from settings, for messages."""
        agents = "" if self.num_agents is None else f" x num_agents={self.num_agents}"
        agents += self_play.lanes_without_in_words(self)
        nodes = "" if self.num_nodes == 1 else f"nodes={self.num_nodes} x "
        each = f"num_envs_per_worker={self.num_envs_per_worker}{agents}"
        return f"{self.num_lanes} lanes ({nodes}num_workers={self.workers_per_node} x {each})"

    @classmethod
    def fixed_settings(cls) -> dict[str, str]:
        """Return the settings that cannot change within a run: reasons by name."""
        fixed: dict[str, str] = {}
        for owner in reversed(cls.__mro__):
            fixed |= vars(owner).get("fixed", {})
        return fixed

    def to_json(self) -> dict[str, Any]:
        """Return all fields as JSON values; a callable becomes the place from which it can be imported."""
        found = {f.name: _jsonable(getattr(self, f.name)) for f in dataclasses.fields(self)}
        return {**found, "env_kwargs": saved(self.env_kwargs)}


def _jsonable(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_jsonable(item) for item in value]
    if isinstance(value, str) or hasattr(value, "__qualname__"):
        return place_of(value)
    return repr(value) if callable(value) else value

"""Written by ``python -m penstock.signatures`` from the configs; edit those."""

import os
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Literal

from penstock.algorithms.bases.algorithm import Algorithm
from penstock.engine.trainer import Trainer

class Face(Trainer):
    """A trainer of one algorithm."""

    algorithm: ClassVar[type[Algorithm]]

class APPO(Face):
    """Trains with APPO, asynchronous PPO; settings are the fields of `penstock.algorithms.appo.APPOConfig`.

    Parameters
    ----------
    env
        Gymnasium id, "EnvPool/Id", "module:Class", "file.py:Class"; in Python also a callable returning an environment,
        or a class.
    env_kwargs
        Keyword arguments for the environment.
    vectorize
        "make": one environment per lane; "vector": one vector environment per group of lanes.
    on_env_error
        An exception or NaN in an environment ends the run, or restarts its worker and is counted.
    reward_scale
        Rewards are multiplied by this for learning; reported returns stay true.
    reward_clip
        Scaled rewards are clipped to [-reward_clip, reward_clip] for learning; reported returns stay true.
    num_agents
        Agents of each environment, each of which is a lane; None: as many as the environment has.
    team_reward
        With several agents: each is rewarded with its own reward, or with the mean or the sum of its team's.
    num_policies
        So many policies of the same settings, which play the agents in turn; where an environment has one agent, each
        plays environments of its own.
    policies
        Policies by name, each with settings of its own; with several agents also with ``agents``, a pattern of those
        that it plays or several.
    policy_of
        Who plays what, instead: a function of the agent's name ("" where there is one) and the number of the
        environment in its worker that returns a policy's name; "module:function" or "file.py:function", in Python also
        itself.
    seats
        With several policies of several agents: each plays its own agents, or it is drawn before each game which agents
        each plays, as many as are its own.
    opponents
        With several agents: "past": in a share of the games guests, frozen past versions of the only policy, play all
        seats but one; with several policies one of them learns there, and past versions of each other policy play its
        agents. With several policies also the name of one: in a share of the games it is a guest, by its newest
        weights, and learns nothing there. "none": no guests play.
    opponent_pool
        Past versions of each policy that guests play.
    opponent_interval
        Steps between two versions that enter the pool; None: twenty in total_steps.
    opponent_share
        Share of the games in which guests play; in the others there are none.
    opponent_sampling
        How a version is drawn for a game: each with the same chance, or by (1 - win rate)^2 against it.
    eval_against
        With several agents: whom evaluations play: "random", "best", a class or function as "module:name" or
        "file.py:name", in Python also itself; with several policies also "others", the other policies. Empty: one
        policy plays all seats, several play each other.
    pbt
        Population-based training of the run's policies: now and then a bad one goes on as a copy of a better one, with
        settings a little different. "truncation" replaces the worst by one of the best, "tournament" whoever is worse
        than another drawn at random, "sample-factory" as "truncation", and changes settings of those between in place.
    pbt_space
        What may change: a TOML file with a table for each setting, as `penstock search` takes; in Python also the
        tables.
    pbt_interval
        Steps of each policy between two decisions about it; None: twenty in its share of total_steps.
    pbt_start
        Steps of each policy before the first decision about it; None: pbt_interval.
    pbt_fraction
        Share of the policies that counts as the worst, and as the best; None: 0.2, of "sample-factory" 0.3.
    pbt_metric
        What policies are ranked by: "return", the mean return of training episodes, or a name in info["metrics"].
    pbt_episodes
        Episodes that a policy needs since it was last replaced before it is ranked.
    schedule
        Tunable settings over the steps of the policy: lineage.jsonl of a population, or its directory, whose schedule
        is repeated; or {steps: {setting: value}}, on a command line as JSON. They win over the settings themselves.
    schedule_policy
        Whose schedule of the lineage it is; None: that of the policy with the best of the last scores.
    num_workers
        Rollout workers, with backend="ray" of each node; None: one per core, at most 16.
    num_envs_per_worker
        Environments per rollout worker: its lanes, where each has one agent.
    num_groups
        Groups of environments per worker that step in turn; None: 2 with central inference, 1 with local.
    inference
        Where actions are chosen: in each rollout worker, or in a policy worker that batches those of several.
    backend
        "local": one process per role; "serial": everything in this process, reproducible bit for bit; "ray": lanes are
        stepped by the nodes of a Ray cluster.
    address
        With backend="ray" the cluster: "auto", or the address of its head node; None: one of this machine, started for
        the run.
    nodes
        With backend="ray": how many nodes of the cluster step lanes, "all", or how many of those that have a custom
        resource of Ray's, by its name.
    evaluator
        With backend="ray": where evaluations play; "node": on the first node, which has a core for them beside its
        rollout workers'.
    num_learners
        Learners of the policy, a process each, on device="cuda" a GPU each; each computes a share of every update. With
        backend="local" and central inference each has a policy worker.
    learner_nodes
        With backend="ray": how many of these learners are on a node of their own, each on another, or how many on those
        that have a custom resource of Ray's, by its name; the first learner is at home.
    device
        Torch device of the learner and of central inference: "cpu", "cuda", "cuda:1", ...
    precision
        Arithmetic of the network's body (bfloat16 through autocast); heads, losses and weights stay float32. "auto":
        bfloat16 where the GPU or CPU that a role computes on is faster in it, else float32.
    encoder
        "mlp", "nature_cnn", "impala_resnet"; "auto": by observation; your nn.Module as "module:Class" or
        "file.py:Class", in Python also the class itself or a callable.
    hidden_sizes
        Widths of the hidden layers of the mlp encoder.
    activation
        Activation of the mlp encoder.
    normalize_observations
        Running normalisation of float observations; its statistics travel with the weights.
    memory
        Memory core behind the encoder.
    memory_size
        Width of the memory core.
    memory_span
        Steps that a new memory core reaches over before it has learned (chrono initialization, arXiv:1804.11188).
    shared_encoder
        One encoder for policy and value; None: shared for images, memory and own modules, separate for mlp.
    rewards
        What is learned from: the environment's rewards, or "rudder": delayed ones are handed to the steps that earned
        them, as a network beside the policy finds out; reported returns stay true.
    redistribution_attribution
        What a step is credited with: the difference that it makes to the prediction, or integrated gradients.
    redistribution_points
        Points on the path of integrated gradients.
    redistribution_max_error
        Original rewards are used while predictions leave so much of the returns' variance unexplained.
    redistributor_size
        Memory cells of the network that predicts returns.
    redistributor_learning_rate
        Step size of its optimiser.
    redistributor_interval
        Steps of the run for each of its updates.
    redistributor_batch_size
        Episodes per update.
    redistributor_lessons
        Episodes that it learns from: those that it predicts worst are kept.
    redistributor_chunk
        Steps that its gradients go back over; longer episodes are cut into chunks that overlap by half.
    redistributor_max_steps
        Longer episodes are not learned from.
    redistribution_value
        What values are learned from: "redistributed" rewards, as the policy; or "original" ones, with redistributed
        rewards mixed into the policy's advantages, as in the paper's Atari experiments.
    redistribution_share
        With original values: part of the advantages that redistributed rewards may take.
    redistribution_trace
        With original values: part of each redistributed reward that the step before is given, too.
    gamma
        Discount per step.
    learning_rate
        Step size of the optimiser, or a function of progress: "module:name", "file.py:name", in Python itself.
    learning_rate_schedule
        "linear" decays a number to 0 over total_steps; a function says all by itself.
    burn_in
        First steps of each segment that only bring the memory state up to date: no loss, no gradient through them.
    max_grad_norm
        Gradients are scaled down to this global norm.
    segment_length
        Steps per segment (T).
    entropy_coef
        Weight of the entropy bonus, or a function of progress, as learning_rate.
    entropy_coef_final
        A number's bonus moves linearly to this over total_steps; None: stays.
    value_coef
        Weight of the value loss.
    normalize_returns
        Running normalisation of value targets; its statistics travel with the weights.
    batch_size
        Steps per update (one minibatch).
    max_policy_lag
        Steps chosen by weights this many versions old, or older, are masked out of the loss.
    adam_beta1
        Decay of the optimiser's mean gradient.
    adam_beta2
        Decay of its mean squared gradient.
    adam_eps
        What it adds to the root of the mean square.
    num_epochs
        Passes over each batch.
    gae_lambda
        Lambda of the advantage estimator.
    normalize_advantages
        Advantages have mean 0 and standard deviation 1 in each update.
    clip_range
        The probability ratio counts within [1 / (1 + clip_range), 1 + clip_range].
    target_kl
        A batch's remaining updates are left out once the loss's approx_kl exceeds 1.5 times this (nats).
    num_minibatches
        Updates per pass over a batch: a batch is num_minibatches * batch_size steps.
    advantage_estimator
        "gae": once per batch, from the learner's values; "vtrace": corrected for policy lag, anew in every update.
    rho_bar
        V-trace: cut of the ratio in the temporal difference.
    c_bar
        V-trace: cut of the ratio in the trace.
    seed
        Seeds weights, environments and exploration.
    total_steps
        Budget in steps; schedules run over it.
    max_seconds
        Budget in seconds of wall-clock time. A last evaluation may take a tenth of it more, and 10 s at least.
    target_return
        The run ends when the evaluator's mean return reaches this.
    eval_interval
        Steps between evaluations, or below 1 a fraction of total_steps; "continuous": one after the other, always of
        the newest weights; None: twenty in total_steps, or with a target_return at most a fifth of the time is spent on
        them (serial: after each batch); 0: never.
    eval_episodes
        Episodes per evaluation; of games, how many against each opponent, from each seat or by each policy.
    eval_exploration
        Evaluations sample their actions, or where none are sampled explore as at the end of training.
    eval_max_steps
        Steps after which an evaluation gives an episode up; what it has returned by then is shown as unfinished.
    checkpoint_interval
        Steps between checkpoints; None: ten in total_steps; 0: only at the end.
    keep_checkpoints
        Checkpoints kept besides the best.
    run_dir
        Where the run is written; "auto": runs/<env>-<algorithm>-<time>; None: nothing is written at all.
    """

    def __init__(
        self,
        env: str | Callable[..., Any] = ...,
        *,
        preset: str | os.PathLike[str] | None = None,
        env_kwargs: dict[str, Any] = ...,
        vectorize: Literal["make", "vector"] = "make",
        on_env_error: Literal["stop", "restart"] = "stop",
        reward_scale: float = 1.0,
        reward_clip: float | None = None,
        num_agents: int | None = None,
        team_reward: Literal["own", "mean", "sum"] = "own",
        num_policies: int = 1,
        policies: dict[str, dict[str, Any]] = ...,
        policy_of: str | Callable[..., Any] | None = None,
        seats: Literal["fixed", "shuffled"] = "fixed",
        opponents: str = "none",
        opponent_pool: int = 8,
        opponent_interval: int | None = None,
        opponent_share: float = 0.5,
        opponent_sampling: Literal["uniform", "hard"] = "uniform",
        eval_against: Sequence[str | Callable[..., Any]] = (),
        pbt: Literal["truncation", "tournament", "sample-factory"] | None = None,
        pbt_space: str | os.PathLike[str] | dict[str, Any] | None = None,
        pbt_interval: int | None = None,
        pbt_start: int | None = None,
        pbt_fraction: float | None = None,
        pbt_metric: str = "return",
        pbt_episodes: int = 10,
        schedule: str | os.PathLike[str] | dict[Any, Any] | None = None,
        schedule_policy: str | None = None,
        num_workers: int | None = None,
        num_envs_per_worker: int = 16,
        num_groups: int | None = None,
        inference: Literal["auto", "local", "central"] = "auto",
        backend: Literal["local", "serial", "ray"] = "local",
        address: str | None = None,
        nodes: int | Literal["all"] | dict[str, int] = 1,
        evaluator: Literal["home", "node"] = "home",
        num_learners: int = 1,
        learner_nodes: int | dict[str, int] = 0,
        device: str = "cpu",
        precision: Literal["auto", "float32", "bfloat16"] = "float32",
        encoder: str | Callable[..., Any] = "auto",
        hidden_sizes: Sequence[int] = (64, 64),
        activation: Literal["tanh", "relu", "elu", "silu"] = "tanh",
        normalize_observations: bool = True,
        memory: Literal["none", "gru", "lstm"] = "none",
        memory_size: int = 128,
        memory_span: int | None = None,
        shared_encoder: bool | None = None,
        rewards: Literal["environment", "rudder"] = "environment",
        redistribution_attribution: Literal["difference", "integrated_gradients"] = "difference",
        redistribution_points: int = 20,
        redistribution_max_error: float = 0.2,
        redistributor_size: int = 32,
        redistributor_learning_rate: float = 0.005,
        redistributor_interval: int = 25,
        redistributor_batch_size: int = 8,
        redistributor_lessons: int = 512,
        redistributor_chunk: int = 500,
        redistributor_max_steps: int = 10000,
        redistribution_value: Literal["redistributed", "original"] = "redistributed",
        redistribution_share: float = 0.5,
        redistribution_trace: float = 0.5,
        gamma: float = 0.99,
        learning_rate: float | str | Callable[[float], float] = 0.002,
        learning_rate_schedule: Literal["constant", "linear"] = "linear",
        burn_in: int = 0,
        max_grad_norm: float = 0.5,
        segment_length: int = 32,
        entropy_coef: float | str | Callable[[float], float] = 0.003,
        entropy_coef_final: float | None = None,
        value_coef: float = 0.5,
        normalize_returns: bool = True,
        batch_size: int = 256,
        max_policy_lag: int = 100,
        adam_beta1: float = 0.9,
        adam_beta2: float = 0.999,
        adam_eps: float = 1e-05,
        num_epochs: int = 2,
        gae_lambda: float = 0.95,
        normalize_advantages: bool = True,
        clip_range: float = 0.2,
        target_kl: float | None = None,
        num_minibatches: int = 2,
        advantage_estimator: Literal["gae", "vtrace"] = "gae",
        rho_bar: float = 1.0,
        c_bar: float = 1.0,
        seed: int = 0,
        total_steps: int = 1000000,
        max_seconds: float | None = None,
        target_return: float | None = None,
        eval_interval: int | float | Literal["continuous"] | None = None,
        eval_episodes: int = 20,
        eval_exploration: bool = False,
        eval_max_steps: int = 30000,
        checkpoint_interval: int | None = None,
        keep_checkpoints: int = 3,
        run_dir: str | os.PathLike[str] | None = "auto",
    ) -> None: ...

class PPO(Face):
    """Trains with PPO, synchronous; settings are the fields of `penstock.algorithms.ppo.PPOConfig`.

    Parameters
    ----------
    env
        Gymnasium id, "EnvPool/Id", "module:Class", "file.py:Class"; in Python also a callable returning an environment,
        or a class.
    env_kwargs
        Keyword arguments for the environment.
    vectorize
        "make": one environment per lane; "vector": one vector environment per group of lanes.
    on_env_error
        An exception or NaN in an environment ends the run, or restarts its worker and is counted.
    reward_scale
        Rewards are multiplied by this for learning; reported returns stay true.
    reward_clip
        Scaled rewards are clipped to [-reward_clip, reward_clip] for learning; reported returns stay true.
    num_agents
        Agents of each environment, each of which is a lane; None: as many as the environment has.
    team_reward
        With several agents: each is rewarded with its own reward, or with the mean or the sum of its team's.
    num_policies
        So many policies of the same settings, which play the agents in turn; where an environment has one agent, each
        plays environments of its own.
    policies
        Policies by name, each with settings of its own; with several agents also with ``agents``, a pattern of those
        that it plays or several.
    policy_of
        Who plays what, instead: a function of the agent's name ("" where there is one) and the number of the
        environment in its worker that returns a policy's name; "module:function" or "file.py:function", in Python also
        itself.
    seats
        With several policies of several agents: each plays its own agents, or it is drawn before each game which agents
        each plays, as many as are its own.
    opponents
        With several agents: "past": in a share of the games guests, frozen past versions of the only policy, play all
        seats but one; with several policies one of them learns there, and past versions of each other policy play its
        agents. With several policies also the name of one: in a share of the games it is a guest, by its newest
        weights, and learns nothing there. "none": no guests play.
    opponent_pool
        Past versions of each policy that guests play.
    opponent_interval
        Steps between two versions that enter the pool; None: twenty in total_steps.
    opponent_share
        Share of the games in which guests play; in the others there are none.
    opponent_sampling
        How a version is drawn for a game: each with the same chance, or by (1 - win rate)^2 against it.
    eval_against
        With several agents: whom evaluations play: "random", "best", a class or function as "module:name" or
        "file.py:name", in Python also itself; with several policies also "others", the other policies. Empty: one
        policy plays all seats, several play each other.
    pbt
        Population-based training of the run's policies: now and then a bad one goes on as a copy of a better one, with
        settings a little different. "truncation" replaces the worst by one of the best, "tournament" whoever is worse
        than another drawn at random, "sample-factory" as "truncation", and changes settings of those between in place.
    pbt_space
        What may change: a TOML file with a table for each setting, as `penstock search` takes; in Python also the
        tables.
    pbt_interval
        Steps of each policy between two decisions about it; None: twenty in its share of total_steps.
    pbt_start
        Steps of each policy before the first decision about it; None: pbt_interval.
    pbt_fraction
        Share of the policies that counts as the worst, and as the best; None: 0.2, of "sample-factory" 0.3.
    pbt_metric
        What policies are ranked by: "return", the mean return of training episodes, or a name in info["metrics"].
    pbt_episodes
        Episodes that a policy needs since it was last replaced before it is ranked.
    schedule
        Tunable settings over the steps of the policy: lineage.jsonl of a population, or its directory, whose schedule
        is repeated; or {steps: {setting: value}}, on a command line as JSON. They win over the settings themselves.
    schedule_policy
        Whose schedule of the lineage it is; None: that of the policy with the best of the last scores.
    num_workers
        Rollout workers, with backend="ray" of each node; None: one per core, at most 16.
    num_envs_per_worker
        Environments per rollout worker.
    num_groups
        Groups of environments per worker that step in turn; None: 2 with central inference, 1 with local.
    inference
        Where actions are chosen: in each rollout worker, or in a policy worker that batches those of several.
    backend
        "local": one process per role; "serial": everything in this process, reproducible bit for bit; "ray": lanes are
        stepped by the nodes of a Ray cluster.
    address
        With backend="ray" the cluster: "auto", or the address of its head node; None: one of this machine, started for
        the run.
    nodes
        With backend="ray": how many nodes of the cluster step lanes, "all", or how many of those that have a custom
        resource of Ray's, by its name.
    evaluator
        With backend="ray": where evaluations play; "node": on the first node, which has a core for them beside its
        rollout workers'.
    num_learners
        Learners of the policy, a process each, on device="cuda" a GPU each; each computes a share of every update. With
        backend="local" and central inference each has a policy worker.
    learner_nodes
        With backend="ray": how many of these learners are on a node of their own, each on another, or how many on those
        that have a custom resource of Ray's, by its name; the first learner is at home.
    device
        Torch device of the learner and of central inference: "cpu", "cuda", "cuda:1", ...
    precision
        Arithmetic of the network's body (bfloat16 through autocast); heads, losses and weights stay float32. "auto":
        bfloat16 where the GPU or CPU that a role computes on is faster in it, else float32.
    encoder
        "mlp", "nature_cnn", "impala_resnet"; "auto": by observation; your nn.Module as "module:Class" or
        "file.py:Class", in Python also the class itself or a callable.
    hidden_sizes
        Widths of the hidden layers of the mlp encoder.
    activation
        Activation of the mlp encoder.
    normalize_observations
        Running normalisation of float observations; its statistics travel with the weights.
    memory
        Memory core behind the encoder.
    memory_size
        Width of the memory core.
    memory_span
        Steps that a new memory core reaches over before it has learned (chrono initialization, arXiv:1804.11188).
    shared_encoder
        One encoder for policy and value; None: shared for images, memory and own modules, separate for mlp.
    rewards
        What is learned from: the environment's rewards, or "rudder": delayed ones are handed to the steps that earned
        them, as a network beside the policy finds out; reported returns stay true.
    redistribution_attribution
        What a step is credited with: the difference that it makes to the prediction, or integrated gradients.
    redistribution_points
        Points on the path of integrated gradients.
    redistribution_max_error
        Original rewards are used while predictions leave so much of the returns' variance unexplained.
    redistributor_size
        Memory cells of the network that predicts returns.
    redistributor_learning_rate
        Step size of its optimiser.
    redistributor_interval
        Steps of the run for each of its updates.
    redistributor_batch_size
        Episodes per update.
    redistributor_lessons
        Episodes that it learns from: those that it predicts worst are kept.
    redistributor_chunk
        Steps that its gradients go back over; longer episodes are cut into chunks that overlap by half.
    redistributor_max_steps
        Longer episodes are not learned from.
    redistribution_value
        What values are learned from: "redistributed" rewards, as the policy; or "original" ones, with redistributed
        rewards mixed into the policy's advantages, as in the paper's Atari experiments.
    redistribution_share
        With original values: part of the advantages that redistributed rewards may take.
    redistribution_trace
        With original values: part of each redistributed reward that the step before is given, too.
    gamma
        Discount per step.
    learning_rate
        Step size of the optimiser, or a function of progress: "module:name", "file.py:name", in Python itself.
    learning_rate_schedule
        "linear" decays a number to 0 over total_steps; a function says all by itself.
    burn_in
        First steps of each segment that only bring the memory state up to date: no loss, no gradient through them.
    max_grad_norm
        Gradients are scaled down to this global norm.
    segment_length
        Steps per segment (T).
    entropy_coef
        Weight of the entropy bonus, or a function of progress, as learning_rate.
    entropy_coef_final
        A number's bonus moves linearly to this over total_steps; None: stays.
    value_coef
        Weight of the value loss.
    normalize_returns
        Running normalisation of value targets; its statistics travel with the weights.
    adam_beta1
        Decay of the optimiser's mean gradient.
    adam_beta2
        Decay of its mean squared gradient.
    adam_eps
        What it adds to the root of the mean square.
    num_epochs
        Passes over each batch.
    gae_lambda
        Lambda of the advantage estimator.
    normalize_advantages
        Advantages have mean 0 and standard deviation 1 in each update.
    clip_range
        The probability ratio counts within [1 - clip_range, 1 + clip_range].
    target_kl
        A batch's remaining updates are left out once the loss's approx_kl exceeds 1.5 times this (nats).
    batch_size
        Steps per update (one minibatch); all lanes' segments together are a multiple of it.
    value_clip_range
        Values move by at most this per batch; None: freely.
    seed
        Seeds weights, environments and exploration.
    total_steps
        Budget in steps; schedules run over it.
    max_seconds
        Budget in seconds of wall-clock time. A last evaluation may take a tenth of it more, and 10 s at least.
    target_return
        The run ends when the evaluator's mean return reaches this.
    eval_interval
        Steps between evaluations, or below 1 a fraction of total_steps; "continuous": one after the other, always of
        the newest weights; None: twenty in total_steps, or with a target_return at most a fifth of the time is spent on
        them (serial: after each batch); 0: never.
    eval_episodes
        Episodes per evaluation; of games, how many against each opponent, from each seat or by each policy.
    eval_exploration
        Evaluations sample their actions, or where none are sampled explore as at the end of training.
    eval_max_steps
        Steps after which an evaluation gives an episode up; what it has returned by then is shown as unfinished.
    checkpoint_interval
        Steps between checkpoints; None: ten in total_steps; 0: only at the end.
    keep_checkpoints
        Checkpoints kept besides the best.
    run_dir
        Where the run is written; "auto": runs/<env>-<algorithm>-<time>; None: nothing is written at all.
    """

    def __init__(
        self,
        env: str | Callable[..., Any] = ...,
        *,
        preset: str | os.PathLike[str] | None = None,
        env_kwargs: dict[str, Any] = ...,
        vectorize: Literal["make", "vector"] = "make",
        on_env_error: Literal["stop", "restart"] = "stop",
        reward_scale: float = 1.0,
        reward_clip: float | None = None,
        num_agents: int | None = None,
        team_reward: Literal["own", "mean", "sum"] = "own",
        num_policies: int = 1,
        policies: dict[str, dict[str, Any]] = ...,
        policy_of: str | Callable[..., Any] | None = None,
        seats: Literal["fixed", "shuffled"] = "fixed",
        opponents: str = "none",
        opponent_pool: int = 8,
        opponent_interval: int | None = None,
        opponent_share: float = 0.5,
        opponent_sampling: Literal["uniform", "hard"] = "uniform",
        eval_against: Sequence[str | Callable[..., Any]] = (),
        pbt: Literal["truncation", "tournament", "sample-factory"] | None = None,
        pbt_space: str | os.PathLike[str] | dict[str, Any] | None = None,
        pbt_interval: int | None = None,
        pbt_start: int | None = None,
        pbt_fraction: float | None = None,
        pbt_metric: str = "return",
        pbt_episodes: int = 10,
        schedule: str | os.PathLike[str] | dict[Any, Any] | None = None,
        schedule_policy: str | None = None,
        num_workers: int | None = None,
        num_envs_per_worker: int = 8,
        num_groups: int | None = None,
        inference: Literal["auto", "local", "central"] = "auto",
        backend: Literal["local", "serial", "ray"] = "local",
        address: str | None = None,
        nodes: int | Literal["all"] | dict[str, int] = 1,
        evaluator: Literal["home", "node"] = "home",
        num_learners: int = 1,
        learner_nodes: int | dict[str, int] = 0,
        device: str = "cpu",
        precision: Literal["auto", "float32", "bfloat16"] = "float32",
        encoder: str | Callable[..., Any] = "auto",
        hidden_sizes: Sequence[int] = (64, 64),
        activation: Literal["tanh", "relu", "elu", "silu"] = "tanh",
        normalize_observations: bool = True,
        memory: Literal["none", "gru", "lstm"] = "none",
        memory_size: int = 128,
        memory_span: int | None = None,
        shared_encoder: bool | None = None,
        rewards: Literal["environment", "rudder"] = "environment",
        redistribution_attribution: Literal["difference", "integrated_gradients"] = "difference",
        redistribution_points: int = 20,
        redistribution_max_error: float = 0.2,
        redistributor_size: int = 32,
        redistributor_learning_rate: float = 0.005,
        redistributor_interval: int = 25,
        redistributor_batch_size: int = 8,
        redistributor_lessons: int = 512,
        redistributor_chunk: int = 500,
        redistributor_max_steps: int = 10000,
        redistribution_value: Literal["redistributed", "original"] = "redistributed",
        redistribution_share: float = 0.5,
        redistribution_trace: float = 0.5,
        gamma: float = 0.99,
        learning_rate: float | str | Callable[[float], float] = 0.0005,
        learning_rate_schedule: Literal["constant", "linear"] = "linear",
        burn_in: int = 0,
        max_grad_norm: float = 0.5,
        segment_length: int = 128,
        entropy_coef: float | str | Callable[[float], float] = 0.01,
        entropy_coef_final: float | None = None,
        value_coef: float = 0.5,
        normalize_returns: bool = True,
        adam_beta1: float = 0.9,
        adam_beta2: float = 0.999,
        adam_eps: float = 1e-05,
        num_epochs: int = 10,
        gae_lambda: float = 0.95,
        normalize_advantages: bool = True,
        clip_range: float = 0.2,
        target_kl: float | None = None,
        batch_size: int = 256,
        value_clip_range: float | None = None,
        seed: int = 0,
        total_steps: int = 500000,
        max_seconds: float | None = None,
        target_return: float | None = None,
        eval_interval: int | float | Literal["continuous"] | None = None,
        eval_episodes: int = 20,
        eval_exploration: bool = False,
        eval_max_steps: int = 30000,
        checkpoint_interval: int | None = None,
        keep_checkpoints: int = 3,
        run_dir: str | os.PathLike[str] | None = "auto",
    ) -> None: ...

class A2C(Face):
    """Trains with A2C, synchronous; settings are the fields of `penstock.algorithms.a2c.A2CConfig`.

    Parameters
    ----------
    env
        Gymnasium id, "EnvPool/Id", "module:Class", "file.py:Class"; in Python also a callable returning an environment,
        or a class.
    env_kwargs
        Keyword arguments for the environment.
    vectorize
        "make": one environment per lane; "vector": one vector environment per group of lanes.
    on_env_error
        An exception or NaN in an environment ends the run, or restarts its worker and is counted.
    reward_scale
        Rewards are multiplied by this for learning; reported returns stay true.
    reward_clip
        Scaled rewards are clipped to [-reward_clip, reward_clip] for learning; reported returns stay true.
    num_agents
        Agents of each environment, each of which is a lane; None: as many as the environment has.
    team_reward
        With several agents: each is rewarded with its own reward, or with the mean or the sum of its team's.
    num_policies
        So many policies of the same settings, which play the agents in turn; where an environment has one agent, each
        plays environments of its own.
    policies
        Policies by name, each with settings of its own; with several agents also with ``agents``, a pattern of those
        that it plays or several.
    policy_of
        Who plays what, instead: a function of the agent's name ("" where there is one) and the number of the
        environment in its worker that returns a policy's name; "module:function" or "file.py:function", in Python also
        itself.
    seats
        With several policies of several agents: each plays its own agents, or it is drawn before each game which agents
        each plays, as many as are its own.
    opponents
        With several agents: "past": in a share of the games guests, frozen past versions of the only policy, play all
        seats but one; with several policies one of them learns there, and past versions of each other policy play its
        agents. With several policies also the name of one: in a share of the games it is a guest, by its newest
        weights, and learns nothing there. "none": no guests play.
    opponent_pool
        Past versions of each policy that guests play.
    opponent_interval
        Steps between two versions that enter the pool; None: twenty in total_steps.
    opponent_share
        Share of the games in which guests play; in the others there are none.
    opponent_sampling
        How a version is drawn for a game: each with the same chance, or by (1 - win rate)^2 against it.
    eval_against
        With several agents: whom evaluations play: "random", "best", a class or function as "module:name" or
        "file.py:name", in Python also itself; with several policies also "others", the other policies. Empty: one
        policy plays all seats, several play each other.
    pbt
        Population-based training of the run's policies: now and then a bad one goes on as a copy of a better one, with
        settings a little different. "truncation" replaces the worst by one of the best, "tournament" whoever is worse
        than another drawn at random, "sample-factory" as "truncation", and changes settings of those between in place.
    pbt_space
        What may change: a TOML file with a table for each setting, as `penstock search` takes; in Python also the
        tables.
    pbt_interval
        Steps of each policy between two decisions about it; None: twenty in its share of total_steps.
    pbt_start
        Steps of each policy before the first decision about it; None: pbt_interval.
    pbt_fraction
        Share of the policies that counts as the worst, and as the best; None: 0.2, of "sample-factory" 0.3.
    pbt_metric
        What policies are ranked by: "return", the mean return of training episodes, or a name in info["metrics"].
    pbt_episodes
        Episodes that a policy needs since it was last replaced before it is ranked.
    schedule
        Tunable settings over the steps of the policy: lineage.jsonl of a population, or its directory, whose schedule
        is repeated; or {steps: {setting: value}}, on a command line as JSON. They win over the settings themselves.
    schedule_policy
        Whose schedule of the lineage it is; None: that of the policy with the best of the last scores.
    num_workers
        Rollout workers, with backend="ray" of each node; None: one per core, at most 16.
    num_envs_per_worker
        Environments per rollout worker: its lanes, where each has one agent.
    num_groups
        Groups of environments per worker that step in turn; None: 2 with central inference, 1 with local.
    inference
        Where actions are chosen: in each rollout worker, or in a policy worker that batches those of several.
    backend
        "local": one process per role; "serial": everything in this process, reproducible bit for bit; "ray": lanes are
        stepped by the nodes of a Ray cluster.
    address
        With backend="ray" the cluster: "auto", or the address of its head node; None: one of this machine, started for
        the run.
    nodes
        With backend="ray": how many nodes of the cluster step lanes, "all", or how many of those that have a custom
        resource of Ray's, by its name.
    evaluator
        With backend="ray": where evaluations play; "node": on the first node, which has a core for them beside its
        rollout workers'.
    num_learners
        Learners of the policy, a process each, on device="cuda" a GPU each; each computes a share of every update. With
        backend="local" and central inference each has a policy worker.
    learner_nodes
        With backend="ray": how many of these learners are on a node of their own, each on another, or how many on those
        that have a custom resource of Ray's, by its name; the first learner is at home.
    device
        Torch device of the learner and of central inference: "cpu", "cuda", "cuda:1", ...
    precision
        Arithmetic of the network's body (bfloat16 through autocast); heads, losses and weights stay float32. "auto":
        bfloat16 where the GPU or CPU that a role computes on is faster in it, else float32.
    encoder
        "mlp", "nature_cnn", "impala_resnet"; "auto": by observation; your nn.Module as "module:Class" or
        "file.py:Class", in Python also the class itself or a callable.
    hidden_sizes
        Widths of the hidden layers of the mlp encoder.
    activation
        Activation of the mlp encoder.
    normalize_observations
        Running normalisation of float observations; its statistics travel with the weights.
    memory
        Memory core behind the encoder.
    memory_size
        Width of the memory core.
    memory_span
        Steps that a new memory core reaches over before it has learned (chrono initialization, arXiv:1804.11188).
    shared_encoder
        One encoder for policy and value; None: shared for images, memory and own modules, separate for mlp.
    rewards
        What is learned from: the environment's rewards, or "rudder": delayed ones are handed to the steps that earned
        them, as a network beside the policy finds out; reported returns stay true.
    redistribution_attribution
        What a step is credited with: the difference that it makes to the prediction, or integrated gradients.
    redistribution_points
        Points on the path of integrated gradients.
    redistribution_max_error
        Original rewards are used while predictions leave so much of the returns' variance unexplained.
    redistributor_size
        Memory cells of the network that predicts returns.
    redistributor_learning_rate
        Step size of its optimiser.
    redistributor_interval
        Steps of the run for each of its updates.
    redistributor_batch_size
        Episodes per update.
    redistributor_lessons
        Episodes that it learns from: those that it predicts worst are kept.
    redistributor_chunk
        Steps that its gradients go back over; longer episodes are cut into chunks that overlap by half.
    redistributor_max_steps
        Longer episodes are not learned from.
    redistribution_value
        What values are learned from: "redistributed" rewards, as the policy; or "original" ones, with redistributed
        rewards mixed into the policy's advantages, as in the paper's Atari experiments.
    redistribution_share
        With original values: part of the advantages that redistributed rewards may take.
    redistribution_trace
        With original values: part of each redistributed reward that the step before is given, too.
    gamma
        Discount per step.
    learning_rate
        Step size of the optimiser, or a function of progress: "module:name", "file.py:name", in Python itself.
    learning_rate_schedule
        "linear" decays a number to 0 over total_steps; a function says all by itself.
    burn_in
        First steps of each segment that only bring the memory state up to date: no loss, no gradient through them.
    max_grad_norm
        Gradients are scaled down to this global norm.
    segment_length
        Steps per segment (T): n of the n-step returns.
    entropy_coef
        Weight of the entropy bonus, or a function of progress, as learning_rate.
    entropy_coef_final
        A number's bonus moves linearly to this over total_steps; None: stays.
    value_coef
        Weight of the value loss.
    normalize_returns
        Running normalisation of value targets; its statistics travel with the weights.
    rmsprop_decay
        Decay of the running mean of squared gradients.
    rmsprop_eps
        Keeps steps finite where gradients are small.
    rmsprop_eps_inside
        Where epsilon stands: g / sqrt(s + eps), as in TensorFlow and the papers' codes; False: g / (sqrt(s) + eps).
    gae_lambda
        Lambda of the advantage estimator; 1: n-step returns, as published.
    seed
        Seeds weights, environments and exploration.
    total_steps
        Budget in steps; schedules run over it.
    max_seconds
        Budget in seconds of wall-clock time. A last evaluation may take a tenth of it more, and 10 s at least.
    target_return
        The run ends when the evaluator's mean return reaches this.
    eval_interval
        Steps between evaluations, or below 1 a fraction of total_steps; "continuous": one after the other, always of
        the newest weights; None: twenty in total_steps, or with a target_return at most a fifth of the time is spent on
        them (serial: after each batch); 0: never.
    eval_episodes
        Episodes per evaluation; of games, how many against each opponent, from each seat or by each policy.
    eval_exploration
        Evaluations sample their actions, or where none are sampled explore as at the end of training.
    eval_max_steps
        Steps after which an evaluation gives an episode up; what it has returned by then is shown as unfinished.
    checkpoint_interval
        Steps between checkpoints; None: ten in total_steps; 0: only at the end.
    keep_checkpoints
        Checkpoints kept besides the best.
    run_dir
        Where the run is written; "auto": runs/<env>-<algorithm>-<time>; None: nothing is written at all.
    """

    def __init__(
        self,
        env: str | Callable[..., Any] = ...,
        *,
        preset: str | os.PathLike[str] | None = None,
        env_kwargs: dict[str, Any] = ...,
        vectorize: Literal["make", "vector"] = "make",
        on_env_error: Literal["stop", "restart"] = "stop",
        reward_scale: float = 1.0,
        reward_clip: float | None = None,
        num_agents: int | None = None,
        team_reward: Literal["own", "mean", "sum"] = "own",
        num_policies: int = 1,
        policies: dict[str, dict[str, Any]] = ...,
        policy_of: str | Callable[..., Any] | None = None,
        seats: Literal["fixed", "shuffled"] = "fixed",
        opponents: str = "none",
        opponent_pool: int = 8,
        opponent_interval: int | None = None,
        opponent_share: float = 0.5,
        opponent_sampling: Literal["uniform", "hard"] = "uniform",
        eval_against: Sequence[str | Callable[..., Any]] = (),
        pbt: Literal["truncation", "tournament", "sample-factory"] | None = None,
        pbt_space: str | os.PathLike[str] | dict[str, Any] | None = None,
        pbt_interval: int | None = None,
        pbt_start: int | None = None,
        pbt_fraction: float | None = None,
        pbt_metric: str = "return",
        pbt_episodes: int = 10,
        schedule: str | os.PathLike[str] | dict[Any, Any] | None = None,
        schedule_policy: str | None = None,
        num_workers: int | None = None,
        num_envs_per_worker: int = 16,
        num_groups: int | None = None,
        inference: Literal["auto", "local", "central"] = "auto",
        backend: Literal["local", "serial", "ray"] = "local",
        address: str | None = None,
        nodes: int | Literal["all"] | dict[str, int] = 1,
        evaluator: Literal["home", "node"] = "home",
        num_learners: int = 1,
        learner_nodes: int | dict[str, int] = 0,
        device: str = "cpu",
        precision: Literal["auto", "float32", "bfloat16"] = "float32",
        encoder: str | Callable[..., Any] = "auto",
        hidden_sizes: Sequence[int] = (64, 64),
        activation: Literal["tanh", "relu", "elu", "silu"] = "tanh",
        normalize_observations: bool = True,
        memory: Literal["none", "gru", "lstm"] = "none",
        memory_size: int = 128,
        memory_span: int | None = None,
        shared_encoder: bool | None = None,
        rewards: Literal["environment", "rudder"] = "environment",
        redistribution_attribution: Literal["difference", "integrated_gradients"] = "difference",
        redistribution_points: int = 20,
        redistribution_max_error: float = 0.2,
        redistributor_size: int = 32,
        redistributor_learning_rate: float = 0.005,
        redistributor_interval: int = 25,
        redistributor_batch_size: int = 8,
        redistributor_lessons: int = 512,
        redistributor_chunk: int = 500,
        redistributor_max_steps: int = 10000,
        redistribution_value: Literal["redistributed", "original"] = "redistributed",
        redistribution_share: float = 0.5,
        redistribution_trace: float = 0.5,
        gamma: float = 0.99,
        learning_rate: float | str | Callable[[float], float] = 0.004,
        learning_rate_schedule: Literal["constant", "linear"] = "linear",
        burn_in: int = 0,
        max_grad_norm: float = 0.5,
        segment_length: int = 5,
        entropy_coef: float | str | Callable[[float], float] = 0.01,
        entropy_coef_final: float | None = None,
        value_coef: float = 0.5,
        normalize_returns: bool = True,
        rmsprop_decay: float = 0.99,
        rmsprop_eps: float = 0.0001,
        rmsprop_eps_inside: bool = True,
        gae_lambda: float = 1.0,
        seed: int = 0,
        total_steps: int = 500000,
        max_seconds: float | None = None,
        target_return: float | None = None,
        eval_interval: int | float | Literal["continuous"] | None = None,
        eval_episodes: int = 20,
        eval_exploration: bool = False,
        eval_max_steps: int = 30000,
        checkpoint_interval: int | None = None,
        keep_checkpoints: int = 3,
        run_dir: str | os.PathLike[str] | None = "auto",
    ) -> None: ...

class A3C(Face):
    """Trains with A3C, workers that learn; settings are the fields of `penstock.algorithms.a3c.A3CConfig`.

    Parameters
    ----------
    env
        Gymnasium id, "EnvPool/Id", "module:Class", "file.py:Class"; in Python also a callable returning an environment,
        or a class.
    env_kwargs
        Keyword arguments for the environment.
    vectorize
        "make": one environment per lane; "vector": one vector environment per group of lanes.
    on_env_error
        An exception or NaN in an environment ends the run, or restarts its worker and is counted.
    reward_scale
        Rewards are multiplied by this for learning; reported returns stay true.
    reward_clip
        Scaled rewards are clipped to [-reward_clip, reward_clip] for learning; reported returns stay true.
    num_agents
        Agents of each environment, each of which is a lane; None: as many as the environment has.
    team_reward
        With several agents: each is rewarded with its own reward, or with the mean or the sum of its team's.
    num_policies
        So many policies of the same settings, which play the agents in turn; where an environment has one agent, each
        plays environments of its own.
    policies
        Policies by name, each with settings of its own; with several agents also with ``agents``, a pattern of those
        that it plays or several.
    policy_of
        Who plays what, instead: a function of the agent's name ("" where there is one) and the number of the
        environment in its worker that returns a policy's name; "module:function" or "file.py:function", in Python also
        itself.
    seats
        With several policies of several agents: each plays its own agents, or it is drawn before each game which agents
        each plays, as many as are its own.
    opponents
        With several agents: "past": in a share of the games guests, frozen past versions of the only policy, play all
        seats but one; with several policies one of them learns there, and past versions of each other policy play its
        agents. With several policies also the name of one: in a share of the games it is a guest, by its newest
        weights, and learns nothing there. "none": no guests play.
    opponent_pool
        Past versions of each policy that guests play.
    opponent_interval
        Steps between two versions that enter the pool; None: twenty in total_steps.
    opponent_share
        Share of the games in which guests play; in the others there are none.
    opponent_sampling
        How a version is drawn for a game: each with the same chance, or by (1 - win rate)^2 against it.
    eval_against
        With several agents: whom evaluations play: "random", "best", a class or function as "module:name" or
        "file.py:name", in Python also itself; with several policies also "others", the other policies. Empty: one
        policy plays all seats, several play each other.
    pbt
        Population-based training of the run's policies: now and then a bad one goes on as a copy of a better one, with
        settings a little different. "truncation" replaces the worst by one of the best, "tournament" whoever is worse
        than another drawn at random, "sample-factory" as "truncation", and changes settings of those between in place.
    pbt_space
        What may change: a TOML file with a table for each setting, as `penstock search` takes; in Python also the
        tables.
    pbt_interval
        Steps of each policy between two decisions about it; None: twenty in its share of total_steps.
    pbt_start
        Steps of each policy before the first decision about it; None: pbt_interval.
    pbt_fraction
        Share of the policies that counts as the worst, and as the best; None: 0.2, of "sample-factory" 0.3.
    pbt_metric
        What policies are ranked by: "return", the mean return of training episodes, or a name in info["metrics"].
    pbt_episodes
        Episodes that a policy needs since it was last replaced before it is ranked.
    schedule
        Tunable settings over the steps of the policy: lineage.jsonl of a population, or its directory, whose schedule
        is repeated; or {steps: {setting: value}}, on a command line as JSON. They win over the settings themselves.
    schedule_policy
        Whose schedule of the lineage it is; None: that of the policy with the best of the last scores.
    num_workers
        Rollout workers, with backend="ray" of each node; None: one per core, at most 16.
    num_envs_per_worker
        Environments per rollout worker; each gradient is of one segment of all their lanes. Published is 1.
    num_groups
        All lanes of a worker step together.
    inference
        Where actions are chosen: in each rollout worker, either way.
    backend
        "local": one process per role; "serial": everything in this process, reproducible bit for bit; "ray": lanes are
        stepped by the nodes of a Ray cluster.
    address
        With backend="ray" the cluster: "auto", or the address of its head node; None: one of this machine, started for
        the run.
    nodes
        With backend="ray": how many nodes of the cluster step lanes, "all", or how many of those that have a custom
        resource of Ray's, by its name.
    evaluator
        With backend="ray": where evaluations play; "node": on the first node, which has a core for them beside its
        rollout workers'.
    num_learners
        Learners of the policy, a process each, on device="cuda" a GPU each; each computes a share of every update. With
        backend="local" and central inference each has a policy worker.
    learner_nodes
        With backend="ray": how many of these learners are on a node of their own, each on another, or how many on those
        that have a custom resource of Ray's, by its name; the first learner is at home.
    device
        Rollout workers learn on the CPU.
    precision
        Arithmetic of the network's body (bfloat16 through autocast); heads, losses and weights stay float32. "auto":
        bfloat16 where the GPU or CPU that a role computes on is faster in it, else float32.
    encoder
        "mlp", "nature_cnn", "impala_resnet"; "auto": by observation; your nn.Module as "module:Class" or
        "file.py:Class", in Python also the class itself or a callable.
    hidden_sizes
        Widths of the hidden layers of the mlp encoder.
    activation
        Activation of the mlp encoder.
    normalize_observations
        Running normalisation of float observations; its statistics travel with the weights.
    memory
        Memory core behind the encoder.
    memory_size
        Width of the memory core.
    memory_span
        Steps that a new memory core reaches over before it has learned (chrono initialization, arXiv:1804.11188).
    shared_encoder
        One encoder for policy and value; None: shared for images, memory and own modules, separate for mlp.
    gamma
        Discount per step.
    learning_rate
        Step size of the optimiser, or a function of progress: "module:name", "file.py:name", in Python itself.
    learning_rate_schedule
        "linear" decays a number to 0 over total_steps; a function says all by itself.
    burn_in
        First steps of each segment that only bring the memory state up to date: no loss, no gradient through them.
    max_grad_norm
        Each worker's gradients are scaled down to this global norm.
    segment_length
        Steps per segment (t_max).
    entropy_coef
        Weight of the entropy bonus, or a function of progress, as learning_rate.
    entropy_coef_final
        A number's bonus moves linearly to this over total_steps; None: stays.
    value_coef
        Weight of the value loss.
    normalize_returns
        Running normalisation of value targets; its statistics travel with the weights.
    rmsprop_decay
        Decay of the running mean of squared gradients.
    rmsprop_eps
        Keeps steps finite where gradients are small.
    rmsprop_eps_inside
        Where epsilon stands: g / sqrt(s + eps), as in TensorFlow and the papers' codes; False: g / (sqrt(s) + eps).
    gae_lambda
        Lambda of the advantage estimator; 1: n-step returns, as published.
    entropy_spread
        Workers explore differently: their entropy bonuses lie evenly, in logarithms, from entropy_coef / entropy_spread
        to entropy_coef * entropy_spread.
    reduction
        Losses are summed over a segment's steps, as published, or averaged: learning rate and clipping go with it.
    seed
        Seeds weights, environments and exploration.
    total_steps
        Budget in steps; schedules run over it.
    max_seconds
        Budget in seconds of wall-clock time. A last evaluation may take a tenth of it more, and 10 s at least.
    target_return
        The run ends when the evaluator's mean return reaches this.
    eval_interval
        Steps between evaluations, or below 1 a fraction of total_steps; "continuous": one after the other, always of
        the newest weights; None: twenty in total_steps, or with a target_return at most a fifth of the time is spent on
        them (serial: after each batch); 0: never.
    eval_episodes
        Episodes per evaluation; of games, how many against each opponent, from each seat or by each policy.
    eval_exploration
        Evaluations sample their actions, or where none are sampled explore as at the end of training.
    eval_max_steps
        Steps after which an evaluation gives an episode up; what it has returned by then is shown as unfinished.
    checkpoint_interval
        Steps between checkpoints; None: ten in total_steps; 0: only at the end.
    keep_checkpoints
        Checkpoints kept besides the best.
    run_dir
        Where the run is written; "auto": runs/<env>-<algorithm>-<time>; None: nothing is written at all.
    """

    def __init__(
        self,
        env: str | Callable[..., Any] = ...,
        *,
        preset: str | os.PathLike[str] | None = None,
        env_kwargs: dict[str, Any] = ...,
        vectorize: Literal["make", "vector"] = "make",
        on_env_error: Literal["stop", "restart"] = "stop",
        reward_scale: float = 1.0,
        reward_clip: float | None = None,
        num_agents: int | None = None,
        team_reward: Literal["own", "mean", "sum"] = "own",
        num_policies: int = 1,
        policies: dict[str, dict[str, Any]] = ...,
        policy_of: str | Callable[..., Any] | None = None,
        seats: Literal["fixed", "shuffled"] = "fixed",
        opponents: str = "none",
        opponent_pool: int = 8,
        opponent_interval: int | None = None,
        opponent_share: float = 0.5,
        opponent_sampling: Literal["uniform", "hard"] = "uniform",
        eval_against: Sequence[str | Callable[..., Any]] = (),
        pbt: Literal["truncation", "tournament", "sample-factory"] | None = None,
        pbt_space: str | os.PathLike[str] | dict[str, Any] | None = None,
        pbt_interval: int | None = None,
        pbt_start: int | None = None,
        pbt_fraction: float | None = None,
        pbt_metric: str = "return",
        pbt_episodes: int = 10,
        schedule: str | os.PathLike[str] | dict[Any, Any] | None = None,
        schedule_policy: str | None = None,
        num_workers: int | None = None,
        num_envs_per_worker: int = 8,
        num_groups: Literal[1] | None = None,
        inference: Literal["auto", "local"] = "auto",
        backend: Literal["local", "serial", "ray"] = "local",
        address: str | None = None,
        nodes: int | Literal["all"] | dict[str, int] = 1,
        evaluator: Literal["home", "node"] = "home",
        num_learners: int = 1,
        learner_nodes: int | dict[str, int] = 0,
        device: Literal["cpu"] = "cpu",
        precision: Literal["auto", "float32", "bfloat16"] = "float32",
        encoder: str | Callable[..., Any] = "auto",
        hidden_sizes: Sequence[int] = (64, 64),
        activation: Literal["tanh", "relu", "elu", "silu"] = "tanh",
        normalize_observations: bool = True,
        memory: Literal["none", "gru", "lstm"] = "none",
        memory_size: int = 128,
        memory_span: int | None = None,
        shared_encoder: bool | None = None,
        gamma: float = 0.99,
        learning_rate: float | str | Callable[[float], float] = 0.003,
        learning_rate_schedule: Literal["constant", "linear"] = "linear",
        burn_in: int = 0,
        max_grad_norm: float = 40.0,
        segment_length: int = 20,
        entropy_coef: float | str | Callable[[float], float] = 0.01,
        entropy_coef_final: float | None = None,
        value_coef: float = 0.5,
        normalize_returns: bool = True,
        rmsprop_decay: float = 0.99,
        rmsprop_eps: float = 0.01,
        rmsprop_eps_inside: bool = True,
        gae_lambda: float = 1.0,
        entropy_spread: float = 1.0,
        reduction: Literal["sum", "mean"] = "sum",
        seed: int = 0,
        total_steps: int = 500000,
        max_seconds: float | None = None,
        target_return: float | None = None,
        eval_interval: int | float | Literal["continuous"] | None = None,
        eval_episodes: int = 20,
        eval_exploration: bool = False,
        eval_max_steps: int = 30000,
        checkpoint_interval: int | None = None,
        keep_checkpoints: int = 3,
        run_dir: str | os.PathLike[str] | None = "auto",
    ) -> None: ...

class IMPALA(Face):
    """Trains with IMPALA, V-trace; settings are the fields of `penstock.algorithms.impala.IMPALAConfig`.

    Parameters
    ----------
    env
        Gymnasium id, "EnvPool/Id", "module:Class", "file.py:Class"; in Python also a callable returning an environment,
        or a class.
    env_kwargs
        Keyword arguments for the environment.
    vectorize
        "make": one environment per lane; "vector": one vector environment per group of lanes.
    on_env_error
        An exception or NaN in an environment ends the run, or restarts its worker and is counted.
    reward_scale
        Rewards are multiplied by this for learning; reported returns stay true.
    reward_clip
        Scaled rewards are clipped to [-reward_clip, reward_clip] for learning; reported returns stay true.
    num_agents
        Agents of each environment, each of which is a lane; None: as many as the environment has.
    team_reward
        With several agents: each is rewarded with its own reward, or with the mean or the sum of its team's.
    num_policies
        So many policies of the same settings, which play the agents in turn; where an environment has one agent, each
        plays environments of its own.
    policies
        Policies by name, each with settings of its own; with several agents also with ``agents``, a pattern of those
        that it plays or several.
    policy_of
        Who plays what, instead: a function of the agent's name ("" where there is one) and the number of the
        environment in its worker that returns a policy's name; "module:function" or "file.py:function", in Python also
        itself.
    seats
        With several policies of several agents: each plays its own agents, or it is drawn before each game which agents
        each plays, as many as are its own.
    opponents
        With several agents: "past": in a share of the games guests, frozen past versions of the only policy, play all
        seats but one; with several policies one of them learns there, and past versions of each other policy play its
        agents. With several policies also the name of one: in a share of the games it is a guest, by its newest
        weights, and learns nothing there. "none": no guests play.
    opponent_pool
        Past versions of each policy that guests play.
    opponent_interval
        Steps between two versions that enter the pool; None: twenty in total_steps.
    opponent_share
        Share of the games in which guests play; in the others there are none.
    opponent_sampling
        How a version is drawn for a game: each with the same chance, or by (1 - win rate)^2 against it.
    eval_against
        With several agents: whom evaluations play: "random", "best", a class or function as "module:name" or
        "file.py:name", in Python also itself; with several policies also "others", the other policies. Empty: one
        policy plays all seats, several play each other.
    pbt
        Population-based training of the run's policies: now and then a bad one goes on as a copy of a better one, with
        settings a little different. "truncation" replaces the worst by one of the best, "tournament" whoever is worse
        than another drawn at random, "sample-factory" as "truncation", and changes settings of those between in place.
    pbt_space
        What may change: a TOML file with a table for each setting, as `penstock search` takes; in Python also the
        tables.
    pbt_interval
        Steps of each policy between two decisions about it; None: twenty in its share of total_steps.
    pbt_start
        Steps of each policy before the first decision about it; None: pbt_interval.
    pbt_fraction
        Share of the policies that counts as the worst, and as the best; None: 0.2, of "sample-factory" 0.3.
    pbt_metric
        What policies are ranked by: "return", the mean return of training episodes, or a name in info["metrics"].
    pbt_episodes
        Episodes that a policy needs since it was last replaced before it is ranked.
    schedule
        Tunable settings over the steps of the policy: lineage.jsonl of a population, or its directory, whose schedule
        is repeated; or {steps: {setting: value}}, on a command line as JSON. They win over the settings themselves.
    schedule_policy
        Whose schedule of the lineage it is; None: that of the policy with the best of the last scores.
    num_workers
        Rollout workers, with backend="ray" of each node; None: one per core, at most 16.
    num_envs_per_worker
        Environments per rollout worker: its lanes, where each has one agent.
    num_groups
        Groups of environments per worker that step in turn; None: 2 with central inference, 1 with local.
    inference
        Where actions are chosen: in each rollout worker, or in a policy worker that batches those of several.
    backend
        "local": one process per role; "serial": everything in this process, reproducible bit for bit; "ray": lanes are
        stepped by the nodes of a Ray cluster.
    address
        With backend="ray" the cluster: "auto", or the address of its head node; None: one of this machine, started for
        the run.
    nodes
        With backend="ray": how many nodes of the cluster step lanes, "all", or how many of those that have a custom
        resource of Ray's, by its name.
    evaluator
        With backend="ray": where evaluations play; "node": on the first node, which has a core for them beside its
        rollout workers'.
    num_learners
        Learners of the policy, a process each, on device="cuda" a GPU each; each computes a share of every update. With
        backend="local" and central inference each has a policy worker.
    learner_nodes
        With backend="ray": how many of these learners are on a node of their own, each on another, or how many on those
        that have a custom resource of Ray's, by its name; the first learner is at home.
    device
        Torch device of the learner and of central inference: "cpu", "cuda", "cuda:1", ...
    precision
        Arithmetic of the network's body (bfloat16 through autocast); heads, losses and weights stay float32. "auto":
        bfloat16 where the GPU or CPU that a role computes on is faster in it, else float32.
    encoder
        "mlp", "nature_cnn", "impala_resnet"; "auto": by observation; your nn.Module as "module:Class" or
        "file.py:Class", in Python also the class itself or a callable.
    hidden_sizes
        Widths of the hidden layers of the mlp encoder.
    activation
        Activation of the mlp encoder.
    normalize_observations
        Running normalisation of float observations; its statistics travel with the weights.
    memory
        Memory core behind the encoder.
    memory_size
        Width of the memory core.
    memory_span
        Steps that a new memory core reaches over before it has learned (chrono initialization, arXiv:1804.11188).
    shared_encoder
        One encoder for policy and value; None: shared for images, memory and own modules, separate for mlp.
    rewards
        What is learned from: the environment's rewards, or "rudder": delayed ones are handed to the steps that earned
        them, as a network beside the policy finds out; reported returns stay true.
    redistribution_attribution
        What a step is credited with: the difference that it makes to the prediction, or integrated gradients.
    redistribution_points
        Points on the path of integrated gradients.
    redistribution_max_error
        Original rewards are used while predictions leave so much of the returns' variance unexplained.
    redistributor_size
        Memory cells of the network that predicts returns.
    redistributor_learning_rate
        Step size of its optimiser.
    redistributor_interval
        Steps of the run for each of its updates.
    redistributor_batch_size
        Episodes per update.
    redistributor_lessons
        Episodes that it learns from: those that it predicts worst are kept.
    redistributor_chunk
        Steps that its gradients go back over; longer episodes are cut into chunks that overlap by half.
    redistributor_max_steps
        Longer episodes are not learned from.
    redistribution_value
        What values are learned from: "redistributed" rewards, as the policy; or "original" ones, with redistributed
        rewards mixed into the policy's advantages, as in the paper's Atari experiments.
    redistribution_share
        With original values: part of the advantages that redistributed rewards may take.
    redistribution_trace
        With original values: part of each redistributed reward that the step before is given, too.
    gamma
        Discount per step.
    learning_rate
        Step size of the optimiser, or a function of progress: "module:name", "file.py:name", in Python itself.
    learning_rate_schedule
        "linear" decays a number to 0 over total_steps, as published; a function says all by itself.
    burn_in
        First steps of each segment that only bring the memory state up to date: no loss, no gradient through them.
    max_grad_norm
        Gradients are scaled down to this global norm.
    segment_length
        Steps per segment (T).
    entropy_coef
        Weight of the entropy bonus, or a function of progress, as learning_rate.
    entropy_coef_final
        A number's bonus moves linearly to this over total_steps; None: stays.
    value_coef
        Weight of the value loss.
    normalize_returns
        Running normalisation of value targets; its statistics travel with the weights.
    batch_size
        Steps per update.
    max_policy_lag
        Steps chosen by weights this many versions old, or older, are masked out of the loss.
    replay
        What each batch is a mix of: sources as kind:share,setting=value. Shares are exact, such as 0.5 or 7/8. Kinds:
        queue (fresh segments), uniform, reservoir, prioritized, attentive, elite.
    rmsprop_decay
        Decay of the running mean of squared gradients.
    rmsprop_eps
        Keeps steps finite where gradients are small.
    rmsprop_eps_inside
        Where epsilon stands: g / sqrt(s + eps), as in TensorFlow and the papers' codes; False: g / (sqrt(s) + eps).
    vtrace_lambda
        Weight of longer returns in V-trace's targets.
    rho_bar
        Cut of the probability ratio in the temporal difference: decides which policy's value is learned.
    c_bar
        Cut of the ratio in the trace: decides how fast.
    rho_pg_bar
        Cut of the ratio in the policy gradient.
    reduction
        Losses are summed over a batch's steps, as published, or averaged: learning rate and clipping go with it.
    seed
        Seeds weights, environments and exploration.
    total_steps
        Budget in steps; schedules run over it.
    max_seconds
        Budget in seconds of wall-clock time. A last evaluation may take a tenth of it more, and 10 s at least.
    target_return
        The run ends when the evaluator's mean return reaches this.
    eval_interval
        Steps between evaluations, or below 1 a fraction of total_steps; "continuous": one after the other, always of
        the newest weights; None: twenty in total_steps, or with a target_return at most a fifth of the time is spent on
        them (serial: after each batch); 0: never.
    eval_episodes
        Episodes per evaluation; of games, how many against each opponent, from each seat or by each policy.
    eval_exploration
        Evaluations sample their actions, or where none are sampled explore as at the end of training.
    eval_max_steps
        Steps after which an evaluation gives an episode up; what it has returned by then is shown as unfinished.
    checkpoint_interval
        Steps between checkpoints; None: ten in total_steps; 0: only at the end.
    keep_checkpoints
        Checkpoints kept besides the best.
    run_dir
        Where the run is written; "auto": runs/<env>-<algorithm>-<time>; None: nothing is written at all.
    save_replay
        Checkpoints hold the replayed segments too: learning waits meanwhile. A run resumed without them fills its
        sources again before it learns.
    """

    def __init__(
        self,
        env: str | Callable[..., Any] = ...,
        *,
        preset: str | os.PathLike[str] | None = None,
        env_kwargs: dict[str, Any] = ...,
        vectorize: Literal["make", "vector"] = "make",
        on_env_error: Literal["stop", "restart"] = "stop",
        reward_scale: float = 1.0,
        reward_clip: float | None = None,
        num_agents: int | None = None,
        team_reward: Literal["own", "mean", "sum"] = "own",
        num_policies: int = 1,
        policies: dict[str, dict[str, Any]] = ...,
        policy_of: str | Callable[..., Any] | None = None,
        seats: Literal["fixed", "shuffled"] = "fixed",
        opponents: str = "none",
        opponent_pool: int = 8,
        opponent_interval: int | None = None,
        opponent_share: float = 0.5,
        opponent_sampling: Literal["uniform", "hard"] = "uniform",
        eval_against: Sequence[str | Callable[..., Any]] = (),
        pbt: Literal["truncation", "tournament", "sample-factory"] | None = None,
        pbt_space: str | os.PathLike[str] | dict[str, Any] | None = None,
        pbt_interval: int | None = None,
        pbt_start: int | None = None,
        pbt_fraction: float | None = None,
        pbt_metric: str = "return",
        pbt_episodes: int = 10,
        schedule: str | os.PathLike[str] | dict[Any, Any] | None = None,
        schedule_policy: str | None = None,
        num_workers: int | None = None,
        num_envs_per_worker: int = 16,
        num_groups: int | None = None,
        inference: Literal["auto", "local", "central"] = "auto",
        backend: Literal["local", "serial", "ray"] = "local",
        address: str | None = None,
        nodes: int | Literal["all"] | dict[str, int] = 1,
        evaluator: Literal["home", "node"] = "home",
        num_learners: int = 1,
        learner_nodes: int | dict[str, int] = 0,
        device: str = "cpu",
        precision: Literal["auto", "float32", "bfloat16"] = "float32",
        encoder: str | Callable[..., Any] = "auto",
        hidden_sizes: Sequence[int] = (64, 64),
        activation: Literal["tanh", "relu", "elu", "silu"] = "tanh",
        normalize_observations: bool = True,
        memory: Literal["none", "gru", "lstm"] = "none",
        memory_size: int = 128,
        memory_span: int | None = None,
        shared_encoder: bool | None = None,
        rewards: Literal["environment", "rudder"] = "environment",
        redistribution_attribution: Literal["difference", "integrated_gradients"] = "difference",
        redistribution_points: int = 20,
        redistribution_max_error: float = 0.2,
        redistributor_size: int = 32,
        redistributor_learning_rate: float = 0.005,
        redistributor_interval: int = 25,
        redistributor_batch_size: int = 8,
        redistributor_lessons: int = 512,
        redistributor_chunk: int = 500,
        redistributor_max_steps: int = 10000,
        redistribution_value: Literal["redistributed", "original"] = "redistributed",
        redistribution_share: float = 0.5,
        redistribution_trace: float = 0.5,
        gamma: float = 0.99,
        learning_rate: float | str | Callable[[float], float] = 0.002,
        learning_rate_schedule: Literal["constant", "linear"] = "linear",
        burn_in: int = 0,
        max_grad_norm: float = 40.0,
        segment_length: int = 20,
        entropy_coef: float | str | Callable[[float], float] = 0.01,
        entropy_coef_final: float | None = None,
        value_coef: float = 0.5,
        normalize_returns: bool = True,
        batch_size: int = 320,
        max_policy_lag: int = 100,
        replay: Sequence[str] = ('queue:1',),
        rmsprop_decay: float = 0.99,
        rmsprop_eps: float = 0.01,
        rmsprop_eps_inside: bool = True,
        vtrace_lambda: float = 1.0,
        rho_bar: float = 1.0,
        c_bar: float = 1.0,
        rho_pg_bar: float = 1.0,
        reduction: Literal["sum", "mean"] = "sum",
        seed: int = 0,
        total_steps: int = 1000000,
        max_seconds: float | None = None,
        target_return: float | None = None,
        eval_interval: int | float | Literal["continuous"] | None = None,
        eval_episodes: int = 20,
        eval_exploration: bool = False,
        eval_max_steps: int = 30000,
        checkpoint_interval: int | None = None,
        keep_checkpoints: int = 3,
        run_dir: str | os.PathLike[str] | None = "auto",
        save_replay: bool = False,
    ) -> None: ...

class IMPACT(Face):
    """Trains with IMPACT, batches used again; settings are the fields of `penstock.algorithms.impact.IMPACTConfig`.

    Parameters
    ----------
    env
        Gymnasium id, "EnvPool/Id", "module:Class", "file.py:Class"; in Python also a callable returning an environment,
        or a class.
    env_kwargs
        Keyword arguments for the environment.
    vectorize
        "make": one environment per lane; "vector": one vector environment per group of lanes.
    on_env_error
        An exception or NaN in an environment ends the run, or restarts its worker and is counted.
    reward_scale
        Rewards are multiplied by this for learning; reported returns stay true.
    reward_clip
        Scaled rewards are clipped to [-reward_clip, reward_clip] for learning; reported returns stay true.
    num_agents
        Agents of each environment, each of which is a lane; None: as many as the environment has.
    team_reward
        With several agents: each is rewarded with its own reward, or with the mean or the sum of its team's.
    num_policies
        So many policies of the same settings, which play the agents in turn; where an environment has one agent, each
        plays environments of its own.
    policies
        Policies by name, each with settings of its own; with several agents also with ``agents``, a pattern of those
        that it plays or several.
    policy_of
        Who plays what, instead: a function of the agent's name ("" where there is one) and the number of the
        environment in its worker that returns a policy's name; "module:function" or "file.py:function", in Python also
        itself.
    seats
        With several policies of several agents: each plays its own agents, or it is drawn before each game which agents
        each plays, as many as are its own.
    opponents
        With several agents: "past": in a share of the games guests, frozen past versions of the only policy, play all
        seats but one; with several policies one of them learns there, and past versions of each other policy play its
        agents. With several policies also the name of one: in a share of the games it is a guest, by its newest
        weights, and learns nothing there. "none": no guests play.
    opponent_pool
        Past versions of each policy that guests play.
    opponent_interval
        Steps between two versions that enter the pool; None: twenty in total_steps.
    opponent_share
        Share of the games in which guests play; in the others there are none.
    opponent_sampling
        How a version is drawn for a game: each with the same chance, or by (1 - win rate)^2 against it.
    eval_against
        With several agents: whom evaluations play: "random", "best", a class or function as "module:name" or
        "file.py:name", in Python also itself; with several policies also "others", the other policies. Empty: one
        policy plays all seats, several play each other.
    pbt
        Population-based training of the run's policies: now and then a bad one goes on as a copy of a better one, with
        settings a little different. "truncation" replaces the worst by one of the best, "tournament" whoever is worse
        than another drawn at random, "sample-factory" as "truncation", and changes settings of those between in place.
    pbt_space
        What may change: a TOML file with a table for each setting, as `penstock search` takes; in Python also the
        tables.
    pbt_interval
        Steps of each policy between two decisions about it; None: twenty in its share of total_steps.
    pbt_start
        Steps of each policy before the first decision about it; None: pbt_interval.
    pbt_fraction
        Share of the policies that counts as the worst, and as the best; None: 0.2, of "sample-factory" 0.3.
    pbt_metric
        What policies are ranked by: "return", the mean return of training episodes, or a name in info["metrics"].
    pbt_episodes
        Episodes that a policy needs since it was last replaced before it is ranked.
    schedule
        Tunable settings over the steps of the policy: lineage.jsonl of a population, or its directory, whose schedule
        is repeated; or {steps: {setting: value}}, on a command line as JSON. They win over the settings themselves.
    schedule_policy
        Whose schedule of the lineage it is; None: that of the policy with the best of the last scores.
    num_workers
        Rollout workers, with backend="ray" of each node; None: one per core, at most 16.
    num_envs_per_worker
        Environments per rollout worker: its lanes, where each has one agent.
    num_groups
        Groups of environments per worker that step in turn; None: 2 with central inference, 1 with local.
    inference
        Where actions are chosen: in each rollout worker, or in a policy worker that batches those of several.
    backend
        "local": one process per role; "serial": everything in this process, reproducible bit for bit; "ray": lanes are
        stepped by the nodes of a Ray cluster.
    address
        With backend="ray" the cluster: "auto", or the address of its head node; None: one of this machine, started for
        the run.
    nodes
        With backend="ray": how many nodes of the cluster step lanes, "all", or how many of those that have a custom
        resource of Ray's, by its name.
    evaluator
        With backend="ray": where evaluations play; "node": on the first node, which has a core for them beside its
        rollout workers'.
    num_learners
        Learners of the policy, a process each, on device="cuda" a GPU each; each computes a share of every update. With
        backend="local" and central inference each has a policy worker.
    learner_nodes
        With backend="ray": how many of these learners are on a node of their own, each on another, or how many on those
        that have a custom resource of Ray's, by its name; the first learner is at home.
    device
        Torch device of the learner and of central inference: "cpu", "cuda", "cuda:1", ...
    precision
        Arithmetic of the network's body (bfloat16 through autocast); heads, losses and weights stay float32. "auto":
        bfloat16 where the GPU or CPU that a role computes on is faster in it, else float32.
    encoder
        "mlp", "nature_cnn", "impala_resnet"; "auto": by observation; your nn.Module as "module:Class" or
        "file.py:Class", in Python also the class itself or a callable.
    hidden_sizes
        Widths of the hidden layers of the mlp encoder.
    activation
        Activation of the mlp encoder.
    normalize_observations
        Running normalisation of float observations; its statistics travel with the weights.
    memory
        Memory core behind the encoder.
    memory_size
        Width of the memory core.
    memory_span
        Steps that a new memory core reaches over before it has learned (chrono initialization, arXiv:1804.11188).
    shared_encoder
        One encoder for policy and value; None: shared for images, memory and own modules, separate for mlp.
    gamma
        Discount per step.
    learning_rate
        Step size of the optimiser, or a function of progress: "module:name", "file.py:name", in Python itself.
    learning_rate_schedule
        "linear" decays a number to 0 over total_steps; a function says all by itself.
    burn_in
        First steps of each segment that only bring the memory state up to date: no loss, no gradient through them.
    max_grad_norm
        Gradients are scaled down to this global norm.
    segment_length
        Steps per segment (T).
    entropy_coef
        Weight of the entropy bonus, or a function of progress, as learning_rate.
    entropy_coef_final
        A number's bonus moves linearly to this over total_steps; None: stays.
    value_coef
        Weight of the value loss.
    normalize_returns
        Running normalisation of value targets; its statistics travel with the weights.
    batch_size
        Steps per update.
    max_policy_lag
        Steps chosen by weights this many versions old, or older, are masked out of the loss.
    adam_beta1
        Decay of the optimiser's mean gradient.
    adam_beta2
        Decay of its mean squared gradient.
    adam_eps
        What it adds to the root of the mean square.
    num_batches
        Batches that the circular buffer holds (N); a new one replaces the oldest.
    batch_uses
        How often each batch may be learned from (K).
    target_period
        Updates between two copies of the network to the target network; published is N * K.
    rho_target
        Cut of mu / pi_target, the ratio by which the surrogate is measured against the target network.
    clip_range
        The surrogate's ratio counts within [1 - clip_range, 1 + clip_range].
    gae_lambda
        Weight of longer returns in V-trace's targets.
    rho_bar
        V-trace: cut of the ratio pi_target / mu in the temporal difference.
    c_bar
        V-trace: cut of the ratio in the trace.
    kl_coef
        Weight of KL(pi_target || pi).
    normalize_advantages
        Advantages have mean 0 and standard deviation 1 in each update.
    seed
        Seeds weights, environments and exploration.
    total_steps
        Budget in steps; schedules run over it.
    max_seconds
        Budget in seconds of wall-clock time. A last evaluation may take a tenth of it more, and 10 s at least.
    target_return
        The run ends when the evaluator's mean return reaches this.
    eval_interval
        Steps between evaluations, or below 1 a fraction of total_steps; "continuous": one after the other, always of
        the newest weights; None: twenty in total_steps, or with a target_return at most a fifth of the time is spent on
        them (serial: after each batch); 0: never.
    eval_episodes
        Episodes per evaluation; of games, how many against each opponent, from each seat or by each policy.
    eval_exploration
        Evaluations sample their actions, or where none are sampled explore as at the end of training.
    eval_max_steps
        Steps after which an evaluation gives an episode up; what it has returned by then is shown as unfinished.
    checkpoint_interval
        Steps between checkpoints; None: ten in total_steps; 0: only at the end.
    keep_checkpoints
        Checkpoints kept besides the best.
    run_dir
        Where the run is written; "auto": runs/<env>-<algorithm>-<time>; None: nothing is written at all.
    """

    def __init__(
        self,
        env: str | Callable[..., Any] = ...,
        *,
        preset: str | os.PathLike[str] | None = None,
        env_kwargs: dict[str, Any] = ...,
        vectorize: Literal["make", "vector"] = "make",
        on_env_error: Literal["stop", "restart"] = "stop",
        reward_scale: float = 1.0,
        reward_clip: float | None = None,
        num_agents: int | None = None,
        team_reward: Literal["own", "mean", "sum"] = "own",
        num_policies: int = 1,
        policies: dict[str, dict[str, Any]] = ...,
        policy_of: str | Callable[..., Any] | None = None,
        seats: Literal["fixed", "shuffled"] = "fixed",
        opponents: str = "none",
        opponent_pool: int = 8,
        opponent_interval: int | None = None,
        opponent_share: float = 0.5,
        opponent_sampling: Literal["uniform", "hard"] = "uniform",
        eval_against: Sequence[str | Callable[..., Any]] = (),
        pbt: Literal["truncation", "tournament", "sample-factory"] | None = None,
        pbt_space: str | os.PathLike[str] | dict[str, Any] | None = None,
        pbt_interval: int | None = None,
        pbt_start: int | None = None,
        pbt_fraction: float | None = None,
        pbt_metric: str = "return",
        pbt_episodes: int = 10,
        schedule: str | os.PathLike[str] | dict[Any, Any] | None = None,
        schedule_policy: str | None = None,
        num_workers: int | None = None,
        num_envs_per_worker: int = 16,
        num_groups: int | None = None,
        inference: Literal["auto", "local", "central"] = "auto",
        backend: Literal["local", "serial", "ray"] = "local",
        address: str | None = None,
        nodes: int | Literal["all"] | dict[str, int] = 1,
        evaluator: Literal["home", "node"] = "home",
        num_learners: int = 1,
        learner_nodes: int | dict[str, int] = 0,
        device: str = "cpu",
        precision: Literal["auto", "float32", "bfloat16"] = "float32",
        encoder: str | Callable[..., Any] = "auto",
        hidden_sizes: Sequence[int] = (64, 64),
        activation: Literal["tanh", "relu", "elu", "silu"] = "tanh",
        normalize_observations: bool = True,
        memory: Literal["none", "gru", "lstm"] = "none",
        memory_size: int = 128,
        memory_span: int | None = None,
        shared_encoder: bool | None = None,
        gamma: float = 0.99,
        learning_rate: float | str | Callable[[float], float] = 0.002,
        learning_rate_schedule: Literal["constant", "linear"] = "linear",
        burn_in: int = 0,
        max_grad_norm: float = 0.5,
        segment_length: int = 32,
        entropy_coef: float | str | Callable[[float], float] = 0.003,
        entropy_coef_final: float | None = None,
        value_coef: float = 0.5,
        normalize_returns: bool = True,
        batch_size: int = 256,
        max_policy_lag: int = 100,
        adam_beta1: float = 0.9,
        adam_beta2: float = 0.999,
        adam_eps: float = 1e-05,
        num_batches: int = 4,
        batch_uses: int = 2,
        target_period: int = 8,
        rho_target: float = 2.0,
        clip_range: float = 0.3,
        gae_lambda: float = 0.95,
        rho_bar: float = 1.0,
        c_bar: float = 1.0,
        kl_coef: float = 0.0,
        normalize_advantages: bool = True,
        seed: int = 0,
        total_steps: int = 1000000,
        max_seconds: float | None = None,
        target_return: float | None = None,
        eval_interval: int | float | Literal["continuous"] | None = None,
        eval_episodes: int = 20,
        eval_exploration: bool = False,
        eval_max_steps: int = 30000,
        checkpoint_interval: int | None = None,
        keep_checkpoints: int = 3,
        run_dir: str | os.PathLike[str] | None = "auto",
    ) -> None: ...

class CLEAR(Face):
    """Trains with CLEAR, against forgetting; settings are the fields of `penstock.algorithms.clear.CLEARConfig`.

    Parameters
    ----------
    env
        Gymnasium id, "EnvPool/Id", "module:Class", "file.py:Class"; in Python also a callable returning an environment,
        or a class.
    env_kwargs
        Keyword arguments for the environment.
    vectorize
        "make": one environment per lane; "vector": one vector environment per group of lanes.
    on_env_error
        An exception or NaN in an environment ends the run, or restarts its worker and is counted.
    reward_scale
        Rewards are multiplied by this for learning; reported returns stay true.
    reward_clip
        Scaled rewards are clipped to [-reward_clip, reward_clip] for learning; reported returns stay true.
    num_agents
        Agents of each environment, each of which is a lane; None: as many as the environment has.
    team_reward
        With several agents: each is rewarded with its own reward, or with the mean or the sum of its team's.
    num_policies
        So many policies of the same settings, which play the agents in turn; where an environment has one agent, each
        plays environments of its own.
    policies
        Policies by name, each with settings of its own; with several agents also with ``agents``, a pattern of those
        that it plays or several.
    policy_of
        Who plays what, instead: a function of the agent's name ("" where there is one) and the number of the
        environment in its worker that returns a policy's name; "module:function" or "file.py:function", in Python also
        itself.
    seats
        With several policies of several agents: each plays its own agents, or it is drawn before each game which agents
        each plays, as many as are its own.
    opponents
        With several agents: "past": in a share of the games guests, frozen past versions of the only policy, play all
        seats but one; with several policies one of them learns there, and past versions of each other policy play its
        agents. With several policies also the name of one: in a share of the games it is a guest, by its newest
        weights, and learns nothing there. "none": no guests play.
    opponent_pool
        Past versions of each policy that guests play.
    opponent_interval
        Steps between two versions that enter the pool; None: twenty in total_steps.
    opponent_share
        Share of the games in which guests play; in the others there are none.
    opponent_sampling
        How a version is drawn for a game: each with the same chance, or by (1 - win rate)^2 against it.
    eval_against
        With several agents: whom evaluations play: "random", "best", a class or function as "module:name" or
        "file.py:name", in Python also itself; with several policies also "others", the other policies. Empty: one
        policy plays all seats, several play each other.
    pbt
        Population-based training of the run's policies: now and then a bad one goes on as a copy of a better one, with
        settings a little different. "truncation" replaces the worst by one of the best, "tournament" whoever is worse
        than another drawn at random, "sample-factory" as "truncation", and changes settings of those between in place.
    pbt_space
        What may change: a TOML file with a table for each setting, as `penstock search` takes; in Python also the
        tables.
    pbt_interval
        Steps of each policy between two decisions about it; None: twenty in its share of total_steps.
    pbt_start
        Steps of each policy before the first decision about it; None: pbt_interval.
    pbt_fraction
        Share of the policies that counts as the worst, and as the best; None: 0.2, of "sample-factory" 0.3.
    pbt_metric
        What policies are ranked by: "return", the mean return of training episodes, or a name in info["metrics"].
    pbt_episodes
        Episodes that a policy needs since it was last replaced before it is ranked.
    schedule
        Tunable settings over the steps of the policy: lineage.jsonl of a population, or its directory, whose schedule
        is repeated; or {steps: {setting: value}}, on a command line as JSON. They win over the settings themselves.
    schedule_policy
        Whose schedule of the lineage it is; None: that of the policy with the best of the last scores.
    num_workers
        Rollout workers, with backend="ray" of each node; None: one per core, at most 16.
    num_envs_per_worker
        Environments per rollout worker: its lanes, where each has one agent.
    num_groups
        Groups of environments per worker that step in turn; None: 2 with central inference, 1 with local.
    inference
        Where actions are chosen: in each rollout worker, or in a policy worker that batches those of several.
    backend
        "local": one process per role; "serial": everything in this process, reproducible bit for bit; "ray": lanes are
        stepped by the nodes of a Ray cluster.
    address
        With backend="ray" the cluster: "auto", or the address of its head node; None: one of this machine, started for
        the run.
    nodes
        With backend="ray": how many nodes of the cluster step lanes, "all", or how many of those that have a custom
        resource of Ray's, by its name.
    evaluator
        With backend="ray": where evaluations play; "node": on the first node, which has a core for them beside its
        rollout workers'.
    num_learners
        Learners of the policy, a process each, on device="cuda" a GPU each; each computes a share of every update. With
        backend="local" and central inference each has a policy worker.
    learner_nodes
        With backend="ray": how many of these learners are on a node of their own, each on another, or how many on those
        that have a custom resource of Ray's, by its name; the first learner is at home.
    device
        Torch device of the learner and of central inference: "cpu", "cuda", "cuda:1", ...
    precision
        Arithmetic of the network's body (bfloat16 through autocast); heads, losses and weights stay float32. "auto":
        bfloat16 where the GPU or CPU that a role computes on is faster in it, else float32.
    encoder
        "mlp", "nature_cnn", "impala_resnet"; "auto": by observation; your nn.Module as "module:Class" or
        "file.py:Class", in Python also the class itself or a callable.
    hidden_sizes
        Widths of the hidden layers of the mlp encoder.
    activation
        Activation of the mlp encoder.
    normalize_observations
        Running normalisation of float observations; its statistics travel with the weights.
    memory
        Memory core behind the encoder.
    memory_size
        Width of the memory core.
    memory_span
        Steps that a new memory core reaches over before it has learned (chrono initialization, arXiv:1804.11188).
    shared_encoder
        One encoder for policy and value; None: shared for images, memory and own modules, separate for mlp.
    rewards
        What is learned from: the environment's rewards, or "rudder": delayed ones are handed to the steps that earned
        them, as a network beside the policy finds out; reported returns stay true.
    redistribution_attribution
        What a step is credited with: the difference that it makes to the prediction, or integrated gradients.
    redistribution_points
        Points on the path of integrated gradients.
    redistribution_max_error
        Original rewards are used while predictions leave so much of the returns' variance unexplained.
    redistributor_size
        Memory cells of the network that predicts returns.
    redistributor_learning_rate
        Step size of its optimiser.
    redistributor_interval
        Steps of the run for each of its updates.
    redistributor_batch_size
        Episodes per update.
    redistributor_lessons
        Episodes that it learns from: those that it predicts worst are kept.
    redistributor_chunk
        Steps that its gradients go back over; longer episodes are cut into chunks that overlap by half.
    redistributor_max_steps
        Longer episodes are not learned from.
    redistribution_value
        What values are learned from: "redistributed" rewards, as the policy; or "original" ones, with redistributed
        rewards mixed into the policy's advantages, as in the paper's Atari experiments.
    redistribution_share
        With original values: part of the advantages that redistributed rewards may take.
    redistribution_trace
        With original values: part of each redistributed reward that the step before is given, too.
    gamma
        Discount per step.
    learning_rate
        Step size of the optimiser, or a function of progress: "module:name", "file.py:name", in Python itself.
    learning_rate_schedule
        "linear" decays a number to 0 over total_steps, as published; a function says all by itself.
    burn_in
        First steps of each segment that only bring the memory state up to date: no loss, no gradient through them.
    max_grad_norm
        Gradients are scaled down to this global norm.
    segment_length
        Steps per segment (T).
    entropy_coef
        Weight of the entropy bonus, or a function of progress, as learning_rate.
    entropy_coef_final
        A number's bonus moves linearly to this over total_steps; None: stays.
    value_coef
        Weight of the value loss.
    normalize_returns
        Running normalisation of value targets; its statistics travel with the weights.
    batch_size
        Steps per update.
    max_policy_lag
        Steps chosen by weights this many versions old, or older, are masked out of the loss.
    replay
        What each batch is a mix of: sources as kind:share,setting=value. Shares are exact, such as 0.5 or 7/8. Kinds:
        queue (fresh segments), uniform, reservoir, prioritized, attentive, elite.
    rmsprop_decay
        Decay of the running mean of squared gradients.
    rmsprop_eps
        Keeps steps finite where gradients are small.
    rmsprop_eps_inside
        Where epsilon stands: g / sqrt(s + eps), as in TensorFlow and the papers' codes; False: g / (sqrt(s) + eps).
    vtrace_lambda
        Weight of longer returns in V-trace's targets.
    rho_bar
        Cut of the probability ratio in the temporal difference: decides which policy's value is learned.
    c_bar
        Cut of the ratio in the trace: decides how fast.
    rho_pg_bar
        Cut of the ratio in the policy gradient.
    reduction
        Losses are summed over a batch's steps, as published, or averaged: learning rate and clipping go with it.
    policy_cloning_coef
        Weight of KL(mu || pi) on replayed steps, mu being the policy that acted.
    value_cloning_coef
        Weight of the squared difference to the value expected then, on replayed steps.
    seed
        Seeds weights, environments and exploration.
    total_steps
        Budget in steps; schedules run over it.
    max_seconds
        Budget in seconds of wall-clock time. A last evaluation may take a tenth of it more, and 10 s at least.
    target_return
        The run ends when the evaluator's mean return reaches this.
    eval_interval
        Steps between evaluations, or below 1 a fraction of total_steps; "continuous": one after the other, always of
        the newest weights; None: twenty in total_steps, or with a target_return at most a fifth of the time is spent on
        them (serial: after each batch); 0: never.
    eval_episodes
        Episodes per evaluation; of games, how many against each opponent, from each seat or by each policy.
    eval_exploration
        Evaluations sample their actions, or where none are sampled explore as at the end of training.
    eval_max_steps
        Steps after which an evaluation gives an episode up; what it has returned by then is shown as unfinished.
    checkpoint_interval
        Steps between checkpoints; None: ten in total_steps; 0: only at the end.
    keep_checkpoints
        Checkpoints kept besides the best.
    run_dir
        Where the run is written; "auto": runs/<env>-<algorithm>-<time>; None: nothing is written at all.
    save_replay
        Checkpoints hold the replayed segments too: learning waits meanwhile. A run resumed without them fills its
        sources again before it learns.
    """

    def __init__(
        self,
        env: str | Callable[..., Any] = ...,
        *,
        preset: str | os.PathLike[str] | None = None,
        env_kwargs: dict[str, Any] = ...,
        vectorize: Literal["make", "vector"] = "make",
        on_env_error: Literal["stop", "restart"] = "stop",
        reward_scale: float = 1.0,
        reward_clip: float | None = None,
        num_agents: int | None = None,
        team_reward: Literal["own", "mean", "sum"] = "own",
        num_policies: int = 1,
        policies: dict[str, dict[str, Any]] = ...,
        policy_of: str | Callable[..., Any] | None = None,
        seats: Literal["fixed", "shuffled"] = "fixed",
        opponents: str = "none",
        opponent_pool: int = 8,
        opponent_interval: int | None = None,
        opponent_share: float = 0.5,
        opponent_sampling: Literal["uniform", "hard"] = "uniform",
        eval_against: Sequence[str | Callable[..., Any]] = (),
        pbt: Literal["truncation", "tournament", "sample-factory"] | None = None,
        pbt_space: str | os.PathLike[str] | dict[str, Any] | None = None,
        pbt_interval: int | None = None,
        pbt_start: int | None = None,
        pbt_fraction: float | None = None,
        pbt_metric: str = "return",
        pbt_episodes: int = 10,
        schedule: str | os.PathLike[str] | dict[Any, Any] | None = None,
        schedule_policy: str | None = None,
        num_workers: int | None = None,
        num_envs_per_worker: int = 16,
        num_groups: int | None = None,
        inference: Literal["auto", "local", "central"] = "auto",
        backend: Literal["local", "serial", "ray"] = "local",
        address: str | None = None,
        nodes: int | Literal["all"] | dict[str, int] = 1,
        evaluator: Literal["home", "node"] = "home",
        num_learners: int = 1,
        learner_nodes: int | dict[str, int] = 0,
        device: str = "cpu",
        precision: Literal["auto", "float32", "bfloat16"] = "float32",
        encoder: str | Callable[..., Any] = "auto",
        hidden_sizes: Sequence[int] = (64, 64),
        activation: Literal["tanh", "relu", "elu", "silu"] = "tanh",
        normalize_observations: bool = True,
        memory: Literal["none", "gru", "lstm"] = "none",
        memory_size: int = 128,
        memory_span: int | None = None,
        shared_encoder: bool | None = None,
        rewards: Literal["environment", "rudder"] = "environment",
        redistribution_attribution: Literal["difference", "integrated_gradients"] = "difference",
        redistribution_points: int = 20,
        redistribution_max_error: float = 0.2,
        redistributor_size: int = 32,
        redistributor_learning_rate: float = 0.005,
        redistributor_interval: int = 25,
        redistributor_batch_size: int = 8,
        redistributor_lessons: int = 512,
        redistributor_chunk: int = 500,
        redistributor_max_steps: int = 10000,
        redistribution_value: Literal["redistributed", "original"] = "redistributed",
        redistribution_share: float = 0.5,
        redistribution_trace: float = 0.5,
        gamma: float = 0.99,
        learning_rate: float | str | Callable[[float], float] = 0.002,
        learning_rate_schedule: Literal["constant", "linear"] = "linear",
        burn_in: int = 0,
        max_grad_norm: float = 40.0,
        segment_length: int = 20,
        entropy_coef: float | str | Callable[[float], float] = 0.01,
        entropy_coef_final: float | None = None,
        value_coef: float = 0.5,
        normalize_returns: bool = True,
        batch_size: int = 320,
        max_policy_lag: int = 100,
        replay: Sequence[str] = ('queue:1/2', 'reservoir:1/2,capacity=2000'),
        rmsprop_decay: float = 0.99,
        rmsprop_eps: float = 0.01,
        rmsprop_eps_inside: bool = True,
        vtrace_lambda: float = 1.0,
        rho_bar: float = 1.0,
        c_bar: float = 1.0,
        rho_pg_bar: float = 1.0,
        reduction: Literal["sum", "mean"] = "sum",
        policy_cloning_coef: float = 0.01,
        value_cloning_coef: float = 0.005,
        seed: int = 0,
        total_steps: int = 1000000,
        max_seconds: float | None = None,
        target_return: float | None = None,
        eval_interval: int | float | Literal["continuous"] | None = None,
        eval_episodes: int = 20,
        eval_exploration: bool = False,
        eval_max_steps: int = 30000,
        checkpoint_interval: int | None = None,
        keep_checkpoints: int = 3,
        run_dir: str | os.PathLike[str] | None = "auto",
        save_replay: bool = False,
    ) -> None: ...

class LASER(Face):
    """Trains with LASER, mostly from replay; settings are the fields of `penstock.algorithms.laser.LASERConfig`.

    Parameters
    ----------
    env
        Gymnasium id, "EnvPool/Id", "module:Class", "file.py:Class"; in Python also a callable returning an environment,
        or a class.
    env_kwargs
        Keyword arguments for the environment.
    vectorize
        "make": one environment per lane; "vector": one vector environment per group of lanes.
    on_env_error
        An exception or NaN in an environment ends the run, or restarts its worker and is counted.
    reward_scale
        Rewards are multiplied by this for learning; reported returns stay true.
    reward_clip
        Scaled rewards are clipped to [-reward_clip, reward_clip] for learning; reported returns stay true.
    num_agents
        Agents of each environment, each of which is a lane; None: as many as the environment has.
    team_reward
        With several agents: each is rewarded with its own reward, or with the mean or the sum of its team's.
    num_policies
        So many policies of the same settings, which play the agents in turn; where an environment has one agent, each
        plays environments of its own.
    policies
        Policies by name, each with settings of its own; with several agents also with ``agents``, a pattern of those
        that it plays or several.
    policy_of
        Who plays what, instead: a function of the agent's name ("" where there is one) and the number of the
        environment in its worker that returns a policy's name; "module:function" or "file.py:function", in Python also
        itself.
    seats
        With several policies of several agents: each plays its own agents, or it is drawn before each game which agents
        each plays, as many as are its own.
    opponents
        With several agents: "past": in a share of the games guests, frozen past versions of the only policy, play all
        seats but one; with several policies one of them learns there, and past versions of each other policy play its
        agents. With several policies also the name of one: in a share of the games it is a guest, by its newest
        weights, and learns nothing there. "none": no guests play.
    opponent_pool
        Past versions of each policy that guests play.
    opponent_interval
        Steps between two versions that enter the pool; None: twenty in total_steps.
    opponent_share
        Share of the games in which guests play; in the others there are none.
    opponent_sampling
        How a version is drawn for a game: each with the same chance, or by (1 - win rate)^2 against it.
    eval_against
        With several agents: whom evaluations play: "random", "best", a class or function as "module:name" or
        "file.py:name", in Python also itself; with several policies also "others", the other policies. Empty: one
        policy plays all seats, several play each other.
    pbt
        Population-based training of the run's policies: now and then a bad one goes on as a copy of a better one, with
        settings a little different. "truncation" replaces the worst by one of the best, "tournament" whoever is worse
        than another drawn at random, "sample-factory" as "truncation", and changes settings of those between in place.
    pbt_space
        What may change: a TOML file with a table for each setting, as `penstock search` takes; in Python also the
        tables.
    pbt_interval
        Steps of each policy between two decisions about it; None: twenty in its share of total_steps.
    pbt_start
        Steps of each policy before the first decision about it; None: pbt_interval.
    pbt_fraction
        Share of the policies that counts as the worst, and as the best; None: 0.2, of "sample-factory" 0.3.
    pbt_metric
        What policies are ranked by: "return", the mean return of training episodes, or a name in info["metrics"].
    pbt_episodes
        Episodes that a policy needs since it was last replaced before it is ranked.
    schedule
        Tunable settings over the steps of the policy: lineage.jsonl of a population, or its directory, whose schedule
        is repeated; or {steps: {setting: value}}, on a command line as JSON. They win over the settings themselves.
    schedule_policy
        Whose schedule of the lineage it is; None: that of the policy with the best of the last scores.
    num_workers
        Rollout workers, with backend="ray" of each node; None: one per core, at most 16.
    num_envs_per_worker
        Environments per rollout worker: its lanes, where each has one agent.
    num_groups
        Groups of environments per worker that step in turn; None: 2 with central inference, 1 with local.
    inference
        Where actions are chosen: in each rollout worker, or in a policy worker that batches those of several.
    backend
        "local": one process per role; "serial": everything in this process, reproducible bit for bit; "ray": lanes are
        stepped by the nodes of a Ray cluster.
    address
        With backend="ray" the cluster: "auto", or the address of its head node; None: one of this machine, started for
        the run.
    nodes
        With backend="ray": how many nodes of the cluster step lanes, "all", or how many of those that have a custom
        resource of Ray's, by its name.
    evaluator
        With backend="ray": where evaluations play; "node": on the first node, which has a core for them beside its
        rollout workers'.
    num_learners
        Learners of the policy, a process each, on device="cuda" a GPU each; each computes a share of every update. With
        backend="local" and central inference each has a policy worker.
    learner_nodes
        With backend="ray": how many of these learners are on a node of their own, each on another, or how many on those
        that have a custom resource of Ray's, by its name; the first learner is at home.
    device
        Torch device of the learner and of central inference: "cpu", "cuda", "cuda:1", ...
    precision
        Arithmetic of the network's body (bfloat16 through autocast); heads, losses and weights stay float32. "auto":
        bfloat16 where the GPU or CPU that a role computes on is faster in it, else float32.
    encoder
        "mlp", "nature_cnn", "impala_resnet"; "auto": by observation; your nn.Module as "module:Class" or
        "file.py:Class", in Python also the class itself or a callable.
    hidden_sizes
        Widths of the hidden layers of the mlp encoder.
    activation
        Activation of the mlp encoder.
    normalize_observations
        Running normalisation of float observations; its statistics travel with the weights.
    memory
        Memory core behind the encoder.
    memory_size
        Width of the memory core.
    memory_span
        Steps that a new memory core reaches over before it has learned (chrono initialization, arXiv:1804.11188).
    shared_encoder
        One encoder for policy and value; None: shared for images, memory and own modules, separate for mlp.
    rewards
        What is learned from: the environment's rewards, or "rudder": delayed ones are handed to the steps that earned
        them, as a network beside the policy finds out; reported returns stay true.
    redistribution_attribution
        What a step is credited with: the difference that it makes to the prediction, or integrated gradients.
    redistribution_points
        Points on the path of integrated gradients.
    redistribution_max_error
        Original rewards are used while predictions leave so much of the returns' variance unexplained.
    redistributor_size
        Memory cells of the network that predicts returns.
    redistributor_learning_rate
        Step size of its optimiser.
    redistributor_interval
        Steps of the run for each of its updates.
    redistributor_batch_size
        Episodes per update.
    redistributor_lessons
        Episodes that it learns from: those that it predicts worst are kept.
    redistributor_chunk
        Steps that its gradients go back over; longer episodes are cut into chunks that overlap by half.
    redistributor_max_steps
        Longer episodes are not learned from.
    redistribution_value
        What values are learned from: "redistributed" rewards, as the policy; or "original" ones, with redistributed
        rewards mixed into the policy's advantages, as in the paper's Atari experiments.
    redistribution_share
        With original values: part of the advantages that redistributed rewards may take.
    redistribution_trace
        With original values: part of each redistributed reward that the step before is given, too.
    gamma
        Discount per step.
    learning_rate
        Step size of the optimiser, or a function of progress: "module:name", "file.py:name", in Python itself.
    learning_rate_schedule
        "linear" decays a number to 0 over total_steps, as published; a function says all by itself.
    burn_in
        First steps of each segment that only bring the memory state up to date: no loss, no gradient through them.
    max_grad_norm
        Gradients are scaled down to this global norm.
    segment_length
        Steps per segment (T).
    entropy_coef
        Weight of the entropy bonus, or a function of progress, as learning_rate.
    entropy_coef_final
        A number's bonus moves linearly to this over total_steps; None: stays.
    value_coef
        Weight of the value loss.
    normalize_returns
        Running normalisation of value targets; its statistics travel with the weights.
    batch_size
        Steps per update.
    max_policy_lag
        Steps chosen by weights this many versions old, or older, are masked out of the loss.
    replay
        What each batch is a mix of: sources as kind:share,setting=value. Shares are exact, such as 0.5 or 7/8. Kinds:
        queue (fresh segments), uniform, reservoir, prioritized, attentive, elite.
    rmsprop_decay
        Decay of the running mean of squared gradients.
    rmsprop_eps
        Keeps steps finite where gradients are small.
    rmsprop_eps_inside
        Where epsilon stands: g / sqrt(s + eps), as in TensorFlow and the papers' codes; False: g / (sqrt(s) + eps).
    vtrace_lambda
        Weight of longer returns in V-trace's targets.
    rho_bar
        Cut of the probability ratio in the temporal difference: decides which policy's value is learned.
    c_bar
        Cut of the ratio in the trace: decides how fast.
    rho_pg_bar
        Cut of the ratio in the policy gradient.
    reduction
        Losses are summed over a batch's steps, as published, or averaged: learning rate and clipping go with it.
    trust_region
        States of a larger KL(pi || implied policy), in nats, are not learned from; traces end there.
    seed
        Seeds weights, environments and exploration.
    total_steps
        Budget in steps; schedules run over it.
    max_seconds
        Budget in seconds of wall-clock time. A last evaluation may take a tenth of it more, and 10 s at least.
    target_return
        The run ends when the evaluator's mean return reaches this.
    eval_interval
        Steps between evaluations, or below 1 a fraction of total_steps; "continuous": one after the other, always of
        the newest weights; None: twenty in total_steps, or with a target_return at most a fifth of the time is spent on
        them (serial: after each batch); 0: never.
    eval_episodes
        Episodes per evaluation; of games, how many against each opponent, from each seat or by each policy.
    eval_exploration
        Evaluations sample their actions, or where none are sampled explore as at the end of training.
    eval_max_steps
        Steps after which an evaluation gives an episode up; what it has returned by then is shown as unfinished.
    checkpoint_interval
        Steps between checkpoints; None: ten in total_steps; 0: only at the end.
    keep_checkpoints
        Checkpoints kept besides the best.
    run_dir
        Where the run is written; "auto": runs/<env>-<algorithm>-<time>; None: nothing is written at all.
    save_replay
        Checkpoints hold the replayed segments too: learning waits meanwhile. A run resumed without them fills its
        sources again before it learns.
    """

    def __init__(
        self,
        env: str | Callable[..., Any] = ...,
        *,
        preset: str | os.PathLike[str] | None = None,
        env_kwargs: dict[str, Any] = ...,
        vectorize: Literal["make", "vector"] = "make",
        on_env_error: Literal["stop", "restart"] = "stop",
        reward_scale: float = 1.0,
        reward_clip: float | None = None,
        num_agents: int | None = None,
        team_reward: Literal["own", "mean", "sum"] = "own",
        num_policies: int = 1,
        policies: dict[str, dict[str, Any]] = ...,
        policy_of: str | Callable[..., Any] | None = None,
        seats: Literal["fixed", "shuffled"] = "fixed",
        opponents: str = "none",
        opponent_pool: int = 8,
        opponent_interval: int | None = None,
        opponent_share: float = 0.5,
        opponent_sampling: Literal["uniform", "hard"] = "uniform",
        eval_against: Sequence[str | Callable[..., Any]] = (),
        pbt: Literal["truncation", "tournament", "sample-factory"] | None = None,
        pbt_space: str | os.PathLike[str] | dict[str, Any] | None = None,
        pbt_interval: int | None = None,
        pbt_start: int | None = None,
        pbt_fraction: float | None = None,
        pbt_metric: str = "return",
        pbt_episodes: int = 10,
        schedule: str | os.PathLike[str] | dict[Any, Any] | None = None,
        schedule_policy: str | None = None,
        num_workers: int | None = None,
        num_envs_per_worker: int = 16,
        num_groups: int | None = None,
        inference: Literal["auto", "local", "central"] = "auto",
        backend: Literal["local", "serial", "ray"] = "local",
        address: str | None = None,
        nodes: int | Literal["all"] | dict[str, int] = 1,
        evaluator: Literal["home", "node"] = "home",
        num_learners: int = 1,
        learner_nodes: int | dict[str, int] = 0,
        device: str = "cpu",
        precision: Literal["auto", "float32", "bfloat16"] = "float32",
        encoder: str | Callable[..., Any] = "auto",
        hidden_sizes: Sequence[int] = (64, 64),
        activation: Literal["tanh", "relu", "elu", "silu"] = "tanh",
        normalize_observations: bool = True,
        memory: Literal["none", "gru", "lstm"] = "none",
        memory_size: int = 128,
        memory_span: int | None = None,
        shared_encoder: bool | None = None,
        rewards: Literal["environment", "rudder"] = "environment",
        redistribution_attribution: Literal["difference", "integrated_gradients"] = "difference",
        redistribution_points: int = 20,
        redistribution_max_error: float = 0.2,
        redistributor_size: int = 32,
        redistributor_learning_rate: float = 0.005,
        redistributor_interval: int = 25,
        redistributor_batch_size: int = 8,
        redistributor_lessons: int = 512,
        redistributor_chunk: int = 500,
        redistributor_max_steps: int = 10000,
        redistribution_value: Literal["redistributed", "original"] = "redistributed",
        redistribution_share: float = 0.5,
        redistribution_trace: float = 0.5,
        gamma: float = 0.99,
        learning_rate: float | str | Callable[[float], float] = 0.002,
        learning_rate_schedule: Literal["constant", "linear"] = "linear",
        burn_in: int = 0,
        max_grad_norm: float = 40.0,
        segment_length: int = 20,
        entropy_coef: float | str | Callable[[float], float] = 0.01,
        entropy_coef_final: float | None = None,
        value_coef: float = 0.5,
        normalize_returns: bool = True,
        batch_size: int = 320,
        max_policy_lag: int = 100,
        replay: Sequence[str] = ('queue:1/4', 'uniform:3/4,capacity=2000'),
        rmsprop_decay: float = 0.99,
        rmsprop_eps: float = 0.01,
        rmsprop_eps_inside: bool = True,
        vtrace_lambda: float = 1.0,
        rho_bar: float = 1.0,
        c_bar: float = 1.0,
        rho_pg_bar: float = 1.0,
        reduction: Literal["sum", "mean"] = "sum",
        trust_region: float = 0.3,
        seed: int = 0,
        total_steps: int = 1000000,
        max_seconds: float | None = None,
        target_return: float | None = None,
        eval_interval: int | float | Literal["continuous"] | None = None,
        eval_episodes: int = 20,
        eval_exploration: bool = False,
        eval_max_steps: int = 30000,
        checkpoint_interval: int | None = None,
        keep_checkpoints: int = 3,
        run_dir: str | os.PathLike[str] | None = "auto",
        save_replay: bool = False,
    ) -> None: ...

class PQN(Face):
    """Trains with PQN, Q-learning without replay; settings are the fields of `penstock.algorithms.pqn.PQNConfig`.

    Parameters
    ----------
    env
        Gymnasium id, "EnvPool/Id", "module:Class", "file.py:Class"; in Python also a callable returning an environment,
        or a class.
    env_kwargs
        Keyword arguments for the environment.
    vectorize
        "make": one environment per lane; "vector": one vector environment per group of lanes.
    on_env_error
        An exception or NaN in an environment ends the run, or restarts its worker and is counted.
    reward_scale
        Rewards are multiplied by this for learning; reported returns stay true.
    reward_clip
        Scaled rewards are clipped to [-reward_clip, reward_clip] for learning; reported returns stay true.
    num_agents
        Agents of each environment, each of which is a lane; None: as many as the environment has.
    team_reward
        With several agents: each is rewarded with its own reward, or with the mean or the sum of its team's.
    num_policies
        So many policies of the same settings, which play the agents in turn; where an environment has one agent, each
        plays environments of its own.
    policies
        Policies by name, each with settings of its own; with several agents also with ``agents``, a pattern of those
        that it plays or several.
    policy_of
        Who plays what, instead: a function of the agent's name ("" where there is one) and the number of the
        environment in its worker that returns a policy's name; "module:function" or "file.py:function", in Python also
        itself.
    seats
        With several policies of several agents: each plays its own agents, or it is drawn before each game which agents
        each plays, as many as are its own.
    opponents
        With several agents: "past": in a share of the games guests, frozen past versions of the only policy, play all
        seats but one; with several policies one of them learns there, and past versions of each other policy play its
        agents. With several policies also the name of one: in a share of the games it is a guest, by its newest
        weights, and learns nothing there. "none": no guests play.
    opponent_pool
        Past versions of each policy that guests play.
    opponent_interval
        Steps between two versions that enter the pool; None: twenty in total_steps.
    opponent_share
        Share of the games in which guests play; in the others there are none.
    opponent_sampling
        How a version is drawn for a game: each with the same chance, or by (1 - win rate)^2 against it.
    eval_against
        With several agents: whom evaluations play: "random", "best", a class or function as "module:name" or
        "file.py:name", in Python also itself; with several policies also "others", the other policies. Empty: one
        policy plays all seats, several play each other.
    pbt
        Population-based training of the run's policies: now and then a bad one goes on as a copy of a better one, with
        settings a little different. "truncation" replaces the worst by one of the best, "tournament" whoever is worse
        than another drawn at random, "sample-factory" as "truncation", and changes settings of those between in place.
    pbt_space
        What may change: a TOML file with a table for each setting, as `penstock search` takes; in Python also the
        tables.
    pbt_interval
        Steps of each policy between two decisions about it; None: twenty in its share of total_steps.
    pbt_start
        Steps of each policy before the first decision about it; None: pbt_interval.
    pbt_fraction
        Share of the policies that counts as the worst, and as the best; None: 0.2, of "sample-factory" 0.3.
    pbt_metric
        What policies are ranked by: "return", the mean return of training episodes, or a name in info["metrics"].
    pbt_episodes
        Episodes that a policy needs since it was last replaced before it is ranked.
    schedule
        Tunable settings over the steps of the policy: lineage.jsonl of a population, or its directory, whose schedule
        is repeated; or {steps: {setting: value}}, on a command line as JSON. They win over the settings themselves.
    schedule_policy
        Whose schedule of the lineage it is; None: that of the policy with the best of the last scores.
    num_workers
        Rollout workers, with backend="ray" of each node; None: one per core, at most 16.
    num_envs_per_worker
        Environments per rollout worker: its lanes, where each has one agent.
    num_groups
        Groups of environments per worker that step in turn; None: 2 with central inference, 1 with local.
    inference
        Where actions are chosen: in each rollout worker, or in a policy worker that batches those of several.
    backend
        "local": one process per role; "serial": everything in this process, reproducible bit for bit; "ray": lanes are
        stepped by the nodes of a Ray cluster.
    address
        With backend="ray" the cluster: "auto", or the address of its head node; None: one of this machine, started for
        the run.
    nodes
        With backend="ray": how many nodes of the cluster step lanes, "all", or how many of those that have a custom
        resource of Ray's, by its name.
    evaluator
        With backend="ray": where evaluations play; "node": on the first node, which has a core for them beside its
        rollout workers'.
    num_learners
        Learners of the policy, a process each, on device="cuda" a GPU each; each computes a share of every update. With
        backend="local" and central inference each has a policy worker.
    learner_nodes
        With backend="ray": how many of these learners are on a node of their own, each on another, or how many on those
        that have a custom resource of Ray's, by its name; the first learner is at home.
    device
        Torch device of the learner and of central inference: "cpu", "cuda", "cuda:1", ...
    precision
        Arithmetic of the network's body (bfloat16 through autocast); heads, losses and weights stay float32. "auto":
        bfloat16 where the GPU or CPU that a role computes on is faster in it, else float32.
    encoder
        "mlp", "nature_cnn", "impala_resnet"; "auto": by observation; your nn.Module as "module:Class" or
        "file.py:Class", in Python also the class itself or a callable.
    hidden_sizes
        Widths of the hidden layers of mlp networks.
    activation
        Activation of mlp networks.
    normalize_observations
        Running normalisation of float observations; its statistics travel with the weights.
    memory
        Memory core behind the encoder.
    memory_size
        Width of the memory core.
    memory_span
        Steps that a new memory core reaches over before it has learned (chrono initialization, arXiv:1804.11188).
    rewards
        What is learned from: the environment's rewards, or "rudder": delayed ones are handed to the steps that earned
        them, as a network beside the policy finds out; reported returns stay true.
    redistribution_attribution
        What a step is credited with: the difference that it makes to the prediction, or integrated gradients.
    redistribution_points
        Points on the path of integrated gradients.
    redistribution_max_error
        Original rewards are used while predictions leave so much of the returns' variance unexplained.
    redistributor_size
        Memory cells of the network that predicts returns.
    redistributor_learning_rate
        Step size of its optimiser.
    redistributor_interval
        Steps of the run for each of its updates.
    redistributor_batch_size
        Episodes per update.
    redistributor_lessons
        Episodes that it learns from: those that it predicts worst are kept.
    redistributor_chunk
        Steps that its gradients go back over; longer episodes are cut into chunks that overlap by half.
    redistributor_max_steps
        Longer episodes are not learned from.
    redistribution_value
        What values are learned from: "redistributed" rewards, as the policy; or "original" ones, with redistributed
        rewards mixed into the policy's advantages, as in the paper's Atari experiments.
    redistribution_share
        With original values: part of the advantages that redistributed rewards may take.
    redistribution_trace
        With original values: part of each redistributed reward that the step before is given, too.
    gamma
        Discount per step.
    learning_rate
        Step size of the optimiser, or a function of progress: "module:name", "file.py:name", in Python itself.
    learning_rate_schedule
        "linear" decays a number to 0 over total_steps; a function says all by itself.
    burn_in
        First steps of each segment that only bring the memory state up to date: no loss, no gradient through them.
    max_grad_norm
        Gradients are scaled down to this global norm.
    segment_length
        Steps per segment (T).
    layer_norm
        Layers of the encoder are normalised before their activation (section 3.3); one of your own is left as it is.
    batch_size
        Steps per update (one minibatch); all lanes' segments together are a multiple of it.
    num_epochs
        Passes over each batch.
    q_lambda
        Lambda of the returns that action values are drawn towards: 0 one step, 1 the rest of the segment.
    exploration
        Probability of a random action at the start.
    exploration_final
        Probability of a random action after exploration_steps.
    exploration_steps
        Steps over which exploration falls.
    seed
        Seeds weights, environments and exploration.
    total_steps
        Budget in steps; schedules run over it.
    max_seconds
        Budget in seconds of wall-clock time. A last evaluation may take a tenth of it more, and 10 s at least.
    target_return
        The run ends when the evaluator's mean return reaches this.
    eval_interval
        Steps between evaluations, or below 1 a fraction of total_steps; "continuous": one after the other, always of
        the newest weights; None: twenty in total_steps, or with a target_return at most a fifth of the time is spent on
        them (serial: after each batch); 0: never.
    eval_episodes
        Episodes per evaluation; of games, how many against each opponent, from each seat or by each policy.
    eval_exploration
        Evaluations sample their actions, or where none are sampled explore as at the end of training.
    eval_max_steps
        Steps after which an evaluation gives an episode up; what it has returned by then is shown as unfinished.
    checkpoint_interval
        Steps between checkpoints; None: ten in total_steps; 0: only at the end.
    keep_checkpoints
        Checkpoints kept besides the best.
    run_dir
        Where the run is written; "auto": runs/<env>-<algorithm>-<time>; None: nothing is written at all.
    """

    def __init__(
        self,
        env: str | Callable[..., Any] = ...,
        *,
        preset: str | os.PathLike[str] | None = None,
        env_kwargs: dict[str, Any] = ...,
        vectorize: Literal["make", "vector"] = "make",
        on_env_error: Literal["stop", "restart"] = "stop",
        reward_scale: float = 1.0,
        reward_clip: float | None = None,
        num_agents: int | None = None,
        team_reward: Literal["own", "mean", "sum"] = "own",
        num_policies: int = 1,
        policies: dict[str, dict[str, Any]] = ...,
        policy_of: str | Callable[..., Any] | None = None,
        seats: Literal["fixed", "shuffled"] = "fixed",
        opponents: str = "none",
        opponent_pool: int = 8,
        opponent_interval: int | None = None,
        opponent_share: float = 0.5,
        opponent_sampling: Literal["uniform", "hard"] = "uniform",
        eval_against: Sequence[str | Callable[..., Any]] = (),
        pbt: Literal["truncation", "tournament", "sample-factory"] | None = None,
        pbt_space: str | os.PathLike[str] | dict[str, Any] | None = None,
        pbt_interval: int | None = None,
        pbt_start: int | None = None,
        pbt_fraction: float | None = None,
        pbt_metric: str = "return",
        pbt_episodes: int = 10,
        schedule: str | os.PathLike[str] | dict[Any, Any] | None = None,
        schedule_policy: str | None = None,
        num_workers: int | None = None,
        num_envs_per_worker: int = 16,
        num_groups: int | None = None,
        inference: Literal["auto", "local", "central"] = "auto",
        backend: Literal["local", "serial", "ray"] = "local",
        address: str | None = None,
        nodes: int | Literal["all"] | dict[str, int] = 1,
        evaluator: Literal["home", "node"] = "home",
        num_learners: int = 1,
        learner_nodes: int | dict[str, int] = 0,
        device: str = "cpu",
        precision: Literal["auto", "float32", "bfloat16"] = "float32",
        encoder: str | Callable[..., Any] = "auto",
        hidden_sizes: Sequence[int] = (128, 128),
        activation: Literal["tanh", "relu", "elu", "silu"] = "relu",
        normalize_observations: bool = True,
        memory: Literal["none", "gru", "lstm"] = "none",
        memory_size: int = 128,
        memory_span: int | None = None,
        rewards: Literal["environment", "rudder"] = "environment",
        redistribution_attribution: Literal["difference", "integrated_gradients"] = "difference",
        redistribution_points: int = 20,
        redistribution_max_error: float = 0.2,
        redistributor_size: int = 32,
        redistributor_learning_rate: float = 0.005,
        redistributor_interval: int = 25,
        redistributor_batch_size: int = 8,
        redistributor_lessons: int = 512,
        redistributor_chunk: int = 500,
        redistributor_max_steps: int = 10000,
        redistribution_value: Literal["redistributed", "original"] = "redistributed",
        redistribution_share: float = 0.5,
        redistribution_trace: float = 0.5,
        gamma: float = 0.99,
        learning_rate: float | str | Callable[[float], float] = 0.001,
        learning_rate_schedule: Literal["constant", "linear"] = "linear",
        burn_in: int = 0,
        max_grad_norm: float = 10.0,
        segment_length: int = 64,
        layer_norm: bool = True,
        batch_size: int = 256,
        num_epochs: int = 4,
        q_lambda: float = 0.95,
        exploration: float = 1.0,
        exploration_final: float = 0.05,
        exploration_steps: int = 50000,
        seed: int = 0,
        total_steps: int = 500000,
        max_seconds: float | None = None,
        target_return: float | None = None,
        eval_interval: int | float | Literal["continuous"] | None = None,
        eval_episodes: int = 20,
        eval_exploration: bool = False,
        eval_max_steps: int = 30000,
        checkpoint_interval: int | None = None,
        keep_checkpoints: int = 3,
        run_dir: str | os.PathLike[str] | None = "auto",
    ) -> None: ...

class DQN(Face):
    """Trains with DQN and its extensions; settings are the fields of `penstock.algorithms.dqn.DQNConfig`.

    Parameters
    ----------
    env
        Gymnasium id, "EnvPool/Id", "module:Class", "file.py:Class"; in Python also a callable returning an environment,
        or a class.
    env_kwargs
        Keyword arguments for the environment.
    vectorize
        "make": one environment per lane; "vector": one vector environment per group of lanes.
    on_env_error
        An exception or NaN in an environment ends the run, or restarts its worker and is counted.
    reward_scale
        Rewards are multiplied by this for learning; reported returns stay true.
    reward_clip
        Scaled rewards are clipped to [-reward_clip, reward_clip] for learning; reported returns stay true.
    num_agents
        Agents of each environment, each of which is a lane; None: as many as the environment has.
    team_reward
        With several agents: each is rewarded with its own reward, or with the mean or the sum of its team's.
    num_policies
        So many policies of the same settings, which play the agents in turn; where an environment has one agent, each
        plays environments of its own.
    policies
        Policies by name, each with settings of its own; with several agents also with ``agents``, a pattern of those
        that it plays or several.
    policy_of
        Who plays what, instead: a function of the agent's name ("" where there is one) and the number of the
        environment in its worker that returns a policy's name; "module:function" or "file.py:function", in Python also
        itself.
    seats
        With several policies of several agents: each plays its own agents, or it is drawn before each game which agents
        each plays, as many as are its own.
    opponents
        With several agents: "past": in a share of the games guests, frozen past versions of the only policy, play all
        seats but one; with several policies one of them learns there, and past versions of each other policy play its
        agents. With several policies also the name of one: in a share of the games it is a guest, by its newest
        weights, and learns nothing there. "none": no guests play.
    opponent_pool
        Past versions of each policy that guests play.
    opponent_interval
        Steps between two versions that enter the pool; None: twenty in total_steps.
    opponent_share
        Share of the games in which guests play; in the others there are none.
    opponent_sampling
        How a version is drawn for a game: each with the same chance, or by (1 - win rate)^2 against it.
    eval_against
        With several agents: whom evaluations play: "random", "best", a class or function as "module:name" or
        "file.py:name", in Python also itself; with several policies also "others", the other policies. Empty: one
        policy plays all seats, several play each other.
    pbt
        Population-based training of the run's policies: now and then a bad one goes on as a copy of a better one, with
        settings a little different. "truncation" replaces the worst by one of the best, "tournament" whoever is worse
        than another drawn at random, "sample-factory" as "truncation", and changes settings of those between in place.
    pbt_space
        What may change: a TOML file with a table for each setting, as `penstock search` takes; in Python also the
        tables.
    pbt_interval
        Steps of each policy between two decisions about it; None: twenty in its share of total_steps.
    pbt_start
        Steps of each policy before the first decision about it; None: pbt_interval.
    pbt_fraction
        Share of the policies that counts as the worst, and as the best; None: 0.2, of "sample-factory" 0.3.
    pbt_metric
        What policies are ranked by: "return", the mean return of training episodes, or a name in info["metrics"].
    pbt_episodes
        Episodes that a policy needs since it was last replaced before it is ranked.
    schedule
        Tunable settings over the steps of the policy: lineage.jsonl of a population, or its directory, whose schedule
        is repeated; or {steps: {setting: value}}, on a command line as JSON. They win over the settings themselves.
    schedule_policy
        Whose schedule of the lineage it is; None: that of the policy with the best of the last scores.
    num_workers
        Rollout workers, with backend="ray" of each node; None: one per core, at most 16.
    num_envs_per_worker
        Environments per rollout worker.
    num_groups
        Groups of environments per worker that step in turn; None: 2 with central inference, 1 with local.
    inference
        Where actions are chosen: in each rollout worker, or in a policy worker that batches those of several.
    backend
        "local": one process per role; "serial": everything in this process, reproducible bit for bit; "ray": lanes are
        stepped by the nodes of a Ray cluster.
    address
        With backend="ray" the cluster: "auto", or the address of its head node; None: one of this machine, started for
        the run.
    nodes
        With backend="ray": how many nodes of the cluster step lanes, "all", or how many of those that have a custom
        resource of Ray's, by its name.
    evaluator
        With backend="ray": where evaluations play; "node": on the first node, which has a core for them beside its
        rollout workers'.
    num_learners
        Learners of the policy, a process each, on device="cuda" a GPU each; each computes a share of every update. With
        backend="local" and central inference each has a policy worker.
    learner_nodes
        With backend="ray": how many of these learners are on a node of their own, each on another, or how many on those
        that have a custom resource of Ray's, by its name; the first learner is at home.
    device
        Torch device of the learner and of central inference: "cpu", "cuda", "cuda:1", ...
    precision
        Arithmetic of the network's body (bfloat16 through autocast); heads, losses and weights stay float32. "auto":
        bfloat16 where the GPU or CPU that a role computes on is faster in it, else float32.
    encoder
        "mlp", "nature_cnn", "impala_resnet"; "auto": by observation; your nn.Module as "module:Class" or
        "file.py:Class", in Python also the class itself or a callable.
    hidden_sizes
        Widths of the hidden layers of mlp networks.
    activation
        Activation of mlp networks.
    normalize_observations
        Running normalisation of float observations; its statistics travel with the weights.
    memory
        Memory core behind the encoder; with one, sequences are replayed instead of transitions, as in R2D2.
    memory_size
        Width of the memory core.
    memory_span
        Steps that a new memory core reaches over before it has learned (chrono initialization, arXiv:1804.11188).
    dueling
        Dueling network (arXiv:1511.06581): a value and advantages instead of action values.
    distributional
        What is learned of returns beside their mean: "c51", probabilities of fixed returns (arXiv:1707.06887);
        "quantile", quantiles, QR-DQN (arXiv:1710.10044); "iqn", quantiles at drawn fractions (arXiv:1806.06923).
    num_atoms
        Returns that "c51" learns the probabilities of (arXiv:1707.06887, section 5).
    v_min
        Least of these returns; published, for clipped rewards: -10. With rescale_values, a rescaled return.
    v_max
        Largest of these returns; published, for clipped rewards: 10. With rescale_values, a rescaled return.
    num_quantiles
        Quantiles of "quantile" (published: 200), and fractions that "iqn" draws for a value, and for its target.
    noisy
        NoisyNets (arXiv:1706.10295): noise on the head's weights explores; then no action is drawn at random, whatever
        exploration says.
    noisy_sigma
        Where the size of this noise starts, sigma_0 (arXiv:1706.10295, section 3.2).
    rewards
        What is learned from: the environment's rewards, or "rudder": delayed ones are handed to the steps that earned
        them, as a network beside the policy finds out; reported returns stay true.
    redistribution_attribution
        What a step is credited with: the difference that it makes to the prediction, or integrated gradients.
    redistribution_points
        Points on the path of integrated gradients.
    redistribution_max_error
        Original rewards are used while predictions leave so much of the returns' variance unexplained.
    redistributor_size
        Memory cells of the network that predicts returns.
    redistributor_learning_rate
        Step size of its optimiser.
    redistributor_interval
        Steps of the run for each of its updates.
    redistributor_batch_size
        Episodes per update.
    redistributor_lessons
        Episodes that it learns from: those that it predicts worst are kept.
    redistributor_chunk
        Steps that its gradients go back over; longer episodes are cut into chunks that overlap by half.
    redistributor_max_steps
        Longer episodes are not learned from.
    gamma
        Discount per step.
    learning_rate
        Step size of the optimiser, or a function of progress: "module:name", "file.py:name", in Python itself.
    learning_rate_schedule
        "linear" decays a number to 0 over total_steps; a function says all by itself.
    batch_size
        Transitions per update, drawn from the replay buffer; with memory, sequences.
    buffer_size
        Transitions that the replay buffer keeps; the oldest is overwritten.
    learning_starts
        Steps before the first update; continuous actions are uniformly random until then.
    updates_per_step
        Updates for each step; published is one for every four.
    ratio_slack
        Updates that either side may be ahead; None: a few, with backend="serial" those due for one step of all lanes.
    n_step
        Steps of reward in a transition, fewer at the end of an episode.
    publish_interval
        Updates between two publications of the weights to those who act.
    hindsight
        Write ended episodes again as if goals that they achieved had been meant (arXiv:1707.01495): goals of the same
        or later steps, of any step, or of the last one. None: not.
    goals_per_step
        Achieved goals for each step, with hindsight="future" or "episode" (section 4.5: k).
    prioritized
        Prioritized replay (arXiv:1511.05952): transitions of large error are drawn more often.
    priority_alpha
        Exponent of the priorities: 0 uniform, 1 in proportion (arXiv:1511.05952, proportional variant).
    priority_beta
        Exponent of the importance weights at the start (arXiv:1511.05952).
    priority_beta_final
        Exponent of the importance weights at total_steps (arXiv:1511.05952).
    sequence_length
        Steps of a sequence that are learned from; without memory of no effect, as all of sequences.
    burn_in
        Steps before these that only bring the stored memory state up to date: no loss, no gradient.
    sequence_overlap
        Steps that successive sequences of an episode share among those that are learned from.
    priority_eta
        Share of the largest error in a sequence's priority; the other share is of the mean error.
    optimizer
        "rmsprop": centred, decay 0.95, as published; "adam": as most codes today.
    optimizer_eps
        What the optimiser adds to the root of the mean square.
    max_grad_norm
        Gradients are scaled down to this global norm (arXiv:1511.06581); None: never.
    double
        Double DQN (arXiv:1509.06461): the online network chooses the action that the target network values.
    target_period
        Updates between two copies of the network to the target network.
    rescale_values
        Values are of rescaled returns, h(x) = sign(x) (sqrt(|x| + 1) - 1) + x / 1000 (arXiv:1805.11593).
    exploration
        Probability of a random action at the start (doi:10.1038/nature14236).
    exploration_final
        Probability of a random action after exploration_steps.
    exploration_steps
        Steps over which exploration falls.
    seed
        Seeds weights, environments and exploration.
    total_steps
        Budget in steps; schedules run over it.
    max_seconds
        Budget in seconds of wall-clock time. A last evaluation may take a tenth of it more, and 10 s at least.
    target_return
        The run ends when the evaluator's mean return reaches this.
    eval_interval
        Steps between evaluations, or below 1 a fraction of total_steps; "continuous": one after the other, always of
        the newest weights; None: twenty in total_steps, or with a target_return at most a fifth of the time is spent on
        them (serial: after each batch); 0: never.
    eval_episodes
        Episodes per evaluation; of games, how many against each opponent, from each seat or by each policy.
    eval_exploration
        Evaluations sample their actions, or where none are sampled explore as at the end of training.
    eval_max_steps
        Steps after which an evaluation gives an episode up; what it has returned by then is shown as unfinished.
    checkpoint_interval
        Steps between checkpoints; None: ten in total_steps; 0: only at the end.
    keep_checkpoints
        Checkpoints kept besides the best.
    run_dir
        Where the run is written; "auto": runs/<env>-<algorithm>-<time>; None: nothing is written at all.
    save_replay
        Checkpoints hold the replay buffer too, as far as it changed since the last: learning waits meanwhile. A run
        resumed without it fills it again before it learns.
    """

    def __init__(
        self,
        env: str | Callable[..., Any] = ...,
        *,
        preset: str | os.PathLike[str] | None = None,
        env_kwargs: dict[str, Any] = ...,
        vectorize: Literal["make", "vector"] = "make",
        on_env_error: Literal["stop", "restart"] = "stop",
        reward_scale: float = 1.0,
        reward_clip: float | None = None,
        num_agents: int | None = None,
        team_reward: Literal["own", "mean", "sum"] = "own",
        num_policies: int = 1,
        policies: dict[str, dict[str, Any]] = ...,
        policy_of: str | Callable[..., Any] | None = None,
        seats: Literal["fixed", "shuffled"] = "fixed",
        opponents: str = "none",
        opponent_pool: int = 8,
        opponent_interval: int | None = None,
        opponent_share: float = 0.5,
        opponent_sampling: Literal["uniform", "hard"] = "uniform",
        eval_against: Sequence[str | Callable[..., Any]] = (),
        pbt: Literal["truncation", "tournament", "sample-factory"] | None = None,
        pbt_space: str | os.PathLike[str] | dict[str, Any] | None = None,
        pbt_interval: int | None = None,
        pbt_start: int | None = None,
        pbt_fraction: float | None = None,
        pbt_metric: str = "return",
        pbt_episodes: int = 10,
        schedule: str | os.PathLike[str] | dict[Any, Any] | None = None,
        schedule_policy: str | None = None,
        num_workers: int | None = None,
        num_envs_per_worker: int = 1,
        num_groups: int | None = None,
        inference: Literal["auto", "local", "central"] = "auto",
        backend: Literal["local", "serial", "ray"] = "local",
        address: str | None = None,
        nodes: int | Literal["all"] | dict[str, int] = 1,
        evaluator: Literal["home", "node"] = "home",
        num_learners: int = 1,
        learner_nodes: int | dict[str, int] = 0,
        device: str = "cpu",
        precision: Literal["auto", "float32", "bfloat16"] = "float32",
        encoder: str | Callable[..., Any] = "auto",
        hidden_sizes: Sequence[int] = (128, 128),
        activation: Literal["tanh", "relu", "elu", "silu"] = "relu",
        normalize_observations: bool = False,
        memory: Literal["none", "gru", "lstm"] = "none",
        memory_size: int = 128,
        memory_span: int | None = None,
        dueling: bool = False,
        distributional: Literal["none", "c51", "quantile", "iqn"] = "none",
        num_atoms: int = 51,
        v_min: float = -100.0,
        v_max: float = 100.0,
        num_quantiles: int = 32,
        noisy: bool = False,
        noisy_sigma: float = 0.5,
        rewards: Literal["environment", "rudder"] = "environment",
        redistribution_attribution: Literal["difference", "integrated_gradients"] = "difference",
        redistribution_points: int = 20,
        redistribution_max_error: float = 0.2,
        redistributor_size: int = 32,
        redistributor_learning_rate: float = 0.005,
        redistributor_interval: int = 25,
        redistributor_batch_size: int = 8,
        redistributor_lessons: int = 512,
        redistributor_chunk: int = 500,
        redistributor_max_steps: int = 10000,
        gamma: float = 0.99,
        learning_rate: float | str | Callable[[float], float] = 0.002,
        learning_rate_schedule: Literal["constant", "linear"] = "constant",
        batch_size: int = 64,
        buffer_size: int = 100000,
        learning_starts: int = 1000,
        updates_per_step: float = 0.5,
        ratio_slack: int | None = None,
        n_step: int = 1,
        publish_interval: int = 1,
        hindsight: Literal["future", "episode", "final"] | None = None,
        goals_per_step: int = 4,
        prioritized: bool = False,
        priority_alpha: float = 0.6,
        priority_beta: float = 0.4,
        priority_beta_final: float = 1.0,
        sequence_length: int = 20,
        burn_in: int = 10,
        sequence_overlap: int = 10,
        priority_eta: float = 0.9,
        optimizer: Literal["adam", "rmsprop"] = "adam",
        optimizer_eps: float = 1e-08,
        max_grad_norm: float | None = 10.0,
        double: bool = False,
        target_period: int = 100,
        rescale_values: bool = False,
        exploration: float = 1.0,
        exploration_final: float = 0.05,
        exploration_steps: int = 10000,
        seed: int = 0,
        total_steps: int = 1000000,
        max_seconds: float | None = None,
        target_return: float | None = None,
        eval_interval: int | float | Literal["continuous"] | None = None,
        eval_episodes: int = 20,
        eval_exploration: bool = False,
        eval_max_steps: int = 30000,
        checkpoint_interval: int | None = None,
        keep_checkpoints: int = 3,
        run_dir: str | os.PathLike[str] | None = "auto",
        save_replay: bool = False,
    ) -> None: ...

class Rainbow(Face):
    """Trains with Rainbow, six extensions of DQN; settings are those of `penstock.algorithms.rainbow.RainbowConfig`.

    Parameters
    ----------
    env
        Gymnasium id, "EnvPool/Id", "module:Class", "file.py:Class"; in Python also a callable returning an environment,
        or a class.
    env_kwargs
        Keyword arguments for the environment.
    vectorize
        "make": one environment per lane; "vector": one vector environment per group of lanes.
    on_env_error
        An exception or NaN in an environment ends the run, or restarts its worker and is counted.
    reward_scale
        Rewards are multiplied by this for learning; reported returns stay true.
    reward_clip
        Scaled rewards are clipped to [-reward_clip, reward_clip] for learning; reported returns stay true.
    num_agents
        Agents of each environment, each of which is a lane; None: as many as the environment has.
    team_reward
        With several agents: each is rewarded with its own reward, or with the mean or the sum of its team's.
    num_policies
        So many policies of the same settings, which play the agents in turn; where an environment has one agent, each
        plays environments of its own.
    policies
        Policies by name, each with settings of its own; with several agents also with ``agents``, a pattern of those
        that it plays or several.
    policy_of
        Who plays what, instead: a function of the agent's name ("" where there is one) and the number of the
        environment in its worker that returns a policy's name; "module:function" or "file.py:function", in Python also
        itself.
    seats
        With several policies of several agents: each plays its own agents, or it is drawn before each game which agents
        each plays, as many as are its own.
    opponents
        With several agents: "past": in a share of the games guests, frozen past versions of the only policy, play all
        seats but one; with several policies one of them learns there, and past versions of each other policy play its
        agents. With several policies also the name of one: in a share of the games it is a guest, by its newest
        weights, and learns nothing there. "none": no guests play.
    opponent_pool
        Past versions of each policy that guests play.
    opponent_interval
        Steps between two versions that enter the pool; None: twenty in total_steps.
    opponent_share
        Share of the games in which guests play; in the others there are none.
    opponent_sampling
        How a version is drawn for a game: each with the same chance, or by (1 - win rate)^2 against it.
    eval_against
        With several agents: whom evaluations play: "random", "best", a class or function as "module:name" or
        "file.py:name", in Python also itself; with several policies also "others", the other policies. Empty: one
        policy plays all seats, several play each other.
    pbt
        Population-based training of the run's policies: now and then a bad one goes on as a copy of a better one, with
        settings a little different. "truncation" replaces the worst by one of the best, "tournament" whoever is worse
        than another drawn at random, "sample-factory" as "truncation", and changes settings of those between in place.
    pbt_space
        What may change: a TOML file with a table for each setting, as `penstock search` takes; in Python also the
        tables.
    pbt_interval
        Steps of each policy between two decisions about it; None: twenty in its share of total_steps.
    pbt_start
        Steps of each policy before the first decision about it; None: pbt_interval.
    pbt_fraction
        Share of the policies that counts as the worst, and as the best; None: 0.2, of "sample-factory" 0.3.
    pbt_metric
        What policies are ranked by: "return", the mean return of training episodes, or a name in info["metrics"].
    pbt_episodes
        Episodes that a policy needs since it was last replaced before it is ranked.
    schedule
        Tunable settings over the steps of the policy: lineage.jsonl of a population, or its directory, whose schedule
        is repeated; or {steps: {setting: value}}, on a command line as JSON. They win over the settings themselves.
    schedule_policy
        Whose schedule of the lineage it is; None: that of the policy with the best of the last scores.
    num_workers
        Rollout workers, with backend="ray" of each node; None: one per core, at most 16.
    num_envs_per_worker
        Environments per rollout worker.
    num_groups
        Groups of environments per worker that step in turn; None: 2 with central inference, 1 with local.
    inference
        Where actions are chosen: in each rollout worker, or in a policy worker that batches those of several.
    backend
        "local": one process per role; "serial": everything in this process, reproducible bit for bit; "ray": lanes are
        stepped by the nodes of a Ray cluster.
    address
        With backend="ray" the cluster: "auto", or the address of its head node; None: one of this machine, started for
        the run.
    nodes
        With backend="ray": how many nodes of the cluster step lanes, "all", or how many of those that have a custom
        resource of Ray's, by its name.
    evaluator
        With backend="ray": where evaluations play; "node": on the first node, which has a core for them beside its
        rollout workers'.
    num_learners
        Learners of the policy, a process each, on device="cuda" a GPU each; each computes a share of every update. With
        backend="local" and central inference each has a policy worker.
    learner_nodes
        With backend="ray": how many of these learners are on a node of their own, each on another, or how many on those
        that have a custom resource of Ray's, by its name; the first learner is at home.
    device
        Torch device of the learner and of central inference: "cpu", "cuda", "cuda:1", ...
    precision
        Arithmetic of the network's body (bfloat16 through autocast); heads, losses and weights stay float32. "auto":
        bfloat16 where the GPU or CPU that a role computes on is faster in it, else float32.
    encoder
        "mlp", "nature_cnn", "impala_resnet"; "auto": by observation; your nn.Module as "module:Class" or
        "file.py:Class", in Python also the class itself or a callable.
    hidden_sizes
        Widths of the hidden layers of mlp networks.
    activation
        Activation of mlp networks.
    normalize_observations
        Running normalisation of float observations; its statistics travel with the weights.
    memory
        Memory core behind the encoder; with one, sequences are replayed instead of transitions, as in R2D2.
    memory_size
        Width of the memory core.
    memory_span
        Steps that a new memory core reaches over before it has learned (chrono initialization, arXiv:1804.11188).
    dueling
        Dueling network (arXiv:1511.06581): a value and advantages, for every atom.
    distributional
        What is learned of returns beside their mean: "c51", probabilities of fixed returns (arXiv:1707.06887);
        "quantile", quantiles, QR-DQN (arXiv:1710.10044); "iqn", quantiles at drawn fractions (arXiv:1806.06923).
    num_atoms
        Returns that "c51" learns the probabilities of (arXiv:1707.06887, section 5).
    v_min
        Least of these returns; published, for clipped rewards: -10. With rescale_values, a rescaled return.
    v_max
        Largest of these returns; published, for clipped rewards: 10. With rescale_values, a rescaled return.
    num_quantiles
        Quantiles of "quantile" (published: 200), and fractions that "iqn" draws for a value, and for its target.
    noisy
        NoisyNets (arXiv:1706.10295): noise on the head's weights explores; then no action is drawn at random, whatever
        exploration says.
    noisy_sigma
        Where the size of this noise starts, sigma_0 (arXiv:1706.10295, section 3.2).
    rewards
        What is learned from: the environment's rewards, or "rudder": delayed ones are handed to the steps that earned
        them, as a network beside the policy finds out; reported returns stay true.
    redistribution_attribution
        What a step is credited with: the difference that it makes to the prediction, or integrated gradients.
    redistribution_points
        Points on the path of integrated gradients.
    redistribution_max_error
        Original rewards are used while predictions leave so much of the returns' variance unexplained.
    redistributor_size
        Memory cells of the network that predicts returns.
    redistributor_learning_rate
        Step size of its optimiser.
    redistributor_interval
        Steps of the run for each of its updates.
    redistributor_batch_size
        Episodes per update.
    redistributor_lessons
        Episodes that it learns from: those that it predicts worst are kept.
    redistributor_chunk
        Steps that its gradients go back over; longer episodes are cut into chunks that overlap by half.
    redistributor_max_steps
        Longer episodes are not learned from.
    gamma
        Discount per step.
    learning_rate
        Step size of the optimiser, or a function of progress: "module:name", "file.py:name", in Python itself.
    learning_rate_schedule
        "linear" decays a number to 0 over total_steps; a function says all by itself.
    batch_size
        Transitions per update, drawn from the replay buffer; with memory, sequences.
    buffer_size
        Transitions that the replay buffer keeps; the oldest is overwritten.
    learning_starts
        Steps before the first update; continuous actions are uniformly random until then.
    updates_per_step
        Updates for each step; published is one for every four.
    ratio_slack
        Updates that either side may be ahead; None: a few, with backend="serial" those due for one step of all lanes.
    n_step
        Steps of reward in a transition, fewer at the end of an episode (table 1).
    publish_interval
        Updates between two publications of the weights to those who act.
    hindsight
        Write ended episodes again as if goals that they achieved had been meant (arXiv:1707.01495): goals of the same
        or later steps, of any step, or of the last one. None: not.
    goals_per_step
        Achieved goals for each step, with hindsight="future" or "episode" (section 4.5: k).
    prioritized
        Prioritized replay (arXiv:1511.05952), by the KL divergence that is the loss.
    priority_alpha
        Exponent of the priorities: 0 uniform, 1 in proportion (table 1).
    priority_beta
        Exponent of the importance weights at the start (arXiv:1511.05952).
    priority_beta_final
        Exponent of the importance weights at total_steps (arXiv:1511.05952).
    sequence_length
        Steps of a sequence that are learned from; without memory of no effect, as all of sequences.
    burn_in
        Steps before these that only bring the stored memory state up to date: no loss, no gradient.
    sequence_overlap
        Steps that successive sequences of an episode share among those that are learned from.
    priority_eta
        Share of the largest error in a sequence's priority; the other share is of the mean error.
    optimizer
        "rmsprop": centred, decay 0.95, as published; "adam": as most codes today.
    optimizer_eps
        What the optimiser adds to the root of the mean square.
    max_grad_norm
        Gradients are scaled down to this global norm (arXiv:1511.06581); None: never.
    double
        Double DQN (arXiv:1509.06461): the online network chooses the action that the target network values.
    target_period
        Updates between two copies of the network to the target network.
    rescale_values
        Values are of rescaled returns, h(x) = sign(x) (sqrt(|x| + 1) - 1) + x / 1000 (arXiv:1805.11593).
    exploration
        Probability of a random action at the start (doi:10.1038/nature14236).
    exploration_final
        Probability of a random action after exploration_steps.
    exploration_steps
        Steps over which exploration falls.
    seed
        Seeds weights, environments and exploration.
    total_steps
        Budget in steps; schedules run over it.
    max_seconds
        Budget in seconds of wall-clock time. A last evaluation may take a tenth of it more, and 10 s at least.
    target_return
        The run ends when the evaluator's mean return reaches this.
    eval_interval
        Steps between evaluations, or below 1 a fraction of total_steps; "continuous": one after the other, always of
        the newest weights; None: twenty in total_steps, or with a target_return at most a fifth of the time is spent on
        them (serial: after each batch); 0: never.
    eval_episodes
        Episodes per evaluation; of games, how many against each opponent, from each seat or by each policy.
    eval_exploration
        Evaluations sample their actions, or where none are sampled explore as at the end of training.
    eval_max_steps
        Steps after which an evaluation gives an episode up; what it has returned by then is shown as unfinished.
    checkpoint_interval
        Steps between checkpoints; None: ten in total_steps; 0: only at the end.
    keep_checkpoints
        Checkpoints kept besides the best.
    run_dir
        Where the run is written; "auto": runs/<env>-<algorithm>-<time>; None: nothing is written at all.
    save_replay
        Checkpoints hold the replay buffer too, as far as it changed since the last: learning waits meanwhile. A run
        resumed without it fills it again before it learns.
    """

    def __init__(
        self,
        env: str | Callable[..., Any] = ...,
        *,
        preset: str | os.PathLike[str] | None = None,
        env_kwargs: dict[str, Any] = ...,
        vectorize: Literal["make", "vector"] = "make",
        on_env_error: Literal["stop", "restart"] = "stop",
        reward_scale: float = 1.0,
        reward_clip: float | None = None,
        num_agents: int | None = None,
        team_reward: Literal["own", "mean", "sum"] = "own",
        num_policies: int = 1,
        policies: dict[str, dict[str, Any]] = ...,
        policy_of: str | Callable[..., Any] | None = None,
        seats: Literal["fixed", "shuffled"] = "fixed",
        opponents: str = "none",
        opponent_pool: int = 8,
        opponent_interval: int | None = None,
        opponent_share: float = 0.5,
        opponent_sampling: Literal["uniform", "hard"] = "uniform",
        eval_against: Sequence[str | Callable[..., Any]] = (),
        pbt: Literal["truncation", "tournament", "sample-factory"] | None = None,
        pbt_space: str | os.PathLike[str] | dict[str, Any] | None = None,
        pbt_interval: int | None = None,
        pbt_start: int | None = None,
        pbt_fraction: float | None = None,
        pbt_metric: str = "return",
        pbt_episodes: int = 10,
        schedule: str | os.PathLike[str] | dict[Any, Any] | None = None,
        schedule_policy: str | None = None,
        num_workers: int | None = None,
        num_envs_per_worker: int = 1,
        num_groups: int | None = None,
        inference: Literal["auto", "local", "central"] = "auto",
        backend: Literal["local", "serial", "ray"] = "local",
        address: str | None = None,
        nodes: int | Literal["all"] | dict[str, int] = 1,
        evaluator: Literal["home", "node"] = "home",
        num_learners: int = 1,
        learner_nodes: int | dict[str, int] = 0,
        device: str = "cpu",
        precision: Literal["auto", "float32", "bfloat16"] = "float32",
        encoder: str | Callable[..., Any] = "auto",
        hidden_sizes: Sequence[int] = (128, 128),
        activation: Literal["tanh", "relu", "elu", "silu"] = "relu",
        normalize_observations: bool = False,
        memory: Literal["none", "gru", "lstm"] = "none",
        memory_size: int = 128,
        memory_span: int | None = None,
        dueling: bool = True,
        distributional: Literal["none", "c51", "quantile", "iqn"] = "c51",
        num_atoms: int = 51,
        v_min: float = -100.0,
        v_max: float = 100.0,
        num_quantiles: int = 32,
        noisy: bool = True,
        noisy_sigma: float = 0.5,
        rewards: Literal["environment", "rudder"] = "environment",
        redistribution_attribution: Literal["difference", "integrated_gradients"] = "difference",
        redistribution_points: int = 20,
        redistribution_max_error: float = 0.2,
        redistributor_size: int = 32,
        redistributor_learning_rate: float = 0.005,
        redistributor_interval: int = 25,
        redistributor_batch_size: int = 8,
        redistributor_lessons: int = 512,
        redistributor_chunk: int = 500,
        redistributor_max_steps: int = 10000,
        gamma: float = 0.99,
        learning_rate: float | str | Callable[[float], float] = 0.001,
        learning_rate_schedule: Literal["constant", "linear"] = "constant",
        batch_size: int = 64,
        buffer_size: int = 100000,
        learning_starts: int = 1000,
        updates_per_step: float = 0.5,
        ratio_slack: int | None = None,
        n_step: int = 3,
        publish_interval: int = 1,
        hindsight: Literal["future", "episode", "final"] | None = None,
        goals_per_step: int = 4,
        prioritized: bool = True,
        priority_alpha: float = 0.5,
        priority_beta: float = 0.4,
        priority_beta_final: float = 1.0,
        sequence_length: int = 20,
        burn_in: int = 10,
        sequence_overlap: int = 10,
        priority_eta: float = 0.9,
        optimizer: Literal["adam", "rmsprop"] = "adam",
        optimizer_eps: float = 1e-08,
        max_grad_norm: float | None = 10.0,
        double: bool = True,
        target_period: int = 100,
        rescale_values: bool = False,
        exploration: float = 1.0,
        exploration_final: float = 0.05,
        exploration_steps: int = 10000,
        seed: int = 0,
        total_steps: int = 1000000,
        max_seconds: float | None = None,
        target_return: float | None = None,
        eval_interval: int | float | Literal["continuous"] | None = None,
        eval_episodes: int = 20,
        eval_exploration: bool = False,
        eval_max_steps: int = 30000,
        checkpoint_interval: int | None = None,
        keep_checkpoints: int = 3,
        run_dir: str | os.PathLike[str] | None = "auto",
        save_replay: bool = False,
    ) -> None: ...

class ApeX(Face):
    """Trains with Ape-X DQN; settings are the fields of `penstock.algorithms.apex.ApeXConfig`.

    Parameters
    ----------
    env
        Gymnasium id, "EnvPool/Id", "module:Class", "file.py:Class"; in Python also a callable returning an environment,
        or a class.
    env_kwargs
        Keyword arguments for the environment.
    vectorize
        "make": one environment per lane; "vector": one vector environment per group of lanes.
    on_env_error
        An exception or NaN in an environment ends the run, or restarts its worker and is counted.
    reward_scale
        Rewards are multiplied by this for learning; reported returns stay true.
    reward_clip
        Scaled rewards are clipped to [-reward_clip, reward_clip] for learning; reported returns stay true.
    num_agents
        Agents of each environment, each of which is a lane; None: as many as the environment has.
    team_reward
        With several agents: each is rewarded with its own reward, or with the mean or the sum of its team's.
    num_policies
        So many policies of the same settings, which play the agents in turn; where an environment has one agent, each
        plays environments of its own.
    policies
        Policies by name, each with settings of its own; with several agents also with ``agents``, a pattern of those
        that it plays or several.
    policy_of
        Who plays what, instead: a function of the agent's name ("" where there is one) and the number of the
        environment in its worker that returns a policy's name; "module:function" or "file.py:function", in Python also
        itself.
    seats
        With several policies of several agents: each plays its own agents, or it is drawn before each game which agents
        each plays, as many as are its own.
    opponents
        With several agents: "past": in a share of the games guests, frozen past versions of the only policy, play all
        seats but one; with several policies one of them learns there, and past versions of each other policy play its
        agents. With several policies also the name of one: in a share of the games it is a guest, by its newest
        weights, and learns nothing there. "none": no guests play.
    opponent_pool
        Past versions of each policy that guests play.
    opponent_interval
        Steps between two versions that enter the pool; None: twenty in total_steps.
    opponent_share
        Share of the games in which guests play; in the others there are none.
    opponent_sampling
        How a version is drawn for a game: each with the same chance, or by (1 - win rate)^2 against it.
    eval_against
        With several agents: whom evaluations play: "random", "best", a class or function as "module:name" or
        "file.py:name", in Python also itself; with several policies also "others", the other policies. Empty: one
        policy plays all seats, several play each other.
    pbt
        Population-based training of the run's policies: now and then a bad one goes on as a copy of a better one, with
        settings a little different. "truncation" replaces the worst by one of the best, "tournament" whoever is worse
        than another drawn at random, "sample-factory" as "truncation", and changes settings of those between in place.
    pbt_space
        What may change: a TOML file with a table for each setting, as `penstock search` takes; in Python also the
        tables.
    pbt_interval
        Steps of each policy between two decisions about it; None: twenty in its share of total_steps.
    pbt_start
        Steps of each policy before the first decision about it; None: pbt_interval.
    pbt_fraction
        Share of the policies that counts as the worst, and as the best; None: 0.2, of "sample-factory" 0.3.
    pbt_metric
        What policies are ranked by: "return", the mean return of training episodes, or a name in info["metrics"].
    pbt_episodes
        Episodes that a policy needs since it was last replaced before it is ranked.
    schedule
        Tunable settings over the steps of the policy: lineage.jsonl of a population, or its directory, whose schedule
        is repeated; or {steps: {setting: value}}, on a command line as JSON. They win over the settings themselves.
    schedule_policy
        Whose schedule of the lineage it is; None: that of the policy with the best of the last scores.
    num_workers
        Rollout workers, with backend="ray" of each node; None: one per core, at most 16.
    num_envs_per_worker
        Environments per rollout worker.
    num_groups
        Groups of environments per worker that step in turn; None: 2 with central inference, 1 with local.
    inference
        Where actions are chosen: in each rollout worker, or in a policy worker that batches those of several.
    backend
        "local": one process per role; "serial": everything in this process, reproducible bit for bit; "ray": lanes are
        stepped by the nodes of a Ray cluster.
    address
        With backend="ray" the cluster: "auto", or the address of its head node; None: one of this machine, started for
        the run.
    nodes
        With backend="ray": how many nodes of the cluster step lanes, "all", or how many of those that have a custom
        resource of Ray's, by its name.
    evaluator
        With backend="ray": where evaluations play; "node": on the first node, which has a core for them beside its
        rollout workers'.
    num_learners
        Learners of the policy, a process each, on device="cuda" a GPU each; each computes a share of every update. With
        backend="local" and central inference each has a policy worker.
    learner_nodes
        With backend="ray": how many of these learners are on a node of their own, each on another, or how many on those
        that have a custom resource of Ray's, by its name; the first learner is at home.
    device
        Torch device of the learner and of central inference: "cpu", "cuda", "cuda:1", ...
    precision
        Arithmetic of the network's body (bfloat16 through autocast); heads, losses and weights stay float32. "auto":
        bfloat16 where the GPU or CPU that a role computes on is faster in it, else float32.
    encoder
        "mlp", "nature_cnn", "impala_resnet"; "auto": by observation; your nn.Module as "module:Class" or
        "file.py:Class", in Python also the class itself or a callable.
    hidden_sizes
        Widths of the hidden layers of mlp networks.
    activation
        Activation of mlp networks.
    normalize_observations
        Running normalisation of float observations; its statistics travel with the weights.
    memory
        Memory core behind the encoder; with one, sequences are replayed instead of transitions, as in R2D2.
    memory_size
        Width of the memory core.
    memory_span
        Steps that a new memory core reaches over before it has learned (chrono initialization, arXiv:1804.11188).
    dueling
        Dueling network (arXiv:1511.06581): a value and advantages instead of action values.
    distributional
        What is learned of returns beside their mean: "c51", probabilities of fixed returns (arXiv:1707.06887);
        "quantile", quantiles, QR-DQN (arXiv:1710.10044); "iqn", quantiles at drawn fractions (arXiv:1806.06923).
    num_atoms
        Returns that "c51" learns the probabilities of (arXiv:1707.06887, section 5).
    v_min
        Least of these returns; published, for clipped rewards: -10. With rescale_values, a rescaled return.
    v_max
        Largest of these returns; published, for clipped rewards: 10. With rescale_values, a rescaled return.
    num_quantiles
        Quantiles of "quantile" (published: 200), and fractions that "iqn" draws for a value, and for its target.
    noisy
        NoisyNets (arXiv:1706.10295): noise on the head's weights explores; then no action is drawn at random, whatever
        exploration says.
    noisy_sigma
        Where the size of this noise starts, sigma_0 (arXiv:1706.10295, section 3.2).
    rewards
        What is learned from: the environment's rewards, or "rudder": delayed ones are handed to the steps that earned
        them, as a network beside the policy finds out; reported returns stay true.
    redistribution_attribution
        What a step is credited with: the difference that it makes to the prediction, or integrated gradients.
    redistribution_points
        Points on the path of integrated gradients.
    redistribution_max_error
        Original rewards are used while predictions leave so much of the returns' variance unexplained.
    redistributor_size
        Memory cells of the network that predicts returns.
    redistributor_learning_rate
        Step size of its optimiser.
    redistributor_interval
        Steps of the run for each of its updates.
    redistributor_batch_size
        Episodes per update.
    redistributor_lessons
        Episodes that it learns from: those that it predicts worst are kept.
    redistributor_chunk
        Steps that its gradients go back over; longer episodes are cut into chunks that overlap by half.
    redistributor_max_steps
        Longer episodes are not learned from.
    gamma
        Discount per step.
    learning_rate
        Step size of the optimiser, or a function of progress: "module:name", "file.py:name", in Python itself.
    learning_rate_schedule
        "linear" decays a number to 0 over total_steps; a function says all by itself.
    batch_size
        Transitions per update, drawn from the replay buffer; with memory, sequences.
    buffer_size
        Transitions that the replay buffer keeps; the oldest is overwritten.
    learning_starts
        Steps before the first update; continuous actions are uniformly random until then.
    updates_per_step
        Updates for each step; published is one for every four.
    ratio_slack
        Updates that either side may be ahead; None: a few, with backend="serial" those due for one step of all lanes.
    n_step
        Steps of reward in a transition, fewer at the end of an episode (section 4.1).
    publish_interval
        Updates between two publications of the weights to those who act.
    hindsight
        Write ended episodes again as if goals that they achieved had been meant (arXiv:1707.01495): goals of the same
        or later steps, of any step, or of the last one. None: not.
    goals_per_step
        Achieved goals for each step, with hindsight="future" or "episode" (section 4.5: k).
    prioritized
        Prioritized replay (arXiv:1511.05952): transitions of large error are drawn more often.
    priority_alpha
        Exponent of the priorities: 0 uniform, 1 in proportion (arXiv:1511.05952, proportional variant).
    priority_beta
        Exponent of the importance weights at the start (arXiv:1511.05952).
    priority_beta_final
        Exponent of the importance weights at total_steps; not annealed here.
    sequence_length
        Steps of a sequence that are learned from; without memory of no effect, as all of sequences.
    burn_in
        Steps before these that only bring the stored memory state up to date: no loss, no gradient.
    sequence_overlap
        Steps that successive sequences of an episode share among those that are learned from.
    priority_eta
        Share of the largest error in a sequence's priority; the other share is of the mean error.
    optimizer
        "rmsprop": centred, decay 0.95, as published; "adam": as most codes today.
    optimizer_eps
        What the optimiser adds to the root of the mean square.
    max_grad_norm
        Gradients are scaled down to this global norm (arXiv:1511.06581); None: never.
    double
        Double DQN (arXiv:1509.06461): the online network chooses the action that the target network values.
    target_period
        Updates between two copies of the network to the target network.
    rescale_values
        Values are of rescaled returns, h(x) = sign(x) (sqrt(|x| + 1) - 1) + x / 1000 (arXiv:1805.11593).
    exploration
        Probability of a random action in the first lane (section 4.1).
    exploration_exponent
        Lane i of N explores with probability exploration ** (1 + exploration_exponent * i / (N - 1)) (section 4.1).
    seed
        Seeds weights, environments and exploration.
    total_steps
        Budget in steps; schedules run over it.
    max_seconds
        Budget in seconds of wall-clock time. A last evaluation may take a tenth of it more, and 10 s at least.
    target_return
        The run ends when the evaluator's mean return reaches this.
    eval_interval
        Steps between evaluations, or below 1 a fraction of total_steps; "continuous": one after the other, always of
        the newest weights; None: twenty in total_steps, or with a target_return at most a fifth of the time is spent on
        them (serial: after each batch); 0: never.
    eval_episodes
        Episodes per evaluation; of games, how many against each opponent, from each seat or by each policy.
    eval_exploration
        Evaluations sample their actions, or where none are sampled explore as at the end of training.
    eval_max_steps
        Steps after which an evaluation gives an episode up; what it has returned by then is shown as unfinished.
    checkpoint_interval
        Steps between checkpoints; None: ten in total_steps; 0: only at the end.
    keep_checkpoints
        Checkpoints kept besides the best.
    run_dir
        Where the run is written; "auto": runs/<env>-<algorithm>-<time>; None: nothing is written at all.
    save_replay
        Checkpoints hold the replay buffer too, as far as it changed since the last: learning waits meanwhile. A run
        resumed without it fills it again before it learns.
    """

    def __init__(
        self,
        env: str | Callable[..., Any] = ...,
        *,
        preset: str | os.PathLike[str] | None = None,
        env_kwargs: dict[str, Any] = ...,
        vectorize: Literal["make", "vector"] = "make",
        on_env_error: Literal["stop", "restart"] = "stop",
        reward_scale: float = 1.0,
        reward_clip: float | None = None,
        num_agents: int | None = None,
        team_reward: Literal["own", "mean", "sum"] = "own",
        num_policies: int = 1,
        policies: dict[str, dict[str, Any]] = ...,
        policy_of: str | Callable[..., Any] | None = None,
        seats: Literal["fixed", "shuffled"] = "fixed",
        opponents: str = "none",
        opponent_pool: int = 8,
        opponent_interval: int | None = None,
        opponent_share: float = 0.5,
        opponent_sampling: Literal["uniform", "hard"] = "uniform",
        eval_against: Sequence[str | Callable[..., Any]] = (),
        pbt: Literal["truncation", "tournament", "sample-factory"] | None = None,
        pbt_space: str | os.PathLike[str] | dict[str, Any] | None = None,
        pbt_interval: int | None = None,
        pbt_start: int | None = None,
        pbt_fraction: float | None = None,
        pbt_metric: str = "return",
        pbt_episodes: int = 10,
        schedule: str | os.PathLike[str] | dict[Any, Any] | None = None,
        schedule_policy: str | None = None,
        num_workers: int | None = None,
        num_envs_per_worker: int = 4,
        num_groups: int | None = None,
        inference: Literal["auto", "local", "central"] = "auto",
        backend: Literal["local", "serial", "ray"] = "local",
        address: str | None = None,
        nodes: int | Literal["all"] | dict[str, int] = 1,
        evaluator: Literal["home", "node"] = "home",
        num_learners: int = 1,
        learner_nodes: int | dict[str, int] = 0,
        device: str = "cpu",
        precision: Literal["auto", "float32", "bfloat16"] = "float32",
        encoder: str | Callable[..., Any] = "auto",
        hidden_sizes: Sequence[int] = (128, 128),
        activation: Literal["tanh", "relu", "elu", "silu"] = "relu",
        normalize_observations: bool = False,
        memory: Literal["none", "gru", "lstm"] = "none",
        memory_size: int = 128,
        memory_span: int | None = None,
        dueling: bool = True,
        distributional: Literal["none", "c51", "quantile", "iqn"] = "none",
        num_atoms: int = 51,
        v_min: float = -100.0,
        v_max: float = 100.0,
        num_quantiles: int = 32,
        noisy: bool = False,
        noisy_sigma: float = 0.5,
        rewards: Literal["environment", "rudder"] = "environment",
        redistribution_attribution: Literal["difference", "integrated_gradients"] = "difference",
        redistribution_points: int = 20,
        redistribution_max_error: float = 0.2,
        redistributor_size: int = 32,
        redistributor_learning_rate: float = 0.005,
        redistributor_interval: int = 25,
        redistributor_batch_size: int = 8,
        redistributor_lessons: int = 512,
        redistributor_chunk: int = 500,
        redistributor_max_steps: int = 10000,
        gamma: float = 0.99,
        learning_rate: float | str | Callable[[float], float] = 0.002,
        learning_rate_schedule: Literal["constant", "linear"] = "constant",
        batch_size: int = 64,
        buffer_size: int = 100000,
        learning_starts: int = 1000,
        updates_per_step: float = 0.5,
        ratio_slack: int | None = None,
        n_step: int = 3,
        publish_interval: int = 1,
        hindsight: Literal["future", "episode", "final"] | None = None,
        goals_per_step: int = 4,
        prioritized: bool = True,
        priority_alpha: float = 0.6,
        priority_beta: float = 0.4,
        priority_beta_final: float = 0.4,
        sequence_length: int = 20,
        burn_in: int = 10,
        sequence_overlap: int = 10,
        priority_eta: float = 0.9,
        optimizer: Literal["adam", "rmsprop"] = "adam",
        optimizer_eps: float = 1e-08,
        max_grad_norm: float | None = 10.0,
        double: bool = True,
        target_period: int = 100,
        rescale_values: bool = False,
        exploration: float = 0.4,
        exploration_exponent: float = 7.0,
        seed: int = 0,
        total_steps: int = 1000000,
        max_seconds: float | None = None,
        target_return: float | None = None,
        eval_interval: int | float | Literal["continuous"] | None = None,
        eval_episodes: int = 20,
        eval_exploration: bool = False,
        eval_max_steps: int = 30000,
        checkpoint_interval: int | None = None,
        keep_checkpoints: int = 3,
        run_dir: str | os.PathLike[str] | None = "auto",
        save_replay: bool = False,
    ) -> None: ...

class R2D2(Face):
    """Trains with R2D2, recurrent Ape-X; settings are the fields of `penstock.algorithms.r2d2.R2D2Config`.

    Parameters
    ----------
    env
        Gymnasium id, "EnvPool/Id", "module:Class", "file.py:Class"; in Python also a callable returning an environment,
        or a class.
    env_kwargs
        Keyword arguments for the environment.
    vectorize
        "make": one environment per lane; "vector": one vector environment per group of lanes.
    on_env_error
        An exception or NaN in an environment ends the run, or restarts its worker and is counted.
    reward_scale
        Rewards are multiplied by this for learning; reported returns stay true.
    reward_clip
        Scaled rewards are clipped to [-reward_clip, reward_clip] for learning; reported returns stay true.
    num_agents
        Agents of each environment, each of which is a lane; None: as many as the environment has.
    team_reward
        With several agents: each is rewarded with its own reward, or with the mean or the sum of its team's.
    num_policies
        So many policies of the same settings, which play the agents in turn; where an environment has one agent, each
        plays environments of its own.
    policies
        Policies by name, each with settings of its own; with several agents also with ``agents``, a pattern of those
        that it plays or several.
    policy_of
        Who plays what, instead: a function of the agent's name ("" where there is one) and the number of the
        environment in its worker that returns a policy's name; "module:function" or "file.py:function", in Python also
        itself.
    seats
        With several policies of several agents: each plays its own agents, or it is drawn before each game which agents
        each plays, as many as are its own.
    opponents
        With several agents: "past": in a share of the games guests, frozen past versions of the only policy, play all
        seats but one; with several policies one of them learns there, and past versions of each other policy play its
        agents. With several policies also the name of one: in a share of the games it is a guest, by its newest
        weights, and learns nothing there. "none": no guests play.
    opponent_pool
        Past versions of each policy that guests play.
    opponent_interval
        Steps between two versions that enter the pool; None: twenty in total_steps.
    opponent_share
        Share of the games in which guests play; in the others there are none.
    opponent_sampling
        How a version is drawn for a game: each with the same chance, or by (1 - win rate)^2 against it.
    eval_against
        With several agents: whom evaluations play: "random", "best", a class or function as "module:name" or
        "file.py:name", in Python also itself; with several policies also "others", the other policies. Empty: one
        policy plays all seats, several play each other.
    pbt
        Population-based training of the run's policies: now and then a bad one goes on as a copy of a better one, with
        settings a little different. "truncation" replaces the worst by one of the best, "tournament" whoever is worse
        than another drawn at random, "sample-factory" as "truncation", and changes settings of those between in place.
    pbt_space
        What may change: a TOML file with a table for each setting, as `penstock search` takes; in Python also the
        tables.
    pbt_interval
        Steps of each policy between two decisions about it; None: twenty in its share of total_steps.
    pbt_start
        Steps of each policy before the first decision about it; None: pbt_interval.
    pbt_fraction
        Share of the policies that counts as the worst, and as the best; None: 0.2, of "sample-factory" 0.3.
    pbt_metric
        What policies are ranked by: "return", the mean return of training episodes, or a name in info["metrics"].
    pbt_episodes
        Episodes that a policy needs since it was last replaced before it is ranked.
    schedule
        Tunable settings over the steps of the policy: lineage.jsonl of a population, or its directory, whose schedule
        is repeated; or {steps: {setting: value}}, on a command line as JSON. They win over the settings themselves.
    schedule_policy
        Whose schedule of the lineage it is; None: that of the policy with the best of the last scores.
    num_workers
        Rollout workers, with backend="ray" of each node; None: one per core, at most 16.
    num_envs_per_worker
        Environments per rollout worker.
    num_groups
        Groups of environments per worker that step in turn; None: 2 with central inference, 1 with local.
    inference
        Where actions are chosen: in each rollout worker, or in a policy worker that batches those of several.
    backend
        "local": one process per role; "serial": everything in this process, reproducible bit for bit; "ray": lanes are
        stepped by the nodes of a Ray cluster.
    address
        With backend="ray" the cluster: "auto", or the address of its head node; None: one of this machine, started for
        the run.
    nodes
        With backend="ray": how many nodes of the cluster step lanes, "all", or how many of those that have a custom
        resource of Ray's, by its name.
    evaluator
        With backend="ray": where evaluations play; "node": on the first node, which has a core for them beside its
        rollout workers'.
    num_learners
        Learners of the policy, a process each, on device="cuda" a GPU each; each computes a share of every update. With
        backend="local" and central inference each has a policy worker.
    learner_nodes
        With backend="ray": how many of these learners are on a node of their own, each on another, or how many on those
        that have a custom resource of Ray's, by its name; the first learner is at home.
    device
        Torch device of the learner and of central inference: "cpu", "cuda", "cuda:1", ...
    precision
        Arithmetic of the network's body (bfloat16 through autocast); heads, losses and weights stay float32. "auto":
        bfloat16 where the GPU or CPU that a role computes on is faster in it, else float32.
    encoder
        "mlp", "nature_cnn", "impala_resnet"; "auto": by observation; your nn.Module as "module:Class" or
        "file.py:Class", in Python also the class itself or a callable.
    hidden_sizes
        Widths of the hidden layers of mlp networks.
    activation
        Activation of mlp networks.
    normalize_observations
        Running normalisation of float observations; its statistics travel with the weights.
    memory
        Memory core behind the encoder.
    memory_size
        Width of the memory core.
    memory_span
        Steps that a new memory core reaches over before it has learned (chrono initialization, arXiv:1804.11188).
    dueling
        Dueling network (arXiv:1511.06581): a value and advantages instead of action values.
    distributional
        What is learned of returns beside their mean: "c51", probabilities of fixed returns (arXiv:1707.06887);
        "quantile", quantiles, QR-DQN (arXiv:1710.10044); "iqn", quantiles at drawn fractions (arXiv:1806.06923).
    num_atoms
        Returns that "c51" learns the probabilities of (arXiv:1707.06887, section 5).
    v_min
        Least of these returns; published, for clipped rewards: -10. With rescale_values, a rescaled return.
    v_max
        Largest of these returns; published, for clipped rewards: 10. With rescale_values, a rescaled return.
    num_quantiles
        Quantiles of "quantile" (published: 200), and fractions that "iqn" draws for a value, and for its target.
    noisy
        NoisyNets (arXiv:1706.10295): noise on the head's weights explores; then no action is drawn at random, whatever
        exploration says.
    noisy_sigma
        Where the size of this noise starts, sigma_0 (arXiv:1706.10295, section 3.2).
    rewards
        What is learned from: the environment's rewards, or "rudder": delayed ones are handed to the steps that earned
        them, as a network beside the policy finds out; reported returns stay true.
    redistribution_attribution
        What a step is credited with: the difference that it makes to the prediction, or integrated gradients.
    redistribution_points
        Points on the path of integrated gradients.
    redistribution_max_error
        Original rewards are used while predictions leave so much of the returns' variance unexplained.
    redistributor_size
        Memory cells of the network that predicts returns.
    redistributor_learning_rate
        Step size of its optimiser.
    redistributor_interval
        Steps of the run for each of its updates.
    redistributor_batch_size
        Episodes per update.
    redistributor_lessons
        Episodes that it learns from: those that it predicts worst are kept.
    redistributor_chunk
        Steps that its gradients go back over; longer episodes are cut into chunks that overlap by half.
    redistributor_max_steps
        Longer episodes are not learned from.
    gamma
        Discount per step (section 2.3: 0.997).
    learning_rate
        Step size of the optimiser, or a function of progress: "module:name", "file.py:name", in Python itself.
    learning_rate_schedule
        "linear" decays a number to 0 over total_steps; a function says all by itself.
    batch_size
        Sequences per update, drawn from the replay buffer.
    buffer_size
        Transitions that the replay buffer keeps; the oldest is overwritten.
    learning_starts
        Steps before the first update; continuous actions are uniformly random until then.
    updates_per_step
        Updates for each step: each learns from batch_size * sequence_length steps.
    ratio_slack
        Updates that either side may be ahead; None: a few, with backend="serial" those due for one step of all lanes.
    n_step
        Steps of reward in a target, fewer at the end of a sequence or an episode (section 2.3).
    publish_interval
        Updates between two publications of the weights to those who act.
    hindsight
        Write ended episodes again as if goals that they achieved had been meant (arXiv:1707.01495): goals of the same
        or later steps, of any step, or of the last one. None: not.
    goals_per_step
        Achieved goals for each step, with hindsight="future" or "episode" (section 4.5: k).
    prioritized
        Prioritized replay (arXiv:1511.05952): transitions of large error are drawn more often.
    priority_alpha
        Exponent of the priorities: 0 uniform, 1 in proportion (section 2.3).
    priority_beta
        Exponent of the importance weights at the start (section 2.3).
    priority_beta_final
        Exponent of the importance weights at total_steps; not annealed here.
    sequence_length
        Steps of a sequence that are learned from (section 2.3: 80).
    burn_in
        Steps before these that only bring the stored memory state up to date: no loss, no gradient (section 3: 40).
    sequence_overlap
        Steps that successive sequences of an episode share among those that are learned from (section 2.3: 40).
    priority_eta
        Share of the largest error in a sequence's priority; the other share is of the mean error.
    optimizer
        "rmsprop": centred, decay 0.95, as published; "adam": as most codes today.
    optimizer_eps
        What the optimiser adds to the root of the mean square.
    max_grad_norm
        Gradients are scaled down to this global norm; None: never.
    double
        Double DQN (arXiv:1509.06461): the online network chooses the action that the target network values.
    target_period
        Updates between two copies of the network to the target network.
    rescale_values
        Values are of rescaled returns, h(x) = sign(x) (sqrt(|x| + 1) - 1) + x / 1000 (section 2.3).
    exploration
        Probability of a random action in the first lane (section 4.1).
    exploration_exponent
        Lane i of N explores with probability exploration ** (1 + exploration_exponent * i / (N - 1)) (section 4.1).
    seed
        Seeds weights, environments and exploration.
    total_steps
        Budget in steps; schedules run over it.
    max_seconds
        Budget in seconds of wall-clock time. A last evaluation may take a tenth of it more, and 10 s at least.
    target_return
        The run ends when the evaluator's mean return reaches this.
    eval_interval
        Steps between evaluations, or below 1 a fraction of total_steps; "continuous": one after the other, always of
        the newest weights; None: twenty in total_steps, or with a target_return at most a fifth of the time is spent on
        them (serial: after each batch); 0: never.
    eval_episodes
        Episodes per evaluation; of games, how many against each opponent, from each seat or by each policy.
    eval_exploration
        Evaluations sample their actions, or where none are sampled explore as at the end of training.
    eval_max_steps
        Steps after which an evaluation gives an episode up; what it has returned by then is shown as unfinished.
    checkpoint_interval
        Steps between checkpoints; None: ten in total_steps; 0: only at the end.
    keep_checkpoints
        Checkpoints kept besides the best.
    run_dir
        Where the run is written; "auto": runs/<env>-<algorithm>-<time>; None: nothing is written at all.
    save_replay
        Checkpoints hold the replay buffer too, as far as it changed since the last: learning waits meanwhile. A run
        resumed without it fills it again before it learns.
    """

    def __init__(
        self,
        env: str | Callable[..., Any] = ...,
        *,
        preset: str | os.PathLike[str] | None = None,
        env_kwargs: dict[str, Any] = ...,
        vectorize: Literal["make", "vector"] = "make",
        on_env_error: Literal["stop", "restart"] = "stop",
        reward_scale: float = 1.0,
        reward_clip: float | None = None,
        num_agents: int | None = None,
        team_reward: Literal["own", "mean", "sum"] = "own",
        num_policies: int = 1,
        policies: dict[str, dict[str, Any]] = ...,
        policy_of: str | Callable[..., Any] | None = None,
        seats: Literal["fixed", "shuffled"] = "fixed",
        opponents: str = "none",
        opponent_pool: int = 8,
        opponent_interval: int | None = None,
        opponent_share: float = 0.5,
        opponent_sampling: Literal["uniform", "hard"] = "uniform",
        eval_against: Sequence[str | Callable[..., Any]] = (),
        pbt: Literal["truncation", "tournament", "sample-factory"] | None = None,
        pbt_space: str | os.PathLike[str] | dict[str, Any] | None = None,
        pbt_interval: int | None = None,
        pbt_start: int | None = None,
        pbt_fraction: float | None = None,
        pbt_metric: str = "return",
        pbt_episodes: int = 10,
        schedule: str | os.PathLike[str] | dict[Any, Any] | None = None,
        schedule_policy: str | None = None,
        num_workers: int | None = None,
        num_envs_per_worker: int = 4,
        num_groups: int | None = None,
        inference: Literal["auto", "local", "central"] = "auto",
        backend: Literal["local", "serial", "ray"] = "local",
        address: str | None = None,
        nodes: int | Literal["all"] | dict[str, int] = 1,
        evaluator: Literal["home", "node"] = "home",
        num_learners: int = 1,
        learner_nodes: int | dict[str, int] = 0,
        device: str = "cpu",
        precision: Literal["auto", "float32", "bfloat16"] = "float32",
        encoder: str | Callable[..., Any] = "auto",
        hidden_sizes: Sequence[int] = (64,),
        activation: Literal["tanh", "relu", "elu", "silu"] = "relu",
        normalize_observations: bool = False,
        memory: Literal["none", "gru", "lstm"] = "lstm",
        memory_size: int = 64,
        memory_span: int | None = None,
        dueling: bool = True,
        distributional: Literal["none", "c51", "quantile", "iqn"] = "none",
        num_atoms: int = 51,
        v_min: float = -100.0,
        v_max: float = 100.0,
        num_quantiles: int = 32,
        noisy: bool = False,
        noisy_sigma: float = 0.5,
        rewards: Literal["environment", "rudder"] = "environment",
        redistribution_attribution: Literal["difference", "integrated_gradients"] = "difference",
        redistribution_points: int = 20,
        redistribution_max_error: float = 0.2,
        redistributor_size: int = 32,
        redistributor_learning_rate: float = 0.005,
        redistributor_interval: int = 25,
        redistributor_batch_size: int = 8,
        redistributor_lessons: int = 512,
        redistributor_chunk: int = 500,
        redistributor_max_steps: int = 10000,
        gamma: float = 0.99,
        learning_rate: float | str | Callable[[float], float] = 0.001,
        learning_rate_schedule: Literal["constant", "linear"] = "linear",
        batch_size: int = 32,
        buffer_size: int = 100000,
        learning_starts: int = 1000,
        updates_per_step: float = 0.1,
        ratio_slack: int | None = None,
        n_step: int = 5,
        publish_interval: int = 1,
        hindsight: Literal["future", "episode", "final"] | None = None,
        goals_per_step: int = 4,
        prioritized: bool = True,
        priority_alpha: float = 0.9,
        priority_beta: float = 0.6,
        priority_beta_final: float = 0.6,
        sequence_length: int = 20,
        burn_in: int = 10,
        sequence_overlap: int = 10,
        priority_eta: float = 0.9,
        optimizer: Literal["adam", "rmsprop"] = "adam",
        optimizer_eps: float = 0.001,
        max_grad_norm: float | None = 40.0,
        double: bool = True,
        target_period: int = 100,
        rescale_values: bool = True,
        exploration: float = 0.4,
        exploration_exponent: float = 7.0,
        seed: int = 0,
        total_steps: int = 1000000,
        max_seconds: float | None = None,
        target_return: float | None = None,
        eval_interval: int | float | Literal["continuous"] | None = None,
        eval_episodes: int = 20,
        eval_exploration: bool = False,
        eval_max_steps: int = 30000,
        checkpoint_interval: int | None = None,
        keep_checkpoints: int = 3,
        run_dir: str | os.PathLike[str] | None = "auto",
        save_replay: bool = False,
    ) -> None: ...

class DDPG(Face):
    """Trains with DDPG, for continuous actions; settings are the fields of `penstock.algorithms.ddpg.DDPGConfig`.

    Parameters
    ----------
    env
        Gymnasium id, "EnvPool/Id", "module:Class", "file.py:Class"; in Python also a callable returning an environment,
        or a class.
    env_kwargs
        Keyword arguments for the environment.
    vectorize
        "make": one environment per lane; "vector": one vector environment per group of lanes.
    on_env_error
        An exception or NaN in an environment ends the run, or restarts its worker and is counted.
    reward_scale
        Rewards are multiplied by this for learning; reported returns stay true.
    reward_clip
        Scaled rewards are clipped to [-reward_clip, reward_clip] for learning; reported returns stay true.
    num_agents
        Agents of each environment, each of which is a lane; None: as many as the environment has.
    team_reward
        With several agents: each is rewarded with its own reward, or with the mean or the sum of its team's.
    num_policies
        So many policies of the same settings, which play the agents in turn; where an environment has one agent, each
        plays environments of its own.
    policies
        Policies by name, each with settings of its own; with several agents also with ``agents``, a pattern of those
        that it plays or several.
    policy_of
        Who plays what, instead: a function of the agent's name ("" where there is one) and the number of the
        environment in its worker that returns a policy's name; "module:function" or "file.py:function", in Python also
        itself.
    seats
        With several policies of several agents: each plays its own agents, or it is drawn before each game which agents
        each plays, as many as are its own.
    opponents
        With several agents: "past": in a share of the games guests, frozen past versions of the only policy, play all
        seats but one; with several policies one of them learns there, and past versions of each other policy play its
        agents. With several policies also the name of one: in a share of the games it is a guest, by its newest
        weights, and learns nothing there. "none": no guests play.
    opponent_pool
        Past versions of each policy that guests play.
    opponent_interval
        Steps between two versions that enter the pool; None: twenty in total_steps.
    opponent_share
        Share of the games in which guests play; in the others there are none.
    opponent_sampling
        How a version is drawn for a game: each with the same chance, or by (1 - win rate)^2 against it.
    eval_against
        With several agents: whom evaluations play: "random", "best", a class or function as "module:name" or
        "file.py:name", in Python also itself; with several policies also "others", the other policies. Empty: one
        policy plays all seats, several play each other.
    pbt
        Population-based training of the run's policies: now and then a bad one goes on as a copy of a better one, with
        settings a little different. "truncation" replaces the worst by one of the best, "tournament" whoever is worse
        than another drawn at random, "sample-factory" as "truncation", and changes settings of those between in place.
    pbt_space
        What may change: a TOML file with a table for each setting, as `penstock search` takes; in Python also the
        tables.
    pbt_interval
        Steps of each policy between two decisions about it; None: twenty in its share of total_steps.
    pbt_start
        Steps of each policy before the first decision about it; None: pbt_interval.
    pbt_fraction
        Share of the policies that counts as the worst, and as the best; None: 0.2, of "sample-factory" 0.3.
    pbt_metric
        What policies are ranked by: "return", the mean return of training episodes, or a name in info["metrics"].
    pbt_episodes
        Episodes that a policy needs since it was last replaced before it is ranked.
    schedule
        Tunable settings over the steps of the policy: lineage.jsonl of a population, or its directory, whose schedule
        is repeated; or {steps: {setting: value}}, on a command line as JSON. They win over the settings themselves.
    schedule_policy
        Whose schedule of the lineage it is; None: that of the policy with the best of the last scores.
    num_workers
        Rollout workers, with backend="ray" of each node; None: one per core, at most 16.
    num_envs_per_worker
        Environments per rollout worker.
    num_groups
        Groups of environments per worker that step in turn; None: 2 with central inference, 1 with local.
    inference
        Where actions are chosen: in each rollout worker, or in a policy worker that batches those of several.
    backend
        "local": one process per role; "serial": everything in this process, reproducible bit for bit; "ray": lanes are
        stepped by the nodes of a Ray cluster.
    address
        With backend="ray" the cluster: "auto", or the address of its head node; None: one of this machine, started for
        the run.
    nodes
        With backend="ray": how many nodes of the cluster step lanes, "all", or how many of those that have a custom
        resource of Ray's, by its name.
    evaluator
        With backend="ray": where evaluations play; "node": on the first node, which has a core for them beside its
        rollout workers'.
    num_learners
        Learners of the policy, a process each, on device="cuda" a GPU each; each computes a share of every update. With
        backend="local" and central inference each has a policy worker.
    learner_nodes
        With backend="ray": how many of these learners are on a node of their own, each on another, or how many on those
        that have a custom resource of Ray's, by its name; the first learner is at home.
    device
        Torch device of the learner and of central inference: "cpu", "cuda", "cuda:1", ...
    precision
        Arithmetic of the network's body (bfloat16 through autocast); heads, losses and weights stay float32. "auto":
        bfloat16 where the GPU or CPU that a role computes on is faster in it, else float32.
    encoder
        "mlp", "nature_cnn", "impala_resnet"; "auto": by observation; your nn.Module as "module:Class" or
        "file.py:Class", in Python also the class itself or a callable.
    hidden_sizes
        Widths of the hidden layers of mlp networks.
    activation
        Activation of mlp networks.
    normalize_observations
        Running normalisation of float observations; its statistics travel with the weights.
    rewards
        What is learned from: the environment's rewards, or "rudder": delayed ones are handed to the steps that earned
        them, as a network beside the policy finds out; reported returns stay true.
    redistribution_attribution
        What a step is credited with: the difference that it makes to the prediction, or integrated gradients.
    redistribution_points
        Points on the path of integrated gradients.
    redistribution_max_error
        Original rewards are used while predictions leave so much of the returns' variance unexplained.
    redistributor_size
        Memory cells of the network that predicts returns.
    redistributor_learning_rate
        Step size of its optimiser.
    redistributor_interval
        Steps of the run for each of its updates.
    redistributor_batch_size
        Episodes per update.
    redistributor_lessons
        Episodes that it learns from: those that it predicts worst are kept.
    redistributor_chunk
        Steps that its gradients go back over; longer episodes are cut into chunks that overlap by half.
    redistributor_max_steps
        Longer episodes are not learned from.
    gamma
        Discount per step.
    learning_rate
        Step size of the optimiser, or a function of progress: "module:name", "file.py:name", in Python itself.
    learning_rate_schedule
        "linear" decays a number to 0 over total_steps; a function says all by itself.
    batch_size
        Transitions per update, drawn from the replay buffer.
    buffer_size
        Transitions that the replay buffer keeps; the oldest is overwritten.
    learning_starts
        Steps before the first update; continuous actions are uniformly random until then.
    updates_per_step
        Updates for each step: the rate limiter holds back whichever of learner and rollout workers is ahead.
    ratio_slack
        Updates that either side may be ahead; None: a few, with backend="serial" those due for one step of all lanes.
    n_step
        Steps of reward in a transition, fewer at the end of an episode.
    publish_interval
        Updates between two publications of the weights to those who act.
    hindsight
        Write ended episodes again as if goals that they achieved had been meant (arXiv:1707.01495): goals of the same
        or later steps, of any step, or of the last one. None: not.
    goals_per_step
        Achieved goals for each step, with hindsight="future" or "episode" (section 4.5: k).
    prioritized
        Prioritized replay (arXiv:1511.05952): transitions of large error are drawn more often.
    priority_alpha
        Exponent of the priorities: 0 uniform, 1 in proportion (arXiv:1511.05952, proportional variant).
    priority_beta
        Exponent of the importance weights at the start (arXiv:1511.05952).
    priority_beta_final
        Exponent of the importance weights at total_steps (arXiv:1511.05952).
    actor_learning_rate
        Step size of the policy's optimiser, or a function of progress; None: learning_rate, as the critics'.
    tau
        How far the target networks move towards the online ones.
    exploration_noise
        Standard deviation of the noise on actions in [-1, 1] (as in CleanRL).
    seed
        Seeds weights, environments and exploration.
    total_steps
        Budget in steps; schedules run over it.
    max_seconds
        Budget in seconds of wall-clock time. A last evaluation may take a tenth of it more, and 10 s at least.
    target_return
        The run ends when the evaluator's mean return reaches this.
    eval_interval
        Steps between evaluations, or below 1 a fraction of total_steps; "continuous": one after the other, always of
        the newest weights; None: twenty in total_steps, or with a target_return at most a fifth of the time is spent on
        them (serial: after each batch); 0: never.
    eval_episodes
        Episodes per evaluation; of games, how many against each opponent, from each seat or by each policy.
    eval_exploration
        Evaluations sample their actions, or where none are sampled explore as at the end of training.
    eval_max_steps
        Steps after which an evaluation gives an episode up; what it has returned by then is shown as unfinished.
    checkpoint_interval
        Steps between checkpoints; None: ten in total_steps; 0: only at the end.
    keep_checkpoints
        Checkpoints kept besides the best.
    run_dir
        Where the run is written; "auto": runs/<env>-<algorithm>-<time>; None: nothing is written at all.
    save_replay
        Checkpoints hold the replay buffer too, as far as it changed since the last: learning waits meanwhile. A run
        resumed without it fills it again before it learns.
    """

    def __init__(
        self,
        env: str | Callable[..., Any] = ...,
        *,
        preset: str | os.PathLike[str] | None = None,
        env_kwargs: dict[str, Any] = ...,
        vectorize: Literal["make", "vector"] = "make",
        on_env_error: Literal["stop", "restart"] = "stop",
        reward_scale: float = 1.0,
        reward_clip: float | None = None,
        num_agents: int | None = None,
        team_reward: Literal["own", "mean", "sum"] = "own",
        num_policies: int = 1,
        policies: dict[str, dict[str, Any]] = ...,
        policy_of: str | Callable[..., Any] | None = None,
        seats: Literal["fixed", "shuffled"] = "fixed",
        opponents: str = "none",
        opponent_pool: int = 8,
        opponent_interval: int | None = None,
        opponent_share: float = 0.5,
        opponent_sampling: Literal["uniform", "hard"] = "uniform",
        eval_against: Sequence[str | Callable[..., Any]] = (),
        pbt: Literal["truncation", "tournament", "sample-factory"] | None = None,
        pbt_space: str | os.PathLike[str] | dict[str, Any] | None = None,
        pbt_interval: int | None = None,
        pbt_start: int | None = None,
        pbt_fraction: float | None = None,
        pbt_metric: str = "return",
        pbt_episodes: int = 10,
        schedule: str | os.PathLike[str] | dict[Any, Any] | None = None,
        schedule_policy: str | None = None,
        num_workers: int | None = None,
        num_envs_per_worker: int = 1,
        num_groups: int | None = None,
        inference: Literal["auto", "local", "central"] = "auto",
        backend: Literal["local", "serial", "ray"] = "local",
        address: str | None = None,
        nodes: int | Literal["all"] | dict[str, int] = 1,
        evaluator: Literal["home", "node"] = "home",
        num_learners: int = 1,
        learner_nodes: int | dict[str, int] = 0,
        device: str = "cpu",
        precision: Literal["auto", "float32", "bfloat16"] = "float32",
        encoder: str | Callable[..., Any] = "auto",
        hidden_sizes: Sequence[int] = (256, 256),
        activation: Literal["tanh", "relu", "elu", "silu"] = "relu",
        normalize_observations: bool = False,
        rewards: Literal["environment", "rudder"] = "environment",
        redistribution_attribution: Literal["difference", "integrated_gradients"] = "difference",
        redistribution_points: int = 20,
        redistribution_max_error: float = 0.2,
        redistributor_size: int = 32,
        redistributor_learning_rate: float = 0.005,
        redistributor_interval: int = 25,
        redistributor_batch_size: int = 8,
        redistributor_lessons: int = 512,
        redistributor_chunk: int = 500,
        redistributor_max_steps: int = 10000,
        gamma: float = 0.99,
        learning_rate: float | str | Callable[[float], float] = 0.0003,
        learning_rate_schedule: Literal["constant", "linear"] = "constant",
        batch_size: int = 256,
        buffer_size: int = 1000000,
        learning_starts: int = 1000,
        updates_per_step: float = 1.0,
        ratio_slack: int | None = None,
        n_step: int = 1,
        publish_interval: int = 1,
        hindsight: Literal["future", "episode", "final"] | None = None,
        goals_per_step: int = 4,
        prioritized: bool = False,
        priority_alpha: float = 0.6,
        priority_beta: float = 0.4,
        priority_beta_final: float = 1.0,
        actor_learning_rate: float | str | Callable[[float], float] | None = None,
        tau: float = 0.005,
        exploration_noise: float = 0.1,
        seed: int = 0,
        total_steps: int = 1000000,
        max_seconds: float | None = None,
        target_return: float | None = None,
        eval_interval: int | float | Literal["continuous"] | None = None,
        eval_episodes: int = 20,
        eval_exploration: bool = False,
        eval_max_steps: int = 30000,
        checkpoint_interval: int | None = None,
        keep_checkpoints: int = 3,
        run_dir: str | os.PathLike[str] | None = "auto",
        save_replay: bool = False,
    ) -> None: ...

class TD3(Face):
    """Trains with TD3, for continuous actions; settings are the fields of `penstock.algorithms.td3.TD3Config`.

    Parameters
    ----------
    env
        Gymnasium id, "EnvPool/Id", "module:Class", "file.py:Class"; in Python also a callable returning an environment,
        or a class.
    env_kwargs
        Keyword arguments for the environment.
    vectorize
        "make": one environment per lane; "vector": one vector environment per group of lanes.
    on_env_error
        An exception or NaN in an environment ends the run, or restarts its worker and is counted.
    reward_scale
        Rewards are multiplied by this for learning; reported returns stay true.
    reward_clip
        Scaled rewards are clipped to [-reward_clip, reward_clip] for learning; reported returns stay true.
    num_agents
        Agents of each environment, each of which is a lane; None: as many as the environment has.
    team_reward
        With several agents: each is rewarded with its own reward, or with the mean or the sum of its team's.
    num_policies
        So many policies of the same settings, which play the agents in turn; where an environment has one agent, each
        plays environments of its own.
    policies
        Policies by name, each with settings of its own; with several agents also with ``agents``, a pattern of those
        that it plays or several.
    policy_of
        Who plays what, instead: a function of the agent's name ("" where there is one) and the number of the
        environment in its worker that returns a policy's name; "module:function" or "file.py:function", in Python also
        itself.
    seats
        With several policies of several agents: each plays its own agents, or it is drawn before each game which agents
        each plays, as many as are its own.
    opponents
        With several agents: "past": in a share of the games guests, frozen past versions of the only policy, play all
        seats but one; with several policies one of them learns there, and past versions of each other policy play its
        agents. With several policies also the name of one: in a share of the games it is a guest, by its newest
        weights, and learns nothing there. "none": no guests play.
    opponent_pool
        Past versions of each policy that guests play.
    opponent_interval
        Steps between two versions that enter the pool; None: twenty in total_steps.
    opponent_share
        Share of the games in which guests play; in the others there are none.
    opponent_sampling
        How a version is drawn for a game: each with the same chance, or by (1 - win rate)^2 against it.
    eval_against
        With several agents: whom evaluations play: "random", "best", a class or function as "module:name" or
        "file.py:name", in Python also itself; with several policies also "others", the other policies. Empty: one
        policy plays all seats, several play each other.
    pbt
        Population-based training of the run's policies: now and then a bad one goes on as a copy of a better one, with
        settings a little different. "truncation" replaces the worst by one of the best, "tournament" whoever is worse
        than another drawn at random, "sample-factory" as "truncation", and changes settings of those between in place.
    pbt_space
        What may change: a TOML file with a table for each setting, as `penstock search` takes; in Python also the
        tables.
    pbt_interval
        Steps of each policy between two decisions about it; None: twenty in its share of total_steps.
    pbt_start
        Steps of each policy before the first decision about it; None: pbt_interval.
    pbt_fraction
        Share of the policies that counts as the worst, and as the best; None: 0.2, of "sample-factory" 0.3.
    pbt_metric
        What policies are ranked by: "return", the mean return of training episodes, or a name in info["metrics"].
    pbt_episodes
        Episodes that a policy needs since it was last replaced before it is ranked.
    schedule
        Tunable settings over the steps of the policy: lineage.jsonl of a population, or its directory, whose schedule
        is repeated; or {steps: {setting: value}}, on a command line as JSON. They win over the settings themselves.
    schedule_policy
        Whose schedule of the lineage it is; None: that of the policy with the best of the last scores.
    num_workers
        Rollout workers, with backend="ray" of each node; None: one per core, at most 16.
    num_envs_per_worker
        Environments per rollout worker.
    num_groups
        Groups of environments per worker that step in turn; None: 2 with central inference, 1 with local.
    inference
        Where actions are chosen: in each rollout worker, or in a policy worker that batches those of several.
    backend
        "local": one process per role; "serial": everything in this process, reproducible bit for bit; "ray": lanes are
        stepped by the nodes of a Ray cluster.
    address
        With backend="ray" the cluster: "auto", or the address of its head node; None: one of this machine, started for
        the run.
    nodes
        With backend="ray": how many nodes of the cluster step lanes, "all", or how many of those that have a custom
        resource of Ray's, by its name.
    evaluator
        With backend="ray": where evaluations play; "node": on the first node, which has a core for them beside its
        rollout workers'.
    num_learners
        Learners of the policy, a process each, on device="cuda" a GPU each; each computes a share of every update. With
        backend="local" and central inference each has a policy worker.
    learner_nodes
        With backend="ray": how many of these learners are on a node of their own, each on another, or how many on those
        that have a custom resource of Ray's, by its name; the first learner is at home.
    device
        Torch device of the learner and of central inference: "cpu", "cuda", "cuda:1", ...
    precision
        Arithmetic of the network's body (bfloat16 through autocast); heads, losses and weights stay float32. "auto":
        bfloat16 where the GPU or CPU that a role computes on is faster in it, else float32.
    encoder
        "mlp", "nature_cnn", "impala_resnet"; "auto": by observation; your nn.Module as "module:Class" or
        "file.py:Class", in Python also the class itself or a callable.
    hidden_sizes
        Widths of the hidden layers of mlp networks.
    activation
        Activation of mlp networks.
    normalize_observations
        Running normalisation of float observations; its statistics travel with the weights.
    rewards
        What is learned from: the environment's rewards, or "rudder": delayed ones are handed to the steps that earned
        them, as a network beside the policy finds out; reported returns stay true.
    redistribution_attribution
        What a step is credited with: the difference that it makes to the prediction, or integrated gradients.
    redistribution_points
        Points on the path of integrated gradients.
    redistribution_max_error
        Original rewards are used while predictions leave so much of the returns' variance unexplained.
    redistributor_size
        Memory cells of the network that predicts returns.
    redistributor_learning_rate
        Step size of its optimiser.
    redistributor_interval
        Steps of the run for each of its updates.
    redistributor_batch_size
        Episodes per update.
    redistributor_lessons
        Episodes that it learns from: those that it predicts worst are kept.
    redistributor_chunk
        Steps that its gradients go back over; longer episodes are cut into chunks that overlap by half.
    redistributor_max_steps
        Longer episodes are not learned from.
    gamma
        Discount per step.
    learning_rate
        Step size of the optimiser, or a function of progress: "module:name", "file.py:name", in Python itself.
    learning_rate_schedule
        "linear" decays a number to 0 over total_steps; a function says all by itself.
    batch_size
        Transitions per update, drawn from the replay buffer.
    buffer_size
        Transitions that the replay buffer keeps; the oldest is overwritten.
    learning_starts
        Steps before the first update; continuous actions are uniformly random until then.
    updates_per_step
        Updates for each step: the rate limiter holds back whichever of learner and rollout workers is ahead.
    ratio_slack
        Updates that either side may be ahead; None: a few, with backend="serial" those due for one step of all lanes.
    n_step
        Steps of reward in a transition, fewer at the end of an episode.
    publish_interval
        Updates between two publications of the weights to those who act.
    hindsight
        Write ended episodes again as if goals that they achieved had been meant (arXiv:1707.01495): goals of the same
        or later steps, of any step, or of the last one. None: not.
    goals_per_step
        Achieved goals for each step, with hindsight="future" or "episode" (section 4.5: k).
    prioritized
        Prioritized replay (arXiv:1511.05952): transitions of large error are drawn more often.
    priority_alpha
        Exponent of the priorities: 0 uniform, 1 in proportion (arXiv:1511.05952, proportional variant).
    priority_beta
        Exponent of the importance weights at the start (arXiv:1511.05952).
    priority_beta_final
        Exponent of the importance weights at total_steps (arXiv:1511.05952).
    actor_learning_rate
        Step size of the policy's optimiser, or a function of progress; None: learning_rate, as the critics'.
    tau
        How far the target networks move towards the online ones.
    exploration_noise
        Standard deviation of the noise on actions in [-1, 1] (section 6.1).
    target_noise
        Standard deviation of the noise that smooths the target policy (section 6.1).
    target_noise_clip
        Bound of that noise (section 6.1).
    policy_delay
        Updates of the critics for each of the policy and the targets (section 6.1).
    seed
        Seeds weights, environments and exploration.
    total_steps
        Budget in steps; schedules run over it.
    max_seconds
        Budget in seconds of wall-clock time. A last evaluation may take a tenth of it more, and 10 s at least.
    target_return
        The run ends when the evaluator's mean return reaches this.
    eval_interval
        Steps between evaluations, or below 1 a fraction of total_steps; "continuous": one after the other, always of
        the newest weights; None: twenty in total_steps, or with a target_return at most a fifth of the time is spent on
        them (serial: after each batch); 0: never.
    eval_episodes
        Episodes per evaluation; of games, how many against each opponent, from each seat or by each policy.
    eval_exploration
        Evaluations sample their actions, or where none are sampled explore as at the end of training.
    eval_max_steps
        Steps after which an evaluation gives an episode up; what it has returned by then is shown as unfinished.
    checkpoint_interval
        Steps between checkpoints; None: ten in total_steps; 0: only at the end.
    keep_checkpoints
        Checkpoints kept besides the best.
    run_dir
        Where the run is written; "auto": runs/<env>-<algorithm>-<time>; None: nothing is written at all.
    save_replay
        Checkpoints hold the replay buffer too, as far as it changed since the last: learning waits meanwhile. A run
        resumed without it fills it again before it learns.
    """

    def __init__(
        self,
        env: str | Callable[..., Any] = ...,
        *,
        preset: str | os.PathLike[str] | None = None,
        env_kwargs: dict[str, Any] = ...,
        vectorize: Literal["make", "vector"] = "make",
        on_env_error: Literal["stop", "restart"] = "stop",
        reward_scale: float = 1.0,
        reward_clip: float | None = None,
        num_agents: int | None = None,
        team_reward: Literal["own", "mean", "sum"] = "own",
        num_policies: int = 1,
        policies: dict[str, dict[str, Any]] = ...,
        policy_of: str | Callable[..., Any] | None = None,
        seats: Literal["fixed", "shuffled"] = "fixed",
        opponents: str = "none",
        opponent_pool: int = 8,
        opponent_interval: int | None = None,
        opponent_share: float = 0.5,
        opponent_sampling: Literal["uniform", "hard"] = "uniform",
        eval_against: Sequence[str | Callable[..., Any]] = (),
        pbt: Literal["truncation", "tournament", "sample-factory"] | None = None,
        pbt_space: str | os.PathLike[str] | dict[str, Any] | None = None,
        pbt_interval: int | None = None,
        pbt_start: int | None = None,
        pbt_fraction: float | None = None,
        pbt_metric: str = "return",
        pbt_episodes: int = 10,
        schedule: str | os.PathLike[str] | dict[Any, Any] | None = None,
        schedule_policy: str | None = None,
        num_workers: int | None = None,
        num_envs_per_worker: int = 1,
        num_groups: int | None = None,
        inference: Literal["auto", "local", "central"] = "auto",
        backend: Literal["local", "serial", "ray"] = "local",
        address: str | None = None,
        nodes: int | Literal["all"] | dict[str, int] = 1,
        evaluator: Literal["home", "node"] = "home",
        num_learners: int = 1,
        learner_nodes: int | dict[str, int] = 0,
        device: str = "cpu",
        precision: Literal["auto", "float32", "bfloat16"] = "float32",
        encoder: str | Callable[..., Any] = "auto",
        hidden_sizes: Sequence[int] = (256, 256),
        activation: Literal["tanh", "relu", "elu", "silu"] = "relu",
        normalize_observations: bool = False,
        rewards: Literal["environment", "rudder"] = "environment",
        redistribution_attribution: Literal["difference", "integrated_gradients"] = "difference",
        redistribution_points: int = 20,
        redistribution_max_error: float = 0.2,
        redistributor_size: int = 32,
        redistributor_learning_rate: float = 0.005,
        redistributor_interval: int = 25,
        redistributor_batch_size: int = 8,
        redistributor_lessons: int = 512,
        redistributor_chunk: int = 500,
        redistributor_max_steps: int = 10000,
        gamma: float = 0.99,
        learning_rate: float | str | Callable[[float], float] = 0.0003,
        learning_rate_schedule: Literal["constant", "linear"] = "constant",
        batch_size: int = 256,
        buffer_size: int = 1000000,
        learning_starts: int = 1000,
        updates_per_step: float = 1.0,
        ratio_slack: int | None = None,
        n_step: int = 1,
        publish_interval: int = 1,
        hindsight: Literal["future", "episode", "final"] | None = None,
        goals_per_step: int = 4,
        prioritized: bool = False,
        priority_alpha: float = 0.6,
        priority_beta: float = 0.4,
        priority_beta_final: float = 1.0,
        actor_learning_rate: float | str | Callable[[float], float] | None = None,
        tau: float = 0.005,
        exploration_noise: float = 0.1,
        target_noise: float = 0.2,
        target_noise_clip: float = 0.5,
        policy_delay: int = 2,
        seed: int = 0,
        total_steps: int = 1000000,
        max_seconds: float | None = None,
        target_return: float | None = None,
        eval_interval: int | float | Literal["continuous"] | None = None,
        eval_episodes: int = 20,
        eval_exploration: bool = False,
        eval_max_steps: int = 30000,
        checkpoint_interval: int | None = None,
        keep_checkpoints: int = 3,
        run_dir: str | os.PathLike[str] | None = "auto",
        save_replay: bool = False,
    ) -> None: ...

class SAC(Face):
    """Trains with SAC, for continuous actions; settings are the fields of `penstock.algorithms.sac.SACConfig`.

    Parameters
    ----------
    env
        Gymnasium id, "EnvPool/Id", "module:Class", "file.py:Class"; in Python also a callable returning an environment,
        or a class.
    env_kwargs
        Keyword arguments for the environment.
    vectorize
        "make": one environment per lane; "vector": one vector environment per group of lanes.
    on_env_error
        An exception or NaN in an environment ends the run, or restarts its worker and is counted.
    reward_scale
        Rewards are multiplied by this for learning; reported returns stay true.
    reward_clip
        Scaled rewards are clipped to [-reward_clip, reward_clip] for learning; reported returns stay true.
    num_agents
        Agents of each environment, each of which is a lane; None: as many as the environment has.
    team_reward
        With several agents: each is rewarded with its own reward, or with the mean or the sum of its team's.
    num_policies
        So many policies of the same settings, which play the agents in turn; where an environment has one agent, each
        plays environments of its own.
    policies
        Policies by name, each with settings of its own; with several agents also with ``agents``, a pattern of those
        that it plays or several.
    policy_of
        Who plays what, instead: a function of the agent's name ("" where there is one) and the number of the
        environment in its worker that returns a policy's name; "module:function" or "file.py:function", in Python also
        itself.
    seats
        With several policies of several agents: each plays its own agents, or it is drawn before each game which agents
        each plays, as many as are its own.
    opponents
        With several agents: "past": in a share of the games guests, frozen past versions of the only policy, play all
        seats but one; with several policies one of them learns there, and past versions of each other policy play its
        agents. With several policies also the name of one: in a share of the games it is a guest, by its newest
        weights, and learns nothing there. "none": no guests play.
    opponent_pool
        Past versions of each policy that guests play.
    opponent_interval
        Steps between two versions that enter the pool; None: twenty in total_steps.
    opponent_share
        Share of the games in which guests play; in the others there are none.
    opponent_sampling
        How a version is drawn for a game: each with the same chance, or by (1 - win rate)^2 against it.
    eval_against
        With several agents: whom evaluations play: "random", "best", a class or function as "module:name" or
        "file.py:name", in Python also itself; with several policies also "others", the other policies. Empty: one
        policy plays all seats, several play each other.
    pbt
        Population-based training of the run's policies: now and then a bad one goes on as a copy of a better one, with
        settings a little different. "truncation" replaces the worst by one of the best, "tournament" whoever is worse
        than another drawn at random, "sample-factory" as "truncation", and changes settings of those between in place.
    pbt_space
        What may change: a TOML file with a table for each setting, as `penstock search` takes; in Python also the
        tables.
    pbt_interval
        Steps of each policy between two decisions about it; None: twenty in its share of total_steps.
    pbt_start
        Steps of each policy before the first decision about it; None: pbt_interval.
    pbt_fraction
        Share of the policies that counts as the worst, and as the best; None: 0.2, of "sample-factory" 0.3.
    pbt_metric
        What policies are ranked by: "return", the mean return of training episodes, or a name in info["metrics"].
    pbt_episodes
        Episodes that a policy needs since it was last replaced before it is ranked.
    schedule
        Tunable settings over the steps of the policy: lineage.jsonl of a population, or its directory, whose schedule
        is repeated; or {steps: {setting: value}}, on a command line as JSON. They win over the settings themselves.
    schedule_policy
        Whose schedule of the lineage it is; None: that of the policy with the best of the last scores.
    num_workers
        Rollout workers, with backend="ray" of each node; None: one per core, at most 16.
    num_envs_per_worker
        Environments per rollout worker.
    num_groups
        Groups of environments per worker that step in turn; None: 2 with central inference, 1 with local.
    inference
        Where actions are chosen: in each rollout worker, or in a policy worker that batches those of several.
    backend
        "local": one process per role; "serial": everything in this process, reproducible bit for bit; "ray": lanes are
        stepped by the nodes of a Ray cluster.
    address
        With backend="ray" the cluster: "auto", or the address of its head node; None: one of this machine, started for
        the run.
    nodes
        With backend="ray": how many nodes of the cluster step lanes, "all", or how many of those that have a custom
        resource of Ray's, by its name.
    evaluator
        With backend="ray": where evaluations play; "node": on the first node, which has a core for them beside its
        rollout workers'.
    num_learners
        Learners of the policy, a process each, on device="cuda" a GPU each; each computes a share of every update. With
        backend="local" and central inference each has a policy worker.
    learner_nodes
        With backend="ray": how many of these learners are on a node of their own, each on another, or how many on those
        that have a custom resource of Ray's, by its name; the first learner is at home.
    device
        Torch device of the learner and of central inference: "cpu", "cuda", "cuda:1", ...
    precision
        Arithmetic of the network's body (bfloat16 through autocast); heads, losses and weights stay float32. "auto":
        bfloat16 where the GPU or CPU that a role computes on is faster in it, else float32.
    encoder
        "mlp", "nature_cnn", "impala_resnet"; "auto": by observation; your nn.Module as "module:Class" or
        "file.py:Class", in Python also the class itself or a callable.
    hidden_sizes
        Widths of the hidden layers of mlp networks.
    activation
        Activation of mlp networks.
    normalize_observations
        Running normalisation of float observations; its statistics travel with the weights.
    rewards
        What is learned from: the environment's rewards, or "rudder": delayed ones are handed to the steps that earned
        them, as a network beside the policy finds out; reported returns stay true.
    redistribution_attribution
        What a step is credited with: the difference that it makes to the prediction, or integrated gradients.
    redistribution_points
        Points on the path of integrated gradients.
    redistribution_max_error
        Original rewards are used while predictions leave so much of the returns' variance unexplained.
    redistributor_size
        Memory cells of the network that predicts returns.
    redistributor_learning_rate
        Step size of its optimiser.
    redistributor_interval
        Steps of the run for each of its updates.
    redistributor_batch_size
        Episodes per update.
    redistributor_lessons
        Episodes that it learns from: those that it predicts worst are kept.
    redistributor_chunk
        Steps that its gradients go back over; longer episodes are cut into chunks that overlap by half.
    redistributor_max_steps
        Longer episodes are not learned from.
    gamma
        Discount per step.
    learning_rate
        Step size of the optimiser, or a function of progress: "module:name", "file.py:name", in Python itself.
    learning_rate_schedule
        "linear" decays a number to 0 over total_steps; a function says all by itself.
    batch_size
        Transitions per update, drawn from the replay buffer.
    buffer_size
        Transitions that the replay buffer keeps; the oldest is overwritten.
    learning_starts
        Steps before the first update; continuous actions are uniformly random until then.
    updates_per_step
        Updates for each step: the rate limiter holds back whichever of learner and rollout workers is ahead.
    ratio_slack
        Updates that either side may be ahead; None: a few, with backend="serial" those due for one step of all lanes.
    n_step
        Steps of reward in a transition, fewer at the end of an episode.
    publish_interval
        Updates between two publications of the weights to those who act.
    hindsight
        Write ended episodes again as if goals that they achieved had been meant (arXiv:1707.01495): goals of the same
        or later steps, of any step, or of the last one. None: not.
    goals_per_step
        Achieved goals for each step, with hindsight="future" or "episode" (section 4.5: k).
    prioritized
        Prioritized replay (arXiv:1511.05952): transitions of large error are drawn more often.
    priority_alpha
        Exponent of the priorities: 0 uniform, 1 in proportion (arXiv:1511.05952, proportional variant).
    priority_beta
        Exponent of the importance weights at the start (arXiv:1511.05952).
    priority_beta_final
        Exponent of the importance weights at total_steps (arXiv:1511.05952).
    actor_learning_rate
        Step size of the policy's optimiser, or a function of progress; None: learning_rate, as the critics'.
    tau
        How far the target networks move towards the online ones.
    alpha
        Temperature, fixed; None: learned.
    initial_alpha
        Where a learned temperature starts.
    target_entropy
        Entropy that a learned temperature aims at, of actions in [-1, 1]; None: minus their number (appendix D).
    seed
        Seeds weights, environments and exploration.
    total_steps
        Budget in steps; schedules run over it.
    max_seconds
        Budget in seconds of wall-clock time. A last evaluation may take a tenth of it more, and 10 s at least.
    target_return
        The run ends when the evaluator's mean return reaches this.
    eval_interval
        Steps between evaluations, or below 1 a fraction of total_steps; "continuous": one after the other, always of
        the newest weights; None: twenty in total_steps, or with a target_return at most a fifth of the time is spent on
        them (serial: after each batch); 0: never.
    eval_episodes
        Episodes per evaluation; of games, how many against each opponent, from each seat or by each policy.
    eval_exploration
        Evaluations sample their actions, or where none are sampled explore as at the end of training.
    eval_max_steps
        Steps after which an evaluation gives an episode up; what it has returned by then is shown as unfinished.
    checkpoint_interval
        Steps between checkpoints; None: ten in total_steps; 0: only at the end.
    keep_checkpoints
        Checkpoints kept besides the best.
    run_dir
        Where the run is written; "auto": runs/<env>-<algorithm>-<time>; None: nothing is written at all.
    save_replay
        Checkpoints hold the replay buffer too, as far as it changed since the last: learning waits meanwhile. A run
        resumed without it fills it again before it learns.
    """

    def __init__(
        self,
        env: str | Callable[..., Any] = ...,
        *,
        preset: str | os.PathLike[str] | None = None,
        env_kwargs: dict[str, Any] = ...,
        vectorize: Literal["make", "vector"] = "make",
        on_env_error: Literal["stop", "restart"] = "stop",
        reward_scale: float = 1.0,
        reward_clip: float | None = None,
        num_agents: int | None = None,
        team_reward: Literal["own", "mean", "sum"] = "own",
        num_policies: int = 1,
        policies: dict[str, dict[str, Any]] = ...,
        policy_of: str | Callable[..., Any] | None = None,
        seats: Literal["fixed", "shuffled"] = "fixed",
        opponents: str = "none",
        opponent_pool: int = 8,
        opponent_interval: int | None = None,
        opponent_share: float = 0.5,
        opponent_sampling: Literal["uniform", "hard"] = "uniform",
        eval_against: Sequence[str | Callable[..., Any]] = (),
        pbt: Literal["truncation", "tournament", "sample-factory"] | None = None,
        pbt_space: str | os.PathLike[str] | dict[str, Any] | None = None,
        pbt_interval: int | None = None,
        pbt_start: int | None = None,
        pbt_fraction: float | None = None,
        pbt_metric: str = "return",
        pbt_episodes: int = 10,
        schedule: str | os.PathLike[str] | dict[Any, Any] | None = None,
        schedule_policy: str | None = None,
        num_workers: int | None = None,
        num_envs_per_worker: int = 1,
        num_groups: int | None = None,
        inference: Literal["auto", "local", "central"] = "auto",
        backend: Literal["local", "serial", "ray"] = "local",
        address: str | None = None,
        nodes: int | Literal["all"] | dict[str, int] = 1,
        evaluator: Literal["home", "node"] = "home",
        num_learners: int = 1,
        learner_nodes: int | dict[str, int] = 0,
        device: str = "cpu",
        precision: Literal["auto", "float32", "bfloat16"] = "float32",
        encoder: str | Callable[..., Any] = "auto",
        hidden_sizes: Sequence[int] = (256, 256),
        activation: Literal["tanh", "relu", "elu", "silu"] = "relu",
        normalize_observations: bool = False,
        rewards: Literal["environment", "rudder"] = "environment",
        redistribution_attribution: Literal["difference", "integrated_gradients"] = "difference",
        redistribution_points: int = 20,
        redistribution_max_error: float = 0.2,
        redistributor_size: int = 32,
        redistributor_learning_rate: float = 0.005,
        redistributor_interval: int = 25,
        redistributor_batch_size: int = 8,
        redistributor_lessons: int = 512,
        redistributor_chunk: int = 500,
        redistributor_max_steps: int = 10000,
        gamma: float = 0.99,
        learning_rate: float | str | Callable[[float], float] = 0.0003,
        learning_rate_schedule: Literal["constant", "linear"] = "constant",
        batch_size: int = 256,
        buffer_size: int = 1000000,
        learning_starts: int = 1000,
        updates_per_step: float = 1.0,
        ratio_slack: int | None = None,
        n_step: int = 1,
        publish_interval: int = 1,
        hindsight: Literal["future", "episode", "final"] | None = None,
        goals_per_step: int = 4,
        prioritized: bool = False,
        priority_alpha: float = 0.6,
        priority_beta: float = 0.4,
        priority_beta_final: float = 1.0,
        actor_learning_rate: float | str | Callable[[float], float] | None = None,
        tau: float = 0.005,
        alpha: float | None = None,
        initial_alpha: float = 1.0,
        target_entropy: float | None = None,
        seed: int = 0,
        total_steps: int = 1000000,
        max_seconds: float | None = None,
        target_return: float | None = None,
        eval_interval: int | float | Literal["continuous"] | None = None,
        eval_episodes: int = 20,
        eval_exploration: bool = False,
        eval_max_steps: int = 30000,
        checkpoint_interval: int | None = None,
        keep_checkpoints: int = 3,
        run_dir: str | os.PathLike[str] | None = "auto",
        save_replay: bool = False,
    ) -> None: ...

class TQC(Face):
    """Trains with TQC, SAC with quantile critics; settings are the fields of `penstock.algorithms.tqc.TQCConfig`.

    Parameters
    ----------
    env
        Gymnasium id, "EnvPool/Id", "module:Class", "file.py:Class"; in Python also a callable returning an environment,
        or a class.
    env_kwargs
        Keyword arguments for the environment.
    vectorize
        "make": one environment per lane; "vector": one vector environment per group of lanes.
    on_env_error
        An exception or NaN in an environment ends the run, or restarts its worker and is counted.
    reward_scale
        Rewards are multiplied by this for learning; reported returns stay true.
    reward_clip
        Scaled rewards are clipped to [-reward_clip, reward_clip] for learning; reported returns stay true.
    num_agents
        Agents of each environment, each of which is a lane; None: as many as the environment has.
    team_reward
        With several agents: each is rewarded with its own reward, or with the mean or the sum of its team's.
    num_policies
        So many policies of the same settings, which play the agents in turn; where an environment has one agent, each
        plays environments of its own.
    policies
        Policies by name, each with settings of its own; with several agents also with ``agents``, a pattern of those
        that it plays or several.
    policy_of
        Who plays what, instead: a function of the agent's name ("" where there is one) and the number of the
        environment in its worker that returns a policy's name; "module:function" or "file.py:function", in Python also
        itself.
    seats
        With several policies of several agents: each plays its own agents, or it is drawn before each game which agents
        each plays, as many as are its own.
    opponents
        With several agents: "past": in a share of the games guests, frozen past versions of the only policy, play all
        seats but one; with several policies one of them learns there, and past versions of each other policy play its
        agents. With several policies also the name of one: in a share of the games it is a guest, by its newest
        weights, and learns nothing there. "none": no guests play.
    opponent_pool
        Past versions of each policy that guests play.
    opponent_interval
        Steps between two versions that enter the pool; None: twenty in total_steps.
    opponent_share
        Share of the games in which guests play; in the others there are none.
    opponent_sampling
        How a version is drawn for a game: each with the same chance, or by (1 - win rate)^2 against it.
    eval_against
        With several agents: whom evaluations play: "random", "best", a class or function as "module:name" or
        "file.py:name", in Python also itself; with several policies also "others", the other policies. Empty: one
        policy plays all seats, several play each other.
    pbt
        Population-based training of the run's policies: now and then a bad one goes on as a copy of a better one, with
        settings a little different. "truncation" replaces the worst by one of the best, "tournament" whoever is worse
        than another drawn at random, "sample-factory" as "truncation", and changes settings of those between in place.
    pbt_space
        What may change: a TOML file with a table for each setting, as `penstock search` takes; in Python also the
        tables.
    pbt_interval
        Steps of each policy between two decisions about it; None: twenty in its share of total_steps.
    pbt_start
        Steps of each policy before the first decision about it; None: pbt_interval.
    pbt_fraction
        Share of the policies that counts as the worst, and as the best; None: 0.2, of "sample-factory" 0.3.
    pbt_metric
        What policies are ranked by: "return", the mean return of training episodes, or a name in info["metrics"].
    pbt_episodes
        Episodes that a policy needs since it was last replaced before it is ranked.
    schedule
        Tunable settings over the steps of the policy: lineage.jsonl of a population, or its directory, whose schedule
        is repeated; or {steps: {setting: value}}, on a command line as JSON. They win over the settings themselves.
    schedule_policy
        Whose schedule of the lineage it is; None: that of the policy with the best of the last scores.
    num_workers
        Rollout workers, with backend="ray" of each node; None: one per core, at most 16.
    num_envs_per_worker
        Environments per rollout worker.
    num_groups
        Groups of environments per worker that step in turn; None: 2 with central inference, 1 with local.
    inference
        Where actions are chosen: in each rollout worker, or in a policy worker that batches those of several.
    backend
        "local": one process per role; "serial": everything in this process, reproducible bit for bit; "ray": lanes are
        stepped by the nodes of a Ray cluster.
    address
        With backend="ray" the cluster: "auto", or the address of its head node; None: one of this machine, started for
        the run.
    nodes
        With backend="ray": how many nodes of the cluster step lanes, "all", or how many of those that have a custom
        resource of Ray's, by its name.
    evaluator
        With backend="ray": where evaluations play; "node": on the first node, which has a core for them beside its
        rollout workers'.
    num_learners
        Learners of the policy, a process each, on device="cuda" a GPU each; each computes a share of every update. With
        backend="local" and central inference each has a policy worker.
    learner_nodes
        With backend="ray": how many of these learners are on a node of their own, each on another, or how many on those
        that have a custom resource of Ray's, by its name; the first learner is at home.
    device
        Torch device of the learner and of central inference: "cpu", "cuda", "cuda:1", ...
    precision
        Arithmetic of the network's body (bfloat16 through autocast); heads, losses and weights stay float32. "auto":
        bfloat16 where the GPU or CPU that a role computes on is faster in it, else float32.
    encoder
        "mlp", "nature_cnn", "impala_resnet"; "auto": by observation; your nn.Module as "module:Class" or
        "file.py:Class", in Python also the class itself or a callable.
    hidden_sizes
        Widths of the hidden layers of mlp networks.
    activation
        Activation of mlp networks.
    normalize_observations
        Running normalisation of float observations; its statistics travel with the weights.
    num_quantiles
        Quantiles by which each critic describes the return (M).
    rewards
        What is learned from: the environment's rewards, or "rudder": delayed ones are handed to the steps that earned
        them, as a network beside the policy finds out; reported returns stay true.
    redistribution_attribution
        What a step is credited with: the difference that it makes to the prediction, or integrated gradients.
    redistribution_points
        Points on the path of integrated gradients.
    redistribution_max_error
        Original rewards are used while predictions leave so much of the returns' variance unexplained.
    redistributor_size
        Memory cells of the network that predicts returns.
    redistributor_learning_rate
        Step size of its optimiser.
    redistributor_interval
        Steps of the run for each of its updates.
    redistributor_batch_size
        Episodes per update.
    redistributor_lessons
        Episodes that it learns from: those that it predicts worst are kept.
    redistributor_chunk
        Steps that its gradients go back over; longer episodes are cut into chunks that overlap by half.
    redistributor_max_steps
        Longer episodes are not learned from.
    gamma
        Discount per step.
    learning_rate
        Step size of the optimiser, or a function of progress: "module:name", "file.py:name", in Python itself.
    learning_rate_schedule
        "linear" decays a number to 0 over total_steps; a function says all by itself.
    batch_size
        Transitions per update, drawn from the replay buffer.
    buffer_size
        Transitions that the replay buffer keeps; the oldest is overwritten.
    learning_starts
        Steps before the first update; continuous actions are uniformly random until then.
    updates_per_step
        Updates for each step: the rate limiter holds back whichever of learner and rollout workers is ahead.
    ratio_slack
        Updates that either side may be ahead; None: a few, with backend="serial" those due for one step of all lanes.
    n_step
        Steps of reward in a transition, fewer at the end of an episode.
    publish_interval
        Updates between two publications of the weights to those who act.
    hindsight
        Write ended episodes again as if goals that they achieved had been meant (arXiv:1707.01495): goals of the same
        or later steps, of any step, or of the last one. None: not.
    goals_per_step
        Achieved goals for each step, with hindsight="future" or "episode" (section 4.5: k).
    prioritized
        Prioritized replay (arXiv:1511.05952): transitions of large error are drawn more often.
    priority_alpha
        Exponent of the priorities: 0 uniform, 1 in proportion (arXiv:1511.05952, proportional variant).
    priority_beta
        Exponent of the importance weights at the start (arXiv:1511.05952).
    priority_beta_final
        Exponent of the importance weights at total_steps (arXiv:1511.05952).
    actor_learning_rate
        Step size of the policy's optimiser, or a function of progress; None: learning_rate, as the critics'.
    tau
        How far the target networks move towards the online ones.
    alpha
        Temperature, fixed; None: learned.
    initial_alpha
        Where a learned temperature starts.
    target_entropy
        Entropy that a learned temperature aims at, of actions in [-1, 1]; None: minus their number (appendix D).
    num_critics
        Critics (N).
    dropped_quantiles
        Atoms that are left out of the targets, for each critic: the more, the more cautious (d). Published are 2 for
        most tasks, 0 for HalfCheetah and 5 for Hopper.
    seed
        Seeds weights, environments and exploration.
    total_steps
        Budget in steps; schedules run over it.
    max_seconds
        Budget in seconds of wall-clock time. A last evaluation may take a tenth of it more, and 10 s at least.
    target_return
        The run ends when the evaluator's mean return reaches this.
    eval_interval
        Steps between evaluations, or below 1 a fraction of total_steps; "continuous": one after the other, always of
        the newest weights; None: twenty in total_steps, or with a target_return at most a fifth of the time is spent on
        them (serial: after each batch); 0: never.
    eval_episodes
        Episodes per evaluation; of games, how many against each opponent, from each seat or by each policy.
    eval_exploration
        Evaluations sample their actions, or where none are sampled explore as at the end of training.
    eval_max_steps
        Steps after which an evaluation gives an episode up; what it has returned by then is shown as unfinished.
    checkpoint_interval
        Steps between checkpoints; None: ten in total_steps; 0: only at the end.
    keep_checkpoints
        Checkpoints kept besides the best.
    run_dir
        Where the run is written; "auto": runs/<env>-<algorithm>-<time>; None: nothing is written at all.
    save_replay
        Checkpoints hold the replay buffer too, as far as it changed since the last: learning waits meanwhile. A run
        resumed without it fills it again before it learns.
    """

    def __init__(
        self,
        env: str | Callable[..., Any] = ...,
        *,
        preset: str | os.PathLike[str] | None = None,
        env_kwargs: dict[str, Any] = ...,
        vectorize: Literal["make", "vector"] = "make",
        on_env_error: Literal["stop", "restart"] = "stop",
        reward_scale: float = 1.0,
        reward_clip: float | None = None,
        num_agents: int | None = None,
        team_reward: Literal["own", "mean", "sum"] = "own",
        num_policies: int = 1,
        policies: dict[str, dict[str, Any]] = ...,
        policy_of: str | Callable[..., Any] | None = None,
        seats: Literal["fixed", "shuffled"] = "fixed",
        opponents: str = "none",
        opponent_pool: int = 8,
        opponent_interval: int | None = None,
        opponent_share: float = 0.5,
        opponent_sampling: Literal["uniform", "hard"] = "uniform",
        eval_against: Sequence[str | Callable[..., Any]] = (),
        pbt: Literal["truncation", "tournament", "sample-factory"] | None = None,
        pbt_space: str | os.PathLike[str] | dict[str, Any] | None = None,
        pbt_interval: int | None = None,
        pbt_start: int | None = None,
        pbt_fraction: float | None = None,
        pbt_metric: str = "return",
        pbt_episodes: int = 10,
        schedule: str | os.PathLike[str] | dict[Any, Any] | None = None,
        schedule_policy: str | None = None,
        num_workers: int | None = None,
        num_envs_per_worker: int = 1,
        num_groups: int | None = None,
        inference: Literal["auto", "local", "central"] = "auto",
        backend: Literal["local", "serial", "ray"] = "local",
        address: str | None = None,
        nodes: int | Literal["all"] | dict[str, int] = 1,
        evaluator: Literal["home", "node"] = "home",
        num_learners: int = 1,
        learner_nodes: int | dict[str, int] = 0,
        device: str = "cpu",
        precision: Literal["auto", "float32", "bfloat16"] = "float32",
        encoder: str | Callable[..., Any] = "auto",
        hidden_sizes: Sequence[int] = (256, 256),
        activation: Literal["tanh", "relu", "elu", "silu"] = "relu",
        normalize_observations: bool = False,
        num_quantiles: int = 25,
        rewards: Literal["environment", "rudder"] = "environment",
        redistribution_attribution: Literal["difference", "integrated_gradients"] = "difference",
        redistribution_points: int = 20,
        redistribution_max_error: float = 0.2,
        redistributor_size: int = 32,
        redistributor_learning_rate: float = 0.005,
        redistributor_interval: int = 25,
        redistributor_batch_size: int = 8,
        redistributor_lessons: int = 512,
        redistributor_chunk: int = 500,
        redistributor_max_steps: int = 10000,
        gamma: float = 0.99,
        learning_rate: float | str | Callable[[float], float] = 0.0003,
        learning_rate_schedule: Literal["constant", "linear"] = "constant",
        batch_size: int = 256,
        buffer_size: int = 1000000,
        learning_starts: int = 1000,
        updates_per_step: float = 1.0,
        ratio_slack: int | None = None,
        n_step: int = 1,
        publish_interval: int = 1,
        hindsight: Literal["future", "episode", "final"] | None = None,
        goals_per_step: int = 4,
        prioritized: bool = False,
        priority_alpha: float = 0.6,
        priority_beta: float = 0.4,
        priority_beta_final: float = 1.0,
        actor_learning_rate: float | str | Callable[[float], float] | None = None,
        tau: float = 0.005,
        alpha: float | None = None,
        initial_alpha: float = 1.0,
        target_entropy: float | None = None,
        num_critics: int = 5,
        dropped_quantiles: int = 2,
        seed: int = 0,
        total_steps: int = 1000000,
        max_seconds: float | None = None,
        target_return: float | None = None,
        eval_interval: int | float | Literal["continuous"] | None = None,
        eval_episodes: int = 20,
        eval_exploration: bool = False,
        eval_max_steps: int = 30000,
        checkpoint_interval: int | None = None,
        keep_checkpoints: int = 3,
        run_dir: str | os.PathLike[str] | None = "auto",
        save_replay: bool = False,
    ) -> None: ...

class CrossQ(Face):
    """Trains with CrossQ, SAC without targets; settings are the fields of `penstock.algorithms.crossq.CrossQConfig`.

    Parameters
    ----------
    env
        Gymnasium id, "EnvPool/Id", "module:Class", "file.py:Class"; in Python also a callable returning an environment,
        or a class.
    env_kwargs
        Keyword arguments for the environment.
    vectorize
        "make": one environment per lane; "vector": one vector environment per group of lanes.
    on_env_error
        An exception or NaN in an environment ends the run, or restarts its worker and is counted.
    reward_scale
        Rewards are multiplied by this for learning; reported returns stay true.
    reward_clip
        Scaled rewards are clipped to [-reward_clip, reward_clip] for learning; reported returns stay true.
    num_agents
        Agents of each environment, each of which is a lane; None: as many as the environment has.
    team_reward
        With several agents: each is rewarded with its own reward, or with the mean or the sum of its team's.
    num_policies
        So many policies of the same settings, which play the agents in turn; where an environment has one agent, each
        plays environments of its own.
    policies
        Policies by name, each with settings of its own; with several agents also with ``agents``, a pattern of those
        that it plays or several.
    policy_of
        Who plays what, instead: a function of the agent's name ("" where there is one) and the number of the
        environment in its worker that returns a policy's name; "module:function" or "file.py:function", in Python also
        itself.
    seats
        With several policies of several agents: each plays its own agents, or it is drawn before each game which agents
        each plays, as many as are its own.
    opponents
        With several agents: "past": in a share of the games guests, frozen past versions of the only policy, play all
        seats but one; with several policies one of them learns there, and past versions of each other policy play its
        agents. With several policies also the name of one: in a share of the games it is a guest, by its newest
        weights, and learns nothing there. "none": no guests play.
    opponent_pool
        Past versions of each policy that guests play.
    opponent_interval
        Steps between two versions that enter the pool; None: twenty in total_steps.
    opponent_share
        Share of the games in which guests play; in the others there are none.
    opponent_sampling
        How a version is drawn for a game: each with the same chance, or by (1 - win rate)^2 against it.
    eval_against
        With several agents: whom evaluations play: "random", "best", a class or function as "module:name" or
        "file.py:name", in Python also itself; with several policies also "others", the other policies. Empty: one
        policy plays all seats, several play each other.
    pbt
        Population-based training of the run's policies: now and then a bad one goes on as a copy of a better one, with
        settings a little different. "truncation" replaces the worst by one of the best, "tournament" whoever is worse
        than another drawn at random, "sample-factory" as "truncation", and changes settings of those between in place.
    pbt_space
        What may change: a TOML file with a table for each setting, as `penstock search` takes; in Python also the
        tables.
    pbt_interval
        Steps of each policy between two decisions about it; None: twenty in its share of total_steps.
    pbt_start
        Steps of each policy before the first decision about it; None: pbt_interval.
    pbt_fraction
        Share of the policies that counts as the worst, and as the best; None: 0.2, of "sample-factory" 0.3.
    pbt_metric
        What policies are ranked by: "return", the mean return of training episodes, or a name in info["metrics"].
    pbt_episodes
        Episodes that a policy needs since it was last replaced before it is ranked.
    schedule
        Tunable settings over the steps of the policy: lineage.jsonl of a population, or its directory, whose schedule
        is repeated; or {steps: {setting: value}}, on a command line as JSON. They win over the settings themselves.
    schedule_policy
        Whose schedule of the lineage it is; None: that of the policy with the best of the last scores.
    num_workers
        Rollout workers, with backend="ray" of each node; None: one per core, at most 16.
    num_envs_per_worker
        Environments per rollout worker.
    num_groups
        Groups of environments per worker that step in turn; None: 2 with central inference, 1 with local.
    inference
        Where actions are chosen: in each rollout worker, or in a policy worker that batches those of several.
    backend
        "local": one process per role; "serial": everything in this process, reproducible bit for bit; "ray": lanes are
        stepped by the nodes of a Ray cluster.
    address
        With backend="ray" the cluster: "auto", or the address of its head node; None: one of this machine, started for
        the run.
    nodes
        With backend="ray": how many nodes of the cluster step lanes, "all", or how many of those that have a custom
        resource of Ray's, by its name.
    evaluator
        With backend="ray": where evaluations play; "node": on the first node, which has a core for them beside its
        rollout workers'.
    num_learners
        Learners of the policy, a process each, on device="cuda" a GPU each; each computes a share of every update. With
        backend="local" and central inference each has a policy worker.
    learner_nodes
        With backend="ray": how many of these learners are on a node of their own, each on another, or how many on those
        that have a custom resource of Ray's, by its name; the first learner is at home.
    device
        Torch device of the learner and of central inference: "cpu", "cuda", "cuda:1", ...
    precision
        Arithmetic of the network's body (bfloat16 through autocast); heads, losses and weights stay float32. "auto":
        bfloat16 where the GPU or CPU that a role computes on is faster in it, else float32.
    encoder
        "mlp", "nature_cnn", "impala_resnet"; "auto": by observation; your nn.Module as "module:Class" or
        "file.py:Class", in Python also the class itself or a callable.
    hidden_sizes
        Widths of the hidden layers of mlp networks.
    activation
        Activation of mlp networks.
    normalize_observations
        Running normalisation of float observations; its statistics travel with the weights.
    rewards
        What is learned from: the environment's rewards, or "rudder": delayed ones are handed to the steps that earned
        them, as a network beside the policy finds out; reported returns stay true.
    redistribution_attribution
        What a step is credited with: the difference that it makes to the prediction, or integrated gradients.
    redistribution_points
        Points on the path of integrated gradients.
    redistribution_max_error
        Original rewards are used while predictions leave so much of the returns' variance unexplained.
    redistributor_size
        Memory cells of the network that predicts returns.
    redistributor_learning_rate
        Step size of its optimiser.
    redistributor_interval
        Steps of the run for each of its updates.
    redistributor_batch_size
        Episodes per update.
    redistributor_lessons
        Episodes that it learns from: those that it predicts worst are kept.
    redistributor_chunk
        Steps that its gradients go back over; longer episodes are cut into chunks that overlap by half.
    redistributor_max_steps
        Longer episodes are not learned from.
    gamma
        Discount per step.
    learning_rate
        Step size of the optimiser, or a function of progress: "module:name", "file.py:name", in Python itself.
    learning_rate_schedule
        "linear" decays a number to 0 over total_steps; a function says all by itself.
    batch_size
        Transitions per update, drawn from the replay buffer.
    buffer_size
        Transitions that the replay buffer keeps; the oldest is overwritten.
    learning_starts
        Steps before the first update; continuous actions are uniformly random until then.
    updates_per_step
        Updates for each step: the rate limiter holds back whichever of learner and rollout workers is ahead.
    ratio_slack
        Updates that either side may be ahead; None: a few, with backend="serial" those due for one step of all lanes.
    n_step
        Steps of reward in a transition, fewer at the end of an episode.
    publish_interval
        Updates between two publications of the weights to those who act.
    hindsight
        Write ended episodes again as if goals that they achieved had been meant (arXiv:1707.01495): goals of the same
        or later steps, of any step, or of the last one. None: not.
    goals_per_step
        Achieved goals for each step, with hindsight="future" or "episode" (section 4.5: k).
    prioritized
        Prioritized replay (arXiv:1511.05952): transitions of large error are drawn more often.
    priority_alpha
        Exponent of the priorities: 0 uniform, 1 in proportion (arXiv:1511.05952, proportional variant).
    priority_beta
        Exponent of the importance weights at the start (arXiv:1511.05952).
    priority_beta_final
        Exponent of the importance weights at total_steps (arXiv:1511.05952).
    actor_learning_rate
        Step size of the policy's optimiser, or a function of progress; None: learning_rate, as the critics'.
    tau
        There is no target network: targets come of the network itself, which 1 says. Nothing else is legal.
    alpha
        Temperature, fixed; None: learned.
    initial_alpha
        Where a learned temperature starts.
    target_entropy
        Entropy that a learned temperature aims at, of actions in [-1, 1]; None: minus their number (appendix D).
    critic_hidden_sizes
        Widths of the critics' hidden layers; published are two of 2048.
    adam_beta1
        Decay of the optimisers' mean gradient.
    policy_delay
        Updates of the critics for each of the policy and the temperature.
    seed
        Seeds weights, environments and exploration.
    total_steps
        Budget in steps; schedules run over it.
    max_seconds
        Budget in seconds of wall-clock time. A last evaluation may take a tenth of it more, and 10 s at least.
    target_return
        The run ends when the evaluator's mean return reaches this.
    eval_interval
        Steps between evaluations, or below 1 a fraction of total_steps; "continuous": one after the other, always of
        the newest weights; None: twenty in total_steps, or with a target_return at most a fifth of the time is spent on
        them (serial: after each batch); 0: never.
    eval_episodes
        Episodes per evaluation; of games, how many against each opponent, from each seat or by each policy.
    eval_exploration
        Evaluations sample their actions, or where none are sampled explore as at the end of training.
    eval_max_steps
        Steps after which an evaluation gives an episode up; what it has returned by then is shown as unfinished.
    checkpoint_interval
        Steps between checkpoints; None: ten in total_steps; 0: only at the end.
    keep_checkpoints
        Checkpoints kept besides the best.
    run_dir
        Where the run is written; "auto": runs/<env>-<algorithm>-<time>; None: nothing is written at all.
    save_replay
        Checkpoints hold the replay buffer too, as far as it changed since the last: learning waits meanwhile. A run
        resumed without it fills it again before it learns.
    """

    def __init__(
        self,
        env: str | Callable[..., Any] = ...,
        *,
        preset: str | os.PathLike[str] | None = None,
        env_kwargs: dict[str, Any] = ...,
        vectorize: Literal["make", "vector"] = "make",
        on_env_error: Literal["stop", "restart"] = "stop",
        reward_scale: float = 1.0,
        reward_clip: float | None = None,
        num_agents: int | None = None,
        team_reward: Literal["own", "mean", "sum"] = "own",
        num_policies: int = 1,
        policies: dict[str, dict[str, Any]] = ...,
        policy_of: str | Callable[..., Any] | None = None,
        seats: Literal["fixed", "shuffled"] = "fixed",
        opponents: str = "none",
        opponent_pool: int = 8,
        opponent_interval: int | None = None,
        opponent_share: float = 0.5,
        opponent_sampling: Literal["uniform", "hard"] = "uniform",
        eval_against: Sequence[str | Callable[..., Any]] = (),
        pbt: Literal["truncation", "tournament", "sample-factory"] | None = None,
        pbt_space: str | os.PathLike[str] | dict[str, Any] | None = None,
        pbt_interval: int | None = None,
        pbt_start: int | None = None,
        pbt_fraction: float | None = None,
        pbt_metric: str = "return",
        pbt_episodes: int = 10,
        schedule: str | os.PathLike[str] | dict[Any, Any] | None = None,
        schedule_policy: str | None = None,
        num_workers: int | None = None,
        num_envs_per_worker: int = 1,
        num_groups: int | None = None,
        inference: Literal["auto", "local", "central"] = "auto",
        backend: Literal["local", "serial", "ray"] = "local",
        address: str | None = None,
        nodes: int | Literal["all"] | dict[str, int] = 1,
        evaluator: Literal["home", "node"] = "home",
        num_learners: int = 1,
        learner_nodes: int | dict[str, int] = 0,
        device: str = "cpu",
        precision: Literal["auto", "float32", "bfloat16"] = "float32",
        encoder: str | Callable[..., Any] = "auto",
        hidden_sizes: Sequence[int] = (256, 256),
        activation: Literal["tanh", "relu", "elu", "silu"] = "relu",
        normalize_observations: bool = False,
        rewards: Literal["environment", "rudder"] = "environment",
        redistribution_attribution: Literal["difference", "integrated_gradients"] = "difference",
        redistribution_points: int = 20,
        redistribution_max_error: float = 0.2,
        redistributor_size: int = 32,
        redistributor_learning_rate: float = 0.005,
        redistributor_interval: int = 25,
        redistributor_batch_size: int = 8,
        redistributor_lessons: int = 512,
        redistributor_chunk: int = 500,
        redistributor_max_steps: int = 10000,
        gamma: float = 0.99,
        learning_rate: float | str | Callable[[float], float] = 0.001,
        learning_rate_schedule: Literal["constant", "linear"] = "constant",
        batch_size: int = 256,
        buffer_size: int = 1000000,
        learning_starts: int = 1000,
        updates_per_step: float = 1.0,
        ratio_slack: int | None = None,
        n_step: int = 1,
        publish_interval: int = 1,
        hindsight: Literal["future", "episode", "final"] | None = None,
        goals_per_step: int = 4,
        prioritized: bool = False,
        priority_alpha: float = 0.6,
        priority_beta: float = 0.4,
        priority_beta_final: float = 1.0,
        actor_learning_rate: float | str | Callable[[float], float] | None = None,
        tau: float = 1.0,
        alpha: float | None = None,
        initial_alpha: float = 1.0,
        target_entropy: float | None = None,
        critic_hidden_sizes: Sequence[int] = (256, 256),
        adam_beta1: float = 0.5,
        policy_delay: int = 3,
        seed: int = 0,
        total_steps: int = 1000000,
        max_seconds: float | None = None,
        target_return: float | None = None,
        eval_interval: int | float | Literal["continuous"] | None = None,
        eval_episodes: int = 20,
        eval_exploration: bool = False,
        eval_max_steps: int = 30000,
        checkpoint_interval: int | None = None,
        keep_checkpoints: int = 3,
        run_dir: str | os.PathLike[str] | None = "auto",
        save_replay: bool = False,
    ) -> None: ...

class ApeXDPG(Face):
    """Trains with Ape-X DPG; settings are the fields of `penstock.algorithms.apex_dpg.ApeXDPGConfig`.

    Parameters
    ----------
    env
        Gymnasium id, "EnvPool/Id", "module:Class", "file.py:Class"; in Python also a callable returning an environment,
        or a class.
    env_kwargs
        Keyword arguments for the environment.
    vectorize
        "make": one environment per lane; "vector": one vector environment per group of lanes.
    on_env_error
        An exception or NaN in an environment ends the run, or restarts its worker and is counted.
    reward_scale
        Rewards are multiplied by this for learning; reported returns stay true.
    reward_clip
        Scaled rewards are clipped to [-reward_clip, reward_clip] for learning; reported returns stay true.
    num_agents
        Agents of each environment, each of which is a lane; None: as many as the environment has.
    team_reward
        With several agents: each is rewarded with its own reward, or with the mean or the sum of its team's.
    num_policies
        So many policies of the same settings, which play the agents in turn; where an environment has one agent, each
        plays environments of its own.
    policies
        Policies by name, each with settings of its own; with several agents also with ``agents``, a pattern of those
        that it plays or several.
    policy_of
        Who plays what, instead: a function of the agent's name ("" where there is one) and the number of the
        environment in its worker that returns a policy's name; "module:function" or "file.py:function", in Python also
        itself.
    seats
        With several policies of several agents: each plays its own agents, or it is drawn before each game which agents
        each plays, as many as are its own.
    opponents
        With several agents: "past": in a share of the games guests, frozen past versions of the only policy, play all
        seats but one; with several policies one of them learns there, and past versions of each other policy play its
        agents. With several policies also the name of one: in a share of the games it is a guest, by its newest
        weights, and learns nothing there. "none": no guests play.
    opponent_pool
        Past versions of each policy that guests play.
    opponent_interval
        Steps between two versions that enter the pool; None: twenty in total_steps.
    opponent_share
        Share of the games in which guests play; in the others there are none.
    opponent_sampling
        How a version is drawn for a game: each with the same chance, or by (1 - win rate)^2 against it.
    eval_against
        With several agents: whom evaluations play: "random", "best", a class or function as "module:name" or
        "file.py:name", in Python also itself; with several policies also "others", the other policies. Empty: one
        policy plays all seats, several play each other.
    pbt
        Population-based training of the run's policies: now and then a bad one goes on as a copy of a better one, with
        settings a little different. "truncation" replaces the worst by one of the best, "tournament" whoever is worse
        than another drawn at random, "sample-factory" as "truncation", and changes settings of those between in place.
    pbt_space
        What may change: a TOML file with a table for each setting, as `penstock search` takes; in Python also the
        tables.
    pbt_interval
        Steps of each policy between two decisions about it; None: twenty in its share of total_steps.
    pbt_start
        Steps of each policy before the first decision about it; None: pbt_interval.
    pbt_fraction
        Share of the policies that counts as the worst, and as the best; None: 0.2, of "sample-factory" 0.3.
    pbt_metric
        What policies are ranked by: "return", the mean return of training episodes, or a name in info["metrics"].
    pbt_episodes
        Episodes that a policy needs since it was last replaced before it is ranked.
    schedule
        Tunable settings over the steps of the policy: lineage.jsonl of a population, or its directory, whose schedule
        is repeated; or {steps: {setting: value}}, on a command line as JSON. They win over the settings themselves.
    schedule_policy
        Whose schedule of the lineage it is; None: that of the policy with the best of the last scores.
    num_workers
        Rollout workers, with backend="ray" of each node; None: one per core, at most 16.
    num_envs_per_worker
        Environments per rollout worker.
    num_groups
        Groups of environments per worker that step in turn; None: 2 with central inference, 1 with local.
    inference
        Where actions are chosen: in each rollout worker, or in a policy worker that batches those of several.
    backend
        "local": one process per role; "serial": everything in this process, reproducible bit for bit; "ray": lanes are
        stepped by the nodes of a Ray cluster.
    address
        With backend="ray" the cluster: "auto", or the address of its head node; None: one of this machine, started for
        the run.
    nodes
        With backend="ray": how many nodes of the cluster step lanes, "all", or how many of those that have a custom
        resource of Ray's, by its name.
    evaluator
        With backend="ray": where evaluations play; "node": on the first node, which has a core for them beside its
        rollout workers'.
    num_learners
        Learners of the policy, a process each, on device="cuda" a GPU each; each computes a share of every update. With
        backend="local" and central inference each has a policy worker.
    learner_nodes
        With backend="ray": how many of these learners are on a node of their own, each on another, or how many on those
        that have a custom resource of Ray's, by its name; the first learner is at home.
    device
        Torch device of the learner and of central inference: "cpu", "cuda", "cuda:1", ...
    precision
        Arithmetic of the network's body (bfloat16 through autocast); heads, losses and weights stay float32. "auto":
        bfloat16 where the GPU or CPU that a role computes on is faster in it, else float32.
    encoder
        "mlp", "nature_cnn", "impala_resnet"; "auto": by observation; your nn.Module as "module:Class" or
        "file.py:Class", in Python also the class itself or a callable.
    hidden_sizes
        Widths of the hidden layers of mlp networks.
    activation
        Activation of mlp networks.
    normalize_observations
        Running normalisation of float observations; its statistics travel with the weights.
    rewards
        What is learned from: the environment's rewards, or "rudder": delayed ones are handed to the steps that earned
        them, as a network beside the policy finds out; reported returns stay true.
    redistribution_attribution
        What a step is credited with: the difference that it makes to the prediction, or integrated gradients.
    redistribution_points
        Points on the path of integrated gradients.
    redistribution_max_error
        Original rewards are used while predictions leave so much of the returns' variance unexplained.
    redistributor_size
        Memory cells of the network that predicts returns.
    redistributor_learning_rate
        Step size of its optimiser.
    redistributor_interval
        Steps of the run for each of its updates.
    redistributor_batch_size
        Episodes per update.
    redistributor_lessons
        Episodes that it learns from: those that it predicts worst are kept.
    redistributor_chunk
        Steps that its gradients go back over; longer episodes are cut into chunks that overlap by half.
    redistributor_max_steps
        Longer episodes are not learned from.
    gamma
        Discount per step.
    learning_rate
        Step size of the optimiser, or a function of progress: "module:name", "file.py:name", in Python itself.
    learning_rate_schedule
        "linear" decays a number to 0 over total_steps; a function says all by itself.
    batch_size
        Transitions per update, drawn from the replay buffer.
    buffer_size
        Transitions that the replay buffer keeps; the oldest is overwritten.
    learning_starts
        Steps before the first update; continuous actions are uniformly random until then.
    updates_per_step
        Updates for each step: the rate limiter holds back whichever of learner and rollout workers is ahead.
    ratio_slack
        Updates that either side may be ahead; None: a few, with backend="serial" those due for one step of all lanes.
    n_step
        Steps of reward in a transition, fewer at the end of an episode (appendix D).
    publish_interval
        Updates between two publications of the weights to those who act.
    hindsight
        Write ended episodes again as if goals that they achieved had been meant (arXiv:1707.01495): goals of the same
        or later steps, of any step, or of the last one. None: not.
    goals_per_step
        Achieved goals for each step, with hindsight="future" or "episode" (section 4.5: k).
    prioritized
        Prioritized replay (arXiv:1511.05952): transitions of large error are drawn more often. Importance weights apply
        to the critics' loss alone.
    priority_alpha
        Exponent of the priorities: 0 uniform, 1 in proportion (arXiv:1511.05952, proportional variant).
    priority_beta
        Exponent of the importance weights at the start (arXiv:1511.05952).
    priority_beta_final
        Exponent of the importance weights at total_steps; not annealed here.
    actor_learning_rate
        Step size of the policy's optimiser, or a function of progress; None: learning_rate, as the critics'.
    tau
        How far the target networks move towards the online ones; 1: they are copied.
    exploration_noise
        Standard deviation of the noise on actions in [-1, 1], the same in every lane.
    target_period
        Updates between two moves of the target networks (appendix D).
    max_actor_grad
        Each element of the policy's gradient is clipped to this size (appendix D); None: not at all.
    eviction_alpha
        In a full buffer a new transition replaces one drawn in proportion to its priority to this power, 0 or less
        (appendix D): those of small error go first. None: it replaces the oldest.
    seed
        Seeds weights, environments and exploration.
    total_steps
        Budget in steps; schedules run over it.
    max_seconds
        Budget in seconds of wall-clock time. A last evaluation may take a tenth of it more, and 10 s at least.
    target_return
        The run ends when the evaluator's mean return reaches this.
    eval_interval
        Steps between evaluations, or below 1 a fraction of total_steps; "continuous": one after the other, always of
        the newest weights; None: twenty in total_steps, or with a target_return at most a fifth of the time is spent on
        them (serial: after each batch); 0: never.
    eval_episodes
        Episodes per evaluation; of games, how many against each opponent, from each seat or by each policy.
    eval_exploration
        Evaluations sample their actions, or where none are sampled explore as at the end of training.
    eval_max_steps
        Steps after which an evaluation gives an episode up; what it has returned by then is shown as unfinished.
    checkpoint_interval
        Steps between checkpoints; None: ten in total_steps; 0: only at the end.
    keep_checkpoints
        Checkpoints kept besides the best.
    run_dir
        Where the run is written; "auto": runs/<env>-<algorithm>-<time>; None: nothing is written at all.
    save_replay
        Checkpoints hold the replay buffer too, as far as it changed since the last: learning waits meanwhile. A run
        resumed without it fills it again before it learns.
    """

    def __init__(
        self,
        env: str | Callable[..., Any] = ...,
        *,
        preset: str | os.PathLike[str] | None = None,
        env_kwargs: dict[str, Any] = ...,
        vectorize: Literal["make", "vector"] = "make",
        on_env_error: Literal["stop", "restart"] = "stop",
        reward_scale: float = 1.0,
        reward_clip: float | None = None,
        num_agents: int | None = None,
        team_reward: Literal["own", "mean", "sum"] = "own",
        num_policies: int = 1,
        policies: dict[str, dict[str, Any]] = ...,
        policy_of: str | Callable[..., Any] | None = None,
        seats: Literal["fixed", "shuffled"] = "fixed",
        opponents: str = "none",
        opponent_pool: int = 8,
        opponent_interval: int | None = None,
        opponent_share: float = 0.5,
        opponent_sampling: Literal["uniform", "hard"] = "uniform",
        eval_against: Sequence[str | Callable[..., Any]] = (),
        pbt: Literal["truncation", "tournament", "sample-factory"] | None = None,
        pbt_space: str | os.PathLike[str] | dict[str, Any] | None = None,
        pbt_interval: int | None = None,
        pbt_start: int | None = None,
        pbt_fraction: float | None = None,
        pbt_metric: str = "return",
        pbt_episodes: int = 10,
        schedule: str | os.PathLike[str] | dict[Any, Any] | None = None,
        schedule_policy: str | None = None,
        num_workers: int | None = None,
        num_envs_per_worker: int = 4,
        num_groups: int | None = None,
        inference: Literal["auto", "local", "central"] = "auto",
        backend: Literal["local", "serial", "ray"] = "local",
        address: str | None = None,
        nodes: int | Literal["all"] | dict[str, int] = 1,
        evaluator: Literal["home", "node"] = "home",
        num_learners: int = 1,
        learner_nodes: int | dict[str, int] = 0,
        device: str = "cpu",
        precision: Literal["auto", "float32", "bfloat16"] = "float32",
        encoder: str | Callable[..., Any] = "auto",
        hidden_sizes: Sequence[int] = (256, 256),
        activation: Literal["tanh", "relu", "elu", "silu"] = "relu",
        normalize_observations: bool = False,
        rewards: Literal["environment", "rudder"] = "environment",
        redistribution_attribution: Literal["difference", "integrated_gradients"] = "difference",
        redistribution_points: int = 20,
        redistribution_max_error: float = 0.2,
        redistributor_size: int = 32,
        redistributor_learning_rate: float = 0.005,
        redistributor_interval: int = 25,
        redistributor_batch_size: int = 8,
        redistributor_lessons: int = 512,
        redistributor_chunk: int = 500,
        redistributor_max_steps: int = 10000,
        gamma: float = 0.99,
        learning_rate: float | str | Callable[[float], float] = 0.0001,
        learning_rate_schedule: Literal["constant", "linear"] = "constant",
        batch_size: int = 256,
        buffer_size: int = 1000000,
        learning_starts: int = 1000,
        updates_per_step: float = 0.25,
        ratio_slack: int | None = None,
        n_step: int = 5,
        publish_interval: int = 1,
        hindsight: Literal["future", "episode", "final"] | None = None,
        goals_per_step: int = 4,
        prioritized: bool = True,
        priority_alpha: float = 0.6,
        priority_beta: float = 0.4,
        priority_beta_final: float = 0.4,
        actor_learning_rate: float | str | Callable[[float], float] | None = None,
        tau: float = 1.0,
        exploration_noise: float = 0.3,
        target_period: int = 100,
        max_actor_grad: float | None = 1.0,
        eviction_alpha: float | None = -0.4,
        seed: int = 0,
        total_steps: int = 1000000,
        max_seconds: float | None = None,
        target_return: float | None = None,
        eval_interval: int | float | Literal["continuous"] | None = None,
        eval_episodes: int = 20,
        eval_exploration: bool = False,
        eval_max_steps: int = 30000,
        checkpoint_interval: int | None = None,
        keep_checkpoints: int = 3,
        run_dir: str | os.PathLike[str] | None = "auto",
        save_replay: bool = False,
    ) -> None: ...

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
        Environment: a Gymnasium id, "EnvPool/Id", "module:Class" or "file.py:Class"; in Python also a class, or a
        callable that returns an environment.
    num_workers
        Rollout workers; with backend="ray", per node. None: one per core, at most 16.
    num_envs_per_worker
        Environments per rollout worker; with one agent each, also its number of lanes.
    device
        Torch device of the learner and of central inference: "cpu", "cuda", "cuda:1", ...
    seed
        Seed of weights, environments and exploration.
    learning_rate
        Step size of the optimiser, or a function of progress in [0, 1]: "module:name" or "file.py:name", in Python also
        the function itself.
    total_steps
        Budget in steps; schedules span it.
    target_return
        The run ends when the mean return of an evaluation reaches this value; None: no target.
    run_dir
        Directory of the run; "auto": runs/<env>-<algorithm>-<time>; None: nothing is written.
    env_kwargs
        Keyword arguments of the environment's constructor.
    vectorize
        "make": one environment per lane; "vector": one vector environment per group of lanes.
    on_env_error
        On an exception or NaN in an environment: "stop" the run, or "restart" the rollout worker and count the error.
    reward_scale
        Factor applied to rewards for learning; reported returns stay unscaled.
    reward_clip
        Scaled rewards are clipped to [-reward_clip, reward_clip] for learning; reported returns stay unclipped. None:
        no clipping.
    num_agents
        Agents per environment, each of which is a lane; None: the number that the environment declares.
    team_reward
        With several agents, reward of each: its own, or the mean or sum over its team.
    num_policies
        Number of policies with identical settings. They are assigned to the agents in turn; with one agent per
        environment, each policy gets its own environments.
    policies
        Policies by name, each with its own settings; with several agents also ``agents``, one or more patterns of agent
        names.
    policy_of
        Function that maps (agent, environment index) to a policy name, instead of ``agents``; the agent is "" in
        environments with one agent. "module:function" or "file.py:function"; in Python also the function itself.
    seats
        With several policies and agents. "fixed": each policy always plays its own agents; "shuffled": agents are
        redistributed among the policies at random before each game, the number per policy unchanged.
    opponents
        With several agents, opponents that do not learn. "past": some games use frozen past versions as opponents; with
        one policy they play all seats but one, with several policies one policy learns in the game and past versions of
        the others play the remaining agents. The name of a policy: some games use its newest weights, without learning
        from them. "none": every seat learns.
    opponent_pool
        Number of past versions kept as opponents, per policy.
    opponent_interval
        Steps between two versions added to the pool; None: total_steps / 20.
    opponent_share
        Share of games played against opponents that do not learn.
    opponent_sampling
        "uniform": past versions are drawn with equal probability; "hard": in proportion to (1 - win rate)^2 against
        them.
    eval_against
        With several agents, opponents in evaluations: "random", "best", or a class or function as "module:name" or
        "file.py:name", in Python also itself; with several policies also "others", the other policies. Empty: one
        policy plays all seats, or the policies play each other.
    pbt
        Population-based training of the run's policies: at intervals a weak policy becomes a copy of a stronger one,
        with perturbed settings. "truncation": the worst are replaced by the best; "tournament": a policy that loses
        against a random other is replaced by it; "sample-factory": as "truncation", and settings of the policies in
        between are perturbed in place.
    pbt_space
        Settings that may change: a TOML file with a table per setting, as for `penstock search`; in Python also the
        tables.
    pbt_interval
        Steps of each policy between two decisions about it; None: a twentieth of its share of total_steps.
    pbt_start
        Steps of each policy before the first decision about it; None: pbt_interval.
    pbt_fraction
        Share of the policies that counts as the worst, and as the best; None: 0.2, for "sample-factory" 0.3.
    pbt_metric
        Metric that ranks policies: "return", the mean return of training episodes, or a name in info["metrics"].
    pbt_episodes
        Episodes since its last replacement that a policy needs to be ranked.
    schedule
        Tunable settings over the steps of the policy, which override the settings themselves: a population's
        lineage.jsonl or run directory, or {steps: {setting: value}}, on the command line as JSON.
    schedule_policy
        Policy of the lineage whose schedule is followed; None: the one with the best final score.
    num_groups
        Groups of environments per worker that step in turn; None: 2 with central inference, 1 with local.
    inference
        "local": each rollout worker chooses its own actions; "central": a policy worker batches requests of several
        rollout workers; "auto": central on a GPU, local on a CPU and with backend="ray".
    backend
        "local": one process per role; "serial": everything in this process, bit-for-bit reproducible; "ray": the nodes
        of a Ray cluster step the lanes.
    address
        With backend="ray", address of the cluster's head node, or "auto"; None: a cluster on this machine, started for
        the run.
    nodes
        With backend="ray", number of nodes that step lanes, "all", or the number of nodes with a custom Ray resource,
        by resource name.
    evaluator
        With backend="ray", machine that runs evaluations: "home", or "node", the first node, on a core besides those of
        its rollout workers.
    num_learners
        Learners of the policy, one process each, with device="cuda" one GPU each; each computes a share of every
        update. With backend="local" and central inference, each has its own policy worker.
    learner_nodes
        With backend="ray", number of learners on separate nodes, or the number on nodes with a custom Ray resource, by
        resource name. The first learner always runs at home.
    precision
        Arithmetic of the network's body (bfloat16 through autocast); heads, losses and weights stay float32. "auto":
        bfloat16 where the role's GPU or CPU is faster with it, else float32.
    encoder
        "mlp", "nature_cnn", "impala_resnet", or "auto" (by observation); a custom nn.Module as "module:Class" or
        "file.py:Class", in Python also the class itself or a callable.
    hidden_sizes
        Widths of the mlp encoder's hidden layers.
    activation
        Activation of the mlp encoder.
    normalize_observations
        Running normalisation of float observations; its statistics are part of the weights.
    memory
        Memory core after the encoder.
    memory_size
        Width of the memory core.
    memory_span
        Steps over which an untrained memory core remembers (chrono initialisation, arXiv:1804.11188); None: default
        initialisation.
    shared_encoder
        One encoder for policy and value; None: shared for images, memory and custom modules, separate for mlp.
    rewards
        "environment": learn from the environment's rewards; "rudder": redistribute delayed rewards to the steps that
        earned them, by a network trained beside the policy. Reported returns stay unchanged.
    redistribution_attribution
        Credit of a step: the difference that it makes to the prediction, or integrated gradients.
    redistribution_points
        Points on the path of integrated gradients.
    redistribution_max_error
        Original rewards are used while predictions leave more than this share of the returns' variance unexplained.
    redistributor_size
        Memory cells of the network that predicts returns.
    redistributor_learning_rate
        Step size of this network's optimiser.
    redistributor_interval
        Steps of the run per update of this network.
    redistributor_batch_size
        Episodes per update of this network.
    redistributor_lessons
        Capacity of this network's episode buffer; the episodes with the largest prediction errors are kept.
    redistributor_chunk
        Steps of truncated backpropagation; longer episodes are cut into chunks that overlap by half.
    redistributor_max_steps
        Longest episode to learn from.
    redistribution_value
        Rewards that values are learned from: "redistributed", as for the policy; "original", with redistributed rewards
        mixed into the policy's advantages, as in the paper's Atari experiments.
    redistribution_share
        With original values, largest share of redistributed rewards in the advantages.
    redistribution_trace
        With original values, share of each redistributed reward that is also credited to the preceding step.
    gamma
        Discount per step.
    learning_rate_schedule
        "linear": a numeric learning_rate decays to 0 over total_steps. Ignored when learning_rate is a function.
    burn_in
        First steps of each segment that only warm up the memory state: no loss, no gradient.
    max_grad_norm
        Global norm to which gradients are clipped.
    segment_length
        Steps per segment (T).
    entropy_coef
        Weight of the entropy bonus, or a function of progress as for learning_rate.
    entropy_coef_final
        Final weight of the entropy bonus: a numeric entropy_coef moves linearly to it over total_steps; None: constant.
    value_coef
        Weight of the value loss.
    normalize_returns
        Running normalisation of value targets; its statistics are part of the weights.
    batch_size
        Steps per update (one minibatch).
    max_policy_lag
        Steps whose action was chosen by weights at least this many versions old are masked out of the loss.
    adam_beta1
        Decay rate of the running mean of gradients.
    adam_beta2
        Decay rate of the running mean of squared gradients.
    adam_eps
        Constant added to the root of the mean square.
    num_epochs
        Passes over each batch.
    gae_lambda
        Lambda of generalised advantage estimation.
    normalize_advantages
        Normalise advantages to mean 0 and standard deviation 1 in each update.
    clip_range
        Probability ratios are clipped to [1 / (1 + clip_range), 1 + clip_range].
    target_kl
        The remaining updates of a batch are skipped once approx_kl exceeds 1.5 times this value (nats); None: never.
    num_minibatches
        Updates per pass; a batch has num_minibatches * batch_size steps.
    advantage_estimator
        "gae": once per batch, from the learner's values; "vtrace": corrected for policy lag, recomputed in every
        update.
    rho_bar
        V-trace: bound on the probability ratio in the temporal difference.
    c_bar
        V-trace: bound on the probability ratio in the trace.
    max_seconds
        Budget in seconds of wall-clock time. The final evaluation may take an extra tenth of it, at least 10 s.
    eval_interval
        Steps between evaluations; below 1, a fraction of total_steps; "continuous": back to back, always with the
        newest weights; 0: never. None: total_steps / 20, or with a target_return at most a fifth of the time (serial:
        after each batch).
    eval_episodes
        Episodes per evaluation; in games, episodes per opponent and seat or policy.
    eval_exploration
        Evaluations sample actions; algorithms without sampling explore as at the end of training.
    eval_max_steps
        Steps after which an evaluation gives an episode up and plays another; it counts as far as it came.
    checkpoint_interval
        Steps between checkpoints; 0: only at the end; None: total_steps / 10.
    keep_checkpoints
        Number of checkpoints kept, besides the best.
    """

    def __init__(
        self,
        env: str | Callable[..., Any] = ...,
        *,
        preset: str | os.PathLike[str] | None = None,
        num_workers: int | None = None,
        num_envs_per_worker: int = 16,
        device: str = "cpu",
        seed: int = 0,
        learning_rate: float | str | Callable[[float], float] = 0.002,
        total_steps: int = 1000000,
        target_return: float | None = None,
        run_dir: str | os.PathLike[str] | None = "auto",
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
        num_groups: int | None = None,
        inference: Literal["auto", "local", "central"] = "auto",
        backend: Literal["local", "serial", "ray"] = "local",
        address: str | None = None,
        nodes: int | Literal["all"] | dict[str, int] = 1,
        evaluator: Literal["home", "node"] = "home",
        num_learners: int = 1,
        learner_nodes: int | dict[str, int] = 0,
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
        max_seconds: float | None = None,
        eval_interval: int | float | Literal["continuous"] | None = None,
        eval_episodes: int = 20,
        eval_exploration: bool = False,
        eval_max_steps: int = 30000,
        checkpoint_interval: int | None = None,
        keep_checkpoints: int = 3,
    ) -> None: ...

class PPO(Face):
    """Trains with PPO, synchronous; settings are the fields of `penstock.algorithms.ppo.PPOConfig`.

    Parameters
    ----------
    env
        Environment: a Gymnasium id, "EnvPool/Id", "module:Class" or "file.py:Class"; in Python also a class, or a
        callable that returns an environment.
    num_workers
        Rollout workers; with backend="ray", per node. None: one per core, at most 16.
    num_envs_per_worker
        Environments per rollout worker; with one agent each, also its number of lanes.
    device
        Torch device of the learner and of central inference: "cpu", "cuda", "cuda:1", ...
    seed
        Seed of weights, environments and exploration.
    learning_rate
        Step size of the optimiser, or a function of progress in [0, 1]: "module:name" or "file.py:name", in Python also
        the function itself.
    total_steps
        Budget in steps; schedules span it.
    target_return
        The run ends when the mean return of an evaluation reaches this value; None: no target.
    run_dir
        Directory of the run; "auto": runs/<env>-<algorithm>-<time>; None: nothing is written.
    env_kwargs
        Keyword arguments of the environment's constructor.
    vectorize
        "make": one environment per lane; "vector": one vector environment per group of lanes.
    on_env_error
        On an exception or NaN in an environment: "stop" the run, or "restart" the rollout worker and count the error.
    reward_scale
        Factor applied to rewards for learning; reported returns stay unscaled.
    reward_clip
        Scaled rewards are clipped to [-reward_clip, reward_clip] for learning; reported returns stay unclipped. None:
        no clipping.
    num_agents
        Agents per environment, each of which is a lane; None: the number that the environment declares.
    team_reward
        With several agents, reward of each: its own, or the mean or sum over its team.
    num_policies
        Number of policies with identical settings. They are assigned to the agents in turn; with one agent per
        environment, each policy gets its own environments.
    policies
        Policies by name, each with its own settings; with several agents also ``agents``, one or more patterns of agent
        names.
    policy_of
        Function that maps (agent, environment index) to a policy name, instead of ``agents``; the agent is "" in
        environments with one agent. "module:function" or "file.py:function"; in Python also the function itself.
    seats
        With several policies and agents. "fixed": each policy always plays its own agents; "shuffled": agents are
        redistributed among the policies at random before each game, the number per policy unchanged.
    opponents
        With several agents, opponents that do not learn. "past": some games use frozen past versions as opponents; with
        one policy they play all seats but one, with several policies one policy learns in the game and past versions of
        the others play the remaining agents. The name of a policy: some games use its newest weights, without learning
        from them. "none": every seat learns.
    opponent_pool
        Number of past versions kept as opponents, per policy.
    opponent_interval
        Steps between two versions added to the pool; None: total_steps / 20.
    opponent_share
        Share of games played against opponents that do not learn.
    opponent_sampling
        "uniform": past versions are drawn with equal probability; "hard": in proportion to (1 - win rate)^2 against
        them.
    eval_against
        With several agents, opponents in evaluations: "random", "best", or a class or function as "module:name" or
        "file.py:name", in Python also itself; with several policies also "others", the other policies. Empty: one
        policy plays all seats, or the policies play each other.
    pbt
        Population-based training of the run's policies: at intervals a weak policy becomes a copy of a stronger one,
        with perturbed settings. "truncation": the worst are replaced by the best; "tournament": a policy that loses
        against a random other is replaced by it; "sample-factory": as "truncation", and settings of the policies in
        between are perturbed in place.
    pbt_space
        Settings that may change: a TOML file with a table per setting, as for `penstock search`; in Python also the
        tables.
    pbt_interval
        Steps of each policy between two decisions about it; None: a twentieth of its share of total_steps.
    pbt_start
        Steps of each policy before the first decision about it; None: pbt_interval.
    pbt_fraction
        Share of the policies that counts as the worst, and as the best; None: 0.2, for "sample-factory" 0.3.
    pbt_metric
        Metric that ranks policies: "return", the mean return of training episodes, or a name in info["metrics"].
    pbt_episodes
        Episodes since its last replacement that a policy needs to be ranked.
    schedule
        Tunable settings over the steps of the policy, which override the settings themselves: a population's
        lineage.jsonl or run directory, or {steps: {setting: value}}, on the command line as JSON.
    schedule_policy
        Policy of the lineage whose schedule is followed; None: the one with the best final score.
    num_groups
        Groups of environments per worker that step in turn; None: 2 with central inference, 1 with local.
    inference
        "local": each rollout worker chooses its own actions; "central": a policy worker batches requests of several
        rollout workers; "auto": central on a GPU, local on a CPU and with backend="ray".
    backend
        "local": one process per role; "serial": everything in this process, bit-for-bit reproducible; "ray": the nodes
        of a Ray cluster step the lanes.
    address
        With backend="ray", address of the cluster's head node, or "auto"; None: a cluster on this machine, started for
        the run.
    nodes
        With backend="ray", number of nodes that step lanes, "all", or the number of nodes with a custom Ray resource,
        by resource name.
    evaluator
        With backend="ray", machine that runs evaluations: "home", or "node", the first node, on a core besides those of
        its rollout workers.
    num_learners
        Learners of the policy, one process each, with device="cuda" one GPU each; each computes a share of every
        update. With backend="local" and central inference, each has its own policy worker.
    learner_nodes
        With backend="ray", number of learners on separate nodes, or the number on nodes with a custom Ray resource, by
        resource name. The first learner always runs at home.
    precision
        Arithmetic of the network's body (bfloat16 through autocast); heads, losses and weights stay float32. "auto":
        bfloat16 where the role's GPU or CPU is faster with it, else float32.
    encoder
        "mlp", "nature_cnn", "impala_resnet", or "auto" (by observation); a custom nn.Module as "module:Class" or
        "file.py:Class", in Python also the class itself or a callable.
    hidden_sizes
        Widths of the mlp encoder's hidden layers.
    activation
        Activation of the mlp encoder.
    normalize_observations
        Running normalisation of float observations; its statistics are part of the weights.
    memory
        Memory core after the encoder.
    memory_size
        Width of the memory core.
    memory_span
        Steps over which an untrained memory core remembers (chrono initialisation, arXiv:1804.11188); None: default
        initialisation.
    shared_encoder
        One encoder for policy and value; None: shared for images, memory and custom modules, separate for mlp.
    rewards
        "environment": learn from the environment's rewards; "rudder": redistribute delayed rewards to the steps that
        earned them, by a network trained beside the policy. Reported returns stay unchanged.
    redistribution_attribution
        Credit of a step: the difference that it makes to the prediction, or integrated gradients.
    redistribution_points
        Points on the path of integrated gradients.
    redistribution_max_error
        Original rewards are used while predictions leave more than this share of the returns' variance unexplained.
    redistributor_size
        Memory cells of the network that predicts returns.
    redistributor_learning_rate
        Step size of this network's optimiser.
    redistributor_interval
        Steps of the run per update of this network.
    redistributor_batch_size
        Episodes per update of this network.
    redistributor_lessons
        Capacity of this network's episode buffer; the episodes with the largest prediction errors are kept.
    redistributor_chunk
        Steps of truncated backpropagation; longer episodes are cut into chunks that overlap by half.
    redistributor_max_steps
        Longest episode to learn from.
    redistribution_value
        Rewards that values are learned from: "redistributed", as for the policy; "original", with redistributed rewards
        mixed into the policy's advantages, as in the paper's Atari experiments.
    redistribution_share
        With original values, largest share of redistributed rewards in the advantages.
    redistribution_trace
        With original values, share of each redistributed reward that is also credited to the preceding step.
    gamma
        Discount per step.
    learning_rate_schedule
        "linear": a numeric learning_rate decays to 0 over total_steps. Ignored when learning_rate is a function.
    burn_in
        First steps of each segment that only warm up the memory state: no loss, no gradient.
    max_grad_norm
        Global norm to which gradients are clipped.
    segment_length
        Steps per segment (T).
    entropy_coef
        Weight of the entropy bonus, or a function of progress as for learning_rate.
    entropy_coef_final
        Final weight of the entropy bonus: a numeric entropy_coef moves linearly to it over total_steps; None: constant.
    value_coef
        Weight of the value loss.
    normalize_returns
        Running normalisation of value targets; its statistics are part of the weights.
    adam_beta1
        Decay rate of the running mean of gradients.
    adam_beta2
        Decay rate of the running mean of squared gradients.
    adam_eps
        Constant added to the root of the mean square.
    num_epochs
        Passes over each batch.
    gae_lambda
        Lambda of generalised advantage estimation.
    normalize_advantages
        Normalise advantages to mean 0 and standard deviation 1 in each update.
    clip_range
        Probability ratios are clipped to [1 - clip_range, 1 + clip_range].
    target_kl
        The remaining updates of a batch are skipped once approx_kl exceeds 1.5 times this value (nats); None: never.
    batch_size
        Steps per update (one minibatch); the segments of all lanes together are a multiple of it.
    value_clip_range
        Largest change of a value per batch; None: unlimited.
    max_seconds
        Budget in seconds of wall-clock time. The final evaluation may take an extra tenth of it, at least 10 s.
    eval_interval
        Steps between evaluations; below 1, a fraction of total_steps; "continuous": back to back, always with the
        newest weights; 0: never. None: total_steps / 20, or with a target_return at most a fifth of the time (serial:
        after each batch).
    eval_episodes
        Episodes per evaluation; in games, episodes per opponent and seat or policy.
    eval_exploration
        Evaluations sample actions; algorithms without sampling explore as at the end of training.
    eval_max_steps
        Steps after which an evaluation gives an episode up and plays another; it counts as far as it came.
    checkpoint_interval
        Steps between checkpoints; 0: only at the end; None: total_steps / 10.
    keep_checkpoints
        Number of checkpoints kept, besides the best.
    """

    def __init__(
        self,
        env: str | Callable[..., Any] = ...,
        *,
        preset: str | os.PathLike[str] | None = None,
        num_workers: int | None = None,
        num_envs_per_worker: int = 8,
        device: str = "cpu",
        seed: int = 0,
        learning_rate: float | str | Callable[[float], float] = 0.0005,
        total_steps: int = 500000,
        target_return: float | None = None,
        run_dir: str | os.PathLike[str] | None = "auto",
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
        num_groups: int | None = None,
        inference: Literal["auto", "local", "central"] = "auto",
        backend: Literal["local", "serial", "ray"] = "local",
        address: str | None = None,
        nodes: int | Literal["all"] | dict[str, int] = 1,
        evaluator: Literal["home", "node"] = "home",
        num_learners: int = 1,
        learner_nodes: int | dict[str, int] = 0,
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
        max_seconds: float | None = None,
        eval_interval: int | float | Literal["continuous"] | None = None,
        eval_episodes: int = 20,
        eval_exploration: bool = False,
        eval_max_steps: int = 30000,
        checkpoint_interval: int | None = None,
        keep_checkpoints: int = 3,
    ) -> None: ...

class A2C(Face):
    """Trains with A2C, synchronous; settings are the fields of `penstock.algorithms.a2c.A2CConfig`.

    Parameters
    ----------
    env
        Environment: a Gymnasium id, "EnvPool/Id", "module:Class" or "file.py:Class"; in Python also a class, or a
        callable that returns an environment.
    num_workers
        Rollout workers; with backend="ray", per node. None: one per core, at most 16.
    num_envs_per_worker
        Environments per rollout worker; with one agent each, also its number of lanes.
    device
        Torch device of the learner and of central inference: "cpu", "cuda", "cuda:1", ...
    seed
        Seed of weights, environments and exploration.
    learning_rate
        Step size of the optimiser, or a function of progress in [0, 1]: "module:name" or "file.py:name", in Python also
        the function itself.
    total_steps
        Budget in steps; schedules span it.
    target_return
        The run ends when the mean return of an evaluation reaches this value; None: no target.
    run_dir
        Directory of the run; "auto": runs/<env>-<algorithm>-<time>; None: nothing is written.
    env_kwargs
        Keyword arguments of the environment's constructor.
    vectorize
        "make": one environment per lane; "vector": one vector environment per group of lanes.
    on_env_error
        On an exception or NaN in an environment: "stop" the run, or "restart" the rollout worker and count the error.
    reward_scale
        Factor applied to rewards for learning; reported returns stay unscaled.
    reward_clip
        Scaled rewards are clipped to [-reward_clip, reward_clip] for learning; reported returns stay unclipped. None:
        no clipping.
    num_agents
        Agents per environment, each of which is a lane; None: the number that the environment declares.
    team_reward
        With several agents, reward of each: its own, or the mean or sum over its team.
    num_policies
        Number of policies with identical settings. They are assigned to the agents in turn; with one agent per
        environment, each policy gets its own environments.
    policies
        Policies by name, each with its own settings; with several agents also ``agents``, one or more patterns of agent
        names.
    policy_of
        Function that maps (agent, environment index) to a policy name, instead of ``agents``; the agent is "" in
        environments with one agent. "module:function" or "file.py:function"; in Python also the function itself.
    seats
        With several policies and agents. "fixed": each policy always plays its own agents; "shuffled": agents are
        redistributed among the policies at random before each game, the number per policy unchanged.
    opponents
        With several agents, opponents that do not learn. "past": some games use frozen past versions as opponents; with
        one policy they play all seats but one, with several policies one policy learns in the game and past versions of
        the others play the remaining agents. The name of a policy: some games use its newest weights, without learning
        from them. "none": every seat learns.
    opponent_pool
        Number of past versions kept as opponents, per policy.
    opponent_interval
        Steps between two versions added to the pool; None: total_steps / 20.
    opponent_share
        Share of games played against opponents that do not learn.
    opponent_sampling
        "uniform": past versions are drawn with equal probability; "hard": in proportion to (1 - win rate)^2 against
        them.
    eval_against
        With several agents, opponents in evaluations: "random", "best", or a class or function as "module:name" or
        "file.py:name", in Python also itself; with several policies also "others", the other policies. Empty: one
        policy plays all seats, or the policies play each other.
    pbt
        Population-based training of the run's policies: at intervals a weak policy becomes a copy of a stronger one,
        with perturbed settings. "truncation": the worst are replaced by the best; "tournament": a policy that loses
        against a random other is replaced by it; "sample-factory": as "truncation", and settings of the policies in
        between are perturbed in place.
    pbt_space
        Settings that may change: a TOML file with a table per setting, as for `penstock search`; in Python also the
        tables.
    pbt_interval
        Steps of each policy between two decisions about it; None: a twentieth of its share of total_steps.
    pbt_start
        Steps of each policy before the first decision about it; None: pbt_interval.
    pbt_fraction
        Share of the policies that counts as the worst, and as the best; None: 0.2, for "sample-factory" 0.3.
    pbt_metric
        Metric that ranks policies: "return", the mean return of training episodes, or a name in info["metrics"].
    pbt_episodes
        Episodes since its last replacement that a policy needs to be ranked.
    schedule
        Tunable settings over the steps of the policy, which override the settings themselves: a population's
        lineage.jsonl or run directory, or {steps: {setting: value}}, on the command line as JSON.
    schedule_policy
        Policy of the lineage whose schedule is followed; None: the one with the best final score.
    num_groups
        Groups of environments per worker that step in turn; None: 2 with central inference, 1 with local.
    inference
        "local": each rollout worker chooses its own actions; "central": a policy worker batches requests of several
        rollout workers; "auto": central on a GPU, local on a CPU and with backend="ray".
    backend
        "local": one process per role; "serial": everything in this process, bit-for-bit reproducible; "ray": the nodes
        of a Ray cluster step the lanes.
    address
        With backend="ray", address of the cluster's head node, or "auto"; None: a cluster on this machine, started for
        the run.
    nodes
        With backend="ray", number of nodes that step lanes, "all", or the number of nodes with a custom Ray resource,
        by resource name.
    evaluator
        With backend="ray", machine that runs evaluations: "home", or "node", the first node, on a core besides those of
        its rollout workers.
    num_learners
        Learners of the policy, one process each, with device="cuda" one GPU each; each computes a share of every
        update. With backend="local" and central inference, each has its own policy worker.
    learner_nodes
        With backend="ray", number of learners on separate nodes, or the number on nodes with a custom Ray resource, by
        resource name. The first learner always runs at home.
    precision
        Arithmetic of the network's body (bfloat16 through autocast); heads, losses and weights stay float32. "auto":
        bfloat16 where the role's GPU or CPU is faster with it, else float32.
    encoder
        "mlp", "nature_cnn", "impala_resnet", or "auto" (by observation); a custom nn.Module as "module:Class" or
        "file.py:Class", in Python also the class itself or a callable.
    hidden_sizes
        Widths of the mlp encoder's hidden layers.
    activation
        Activation of the mlp encoder.
    normalize_observations
        Running normalisation of float observations; its statistics are part of the weights.
    memory
        Memory core after the encoder.
    memory_size
        Width of the memory core.
    memory_span
        Steps over which an untrained memory core remembers (chrono initialisation, arXiv:1804.11188); None: default
        initialisation.
    shared_encoder
        One encoder for policy and value; None: shared for images, memory and custom modules, separate for mlp.
    rewards
        "environment": learn from the environment's rewards; "rudder": redistribute delayed rewards to the steps that
        earned them, by a network trained beside the policy. Reported returns stay unchanged.
    redistribution_attribution
        Credit of a step: the difference that it makes to the prediction, or integrated gradients.
    redistribution_points
        Points on the path of integrated gradients.
    redistribution_max_error
        Original rewards are used while predictions leave more than this share of the returns' variance unexplained.
    redistributor_size
        Memory cells of the network that predicts returns.
    redistributor_learning_rate
        Step size of this network's optimiser.
    redistributor_interval
        Steps of the run per update of this network.
    redistributor_batch_size
        Episodes per update of this network.
    redistributor_lessons
        Capacity of this network's episode buffer; the episodes with the largest prediction errors are kept.
    redistributor_chunk
        Steps of truncated backpropagation; longer episodes are cut into chunks that overlap by half.
    redistributor_max_steps
        Longest episode to learn from.
    redistribution_value
        Rewards that values are learned from: "redistributed", as for the policy; "original", with redistributed rewards
        mixed into the policy's advantages, as in the paper's Atari experiments.
    redistribution_share
        With original values, largest share of redistributed rewards in the advantages.
    redistribution_trace
        With original values, share of each redistributed reward that is also credited to the preceding step.
    gamma
        Discount per step.
    learning_rate_schedule
        "linear": a numeric learning_rate decays to 0 over total_steps. Ignored when learning_rate is a function.
    burn_in
        First steps of each segment that only warm up the memory state: no loss, no gradient.
    max_grad_norm
        Global norm to which gradients are clipped.
    segment_length
        Steps per segment (T), and n of the n-step returns.
    entropy_coef
        Weight of the entropy bonus, or a function of progress as for learning_rate.
    entropy_coef_final
        Final weight of the entropy bonus: a numeric entropy_coef moves linearly to it over total_steps; None: constant.
    value_coef
        Weight of the value loss.
    normalize_returns
        Running normalisation of value targets; its statistics are part of the weights.
    rmsprop_decay
        Decay rate of the running mean of squared gradients.
    rmsprop_eps
        Constant that bounds steps where gradients are small.
    rmsprop_eps_inside
        True: g / sqrt(s + eps), as in TensorFlow 1 and the papers' code; False: g / (sqrt(s) + eps).
    gae_lambda
        Lambda of generalised advantage estimation; 1: n-step returns, as published.
    max_seconds
        Budget in seconds of wall-clock time. The final evaluation may take an extra tenth of it, at least 10 s.
    eval_interval
        Steps between evaluations; below 1, a fraction of total_steps; "continuous": back to back, always with the
        newest weights; 0: never. None: total_steps / 20, or with a target_return at most a fifth of the time (serial:
        after each batch).
    eval_episodes
        Episodes per evaluation; in games, episodes per opponent and seat or policy.
    eval_exploration
        Evaluations sample actions; algorithms without sampling explore as at the end of training.
    eval_max_steps
        Steps after which an evaluation gives an episode up and plays another; it counts as far as it came.
    checkpoint_interval
        Steps between checkpoints; 0: only at the end; None: total_steps / 10.
    keep_checkpoints
        Number of checkpoints kept, besides the best.
    """

    def __init__(
        self,
        env: str | Callable[..., Any] = ...,
        *,
        preset: str | os.PathLike[str] | None = None,
        num_workers: int | None = None,
        num_envs_per_worker: int = 16,
        device: str = "cpu",
        seed: int = 0,
        learning_rate: float | str | Callable[[float], float] = 0.004,
        total_steps: int = 500000,
        target_return: float | None = None,
        run_dir: str | os.PathLike[str] | None = "auto",
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
        num_groups: int | None = None,
        inference: Literal["auto", "local", "central"] = "auto",
        backend: Literal["local", "serial", "ray"] = "local",
        address: str | None = None,
        nodes: int | Literal["all"] | dict[str, int] = 1,
        evaluator: Literal["home", "node"] = "home",
        num_learners: int = 1,
        learner_nodes: int | dict[str, int] = 0,
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
        max_seconds: float | None = None,
        eval_interval: int | float | Literal["continuous"] | None = None,
        eval_episodes: int = 20,
        eval_exploration: bool = False,
        eval_max_steps: int = 30000,
        checkpoint_interval: int | None = None,
        keep_checkpoints: int = 3,
    ) -> None: ...

class A3C(Face):
    """Trains with A3C, workers that learn; settings are the fields of `penstock.algorithms.a3c.A3CConfig`.

    Parameters
    ----------
    env
        Environment: a Gymnasium id, "EnvPool/Id", "module:Class" or "file.py:Class"; in Python also a class, or a
        callable that returns an environment.
    num_workers
        Rollout workers; with backend="ray", per node. None: one per core, at most 16.
    num_envs_per_worker
        Environments per rollout worker; each gradient is computed from one segment of all their lanes (published: 1).
    device
        Rollout workers learn on the CPU; nothing else is legal.
    seed
        Seed of weights, environments and exploration.
    learning_rate
        Step size of the optimiser, or a function of progress in [0, 1]: "module:name" or "file.py:name", in Python also
        the function itself.
    total_steps
        Budget in steps; schedules span it.
    target_return
        The run ends when the mean return of an evaluation reaches this value; None: no target.
    run_dir
        Directory of the run; "auto": runs/<env>-<algorithm>-<time>; None: nothing is written.
    env_kwargs
        Keyword arguments of the environment's constructor.
    vectorize
        "make": one environment per lane; "vector": one vector environment per group of lanes.
    on_env_error
        On an exception or NaN in an environment: "stop" the run, or "restart" the rollout worker and count the error.
    reward_scale
        Factor applied to rewards for learning; reported returns stay unscaled.
    reward_clip
        Scaled rewards are clipped to [-reward_clip, reward_clip] for learning; reported returns stay unclipped. None:
        no clipping.
    num_agents
        Agents per environment, each of which is a lane; None: the number that the environment declares.
    team_reward
        With several agents, reward of each: its own, or the mean or sum over its team.
    num_policies
        Number of policies with identical settings. They are assigned to the agents in turn; with one agent per
        environment, each policy gets its own environments.
    policies
        Policies by name, each with its own settings; with several agents also ``agents``, one or more patterns of agent
        names.
    policy_of
        Function that maps (agent, environment index) to a policy name, instead of ``agents``; the agent is "" in
        environments with one agent. "module:function" or "file.py:function"; in Python also the function itself.
    seats
        With several policies and agents. "fixed": each policy always plays its own agents; "shuffled": agents are
        redistributed among the policies at random before each game, the number per policy unchanged.
    opponents
        With several agents, opponents that do not learn. "past": some games use frozen past versions as opponents; with
        one policy they play all seats but one, with several policies one policy learns in the game and past versions of
        the others play the remaining agents. The name of a policy: some games use its newest weights, without learning
        from them. "none": every seat learns.
    opponent_pool
        Number of past versions kept as opponents, per policy.
    opponent_interval
        Steps between two versions added to the pool; None: total_steps / 20.
    opponent_share
        Share of games played against opponents that do not learn.
    opponent_sampling
        "uniform": past versions are drawn with equal probability; "hard": in proportion to (1 - win rate)^2 against
        them.
    eval_against
        With several agents, opponents in evaluations: "random", "best", or a class or function as "module:name" or
        "file.py:name", in Python also itself; with several policies also "others", the other policies. Empty: one
        policy plays all seats, or the policies play each other.
    pbt
        Population-based training of the run's policies: at intervals a weak policy becomes a copy of a stronger one,
        with perturbed settings. "truncation": the worst are replaced by the best; "tournament": a policy that loses
        against a random other is replaced by it; "sample-factory": as "truncation", and settings of the policies in
        between are perturbed in place.
    pbt_space
        Settings that may change: a TOML file with a table per setting, as for `penstock search`; in Python also the
        tables.
    pbt_interval
        Steps of each policy between two decisions about it; None: a twentieth of its share of total_steps.
    pbt_start
        Steps of each policy before the first decision about it; None: pbt_interval.
    pbt_fraction
        Share of the policies that counts as the worst, and as the best; None: 0.2, for "sample-factory" 0.3.
    pbt_metric
        Metric that ranks policies: "return", the mean return of training episodes, or a name in info["metrics"].
    pbt_episodes
        Episodes since its last replacement that a policy needs to be ranked.
    schedule
        Tunable settings over the steps of the policy, which override the settings themselves: a population's
        lineage.jsonl or run directory, or {steps: {setting: value}}, on the command line as JSON.
    schedule_policy
        Policy of the lineage whose schedule is followed; None: the one with the best final score.
    num_groups
        No effect: all lanes of a worker step together.
    inference
        No effect: rollout workers always choose their own actions.
    backend
        "local": one process per role; "serial": everything in this process, bit-for-bit reproducible; "ray": the nodes
        of a Ray cluster step the lanes.
    address
        With backend="ray", address of the cluster's head node, or "auto"; None: a cluster on this machine, started for
        the run.
    nodes
        With backend="ray", number of nodes that step lanes, "all", or the number of nodes with a custom Ray resource,
        by resource name.
    evaluator
        With backend="ray", machine that runs evaluations: "home", or "node", the first node, on a core besides those of
        its rollout workers.
    num_learners
        Learners of the policy, one process each, with device="cuda" one GPU each; each computes a share of every
        update. With backend="local" and central inference, each has its own policy worker.
    learner_nodes
        With backend="ray", number of learners on separate nodes, or the number on nodes with a custom Ray resource, by
        resource name. The first learner always runs at home.
    precision
        Arithmetic of the network's body (bfloat16 through autocast); heads, losses and weights stay float32. "auto":
        bfloat16 where the role's GPU or CPU is faster with it, else float32.
    encoder
        "mlp", "nature_cnn", "impala_resnet", or "auto" (by observation); a custom nn.Module as "module:Class" or
        "file.py:Class", in Python also the class itself or a callable.
    hidden_sizes
        Widths of the mlp encoder's hidden layers.
    activation
        Activation of the mlp encoder.
    normalize_observations
        Running normalisation of float observations; its statistics are part of the weights.
    memory
        Memory core after the encoder.
    memory_size
        Width of the memory core.
    memory_span
        Steps over which an untrained memory core remembers (chrono initialisation, arXiv:1804.11188); None: default
        initialisation.
    shared_encoder
        One encoder for policy and value; None: shared for images, memory and custom modules, separate for mlp.
    gamma
        Discount per step.
    learning_rate_schedule
        "linear": a numeric learning_rate decays to 0 over total_steps. Ignored when learning_rate is a function.
    burn_in
        First steps of each segment that only warm up the memory state: no loss, no gradient.
    max_grad_norm
        Global norm to which each worker's gradient is clipped.
    segment_length
        Steps per segment (t_max).
    entropy_coef
        Weight of the entropy bonus, or a function of progress as for learning_rate.
    entropy_coef_final
        Final weight of the entropy bonus: a numeric entropy_coef moves linearly to it over total_steps; None: constant.
    value_coef
        Weight of the value loss.
    normalize_returns
        Running normalisation of value targets; its statistics are part of the weights.
    rmsprop_decay
        Decay rate of the running mean of squared gradients.
    rmsprop_eps
        Constant that bounds steps where gradients are small.
    rmsprop_eps_inside
        True: g / sqrt(s + eps), as in TensorFlow 1 and the papers' code; False: g / (sqrt(s) + eps).
    gae_lambda
        Lambda of generalised advantage estimation; 1: n-step returns, as published.
    entropy_spread
        Entropy bonuses differ between workers: evenly spaced in log scale from entropy_coef / entropy_spread to
        entropy_coef * entropy_spread.
    reduction
        "sum": losses are summed over the steps of a segment, as published; "mean": averaged. Learning rate and gradient
        clipping must match.
    max_seconds
        Budget in seconds of wall-clock time. The final evaluation may take an extra tenth of it, at least 10 s.
    eval_interval
        Steps between evaluations; below 1, a fraction of total_steps; "continuous": back to back, always with the
        newest weights; 0: never. None: total_steps / 20, or with a target_return at most a fifth of the time (serial:
        after each batch).
    eval_episodes
        Episodes per evaluation; in games, episodes per opponent and seat or policy.
    eval_exploration
        Evaluations sample actions; algorithms without sampling explore as at the end of training.
    eval_max_steps
        Steps after which an evaluation gives an episode up and plays another; it counts as far as it came.
    checkpoint_interval
        Steps between checkpoints; 0: only at the end; None: total_steps / 10.
    keep_checkpoints
        Number of checkpoints kept, besides the best.
    """

    def __init__(
        self,
        env: str | Callable[..., Any] = ...,
        *,
        preset: str | os.PathLike[str] | None = None,
        num_workers: int | None = None,
        num_envs_per_worker: int = 8,
        device: Literal["cpu"] = "cpu",
        seed: int = 0,
        learning_rate: float | str | Callable[[float], float] = 0.003,
        total_steps: int = 500000,
        target_return: float | None = None,
        run_dir: str | os.PathLike[str] | None = "auto",
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
        num_groups: Literal[1] | None = None,
        inference: Literal["auto", "local"] = "auto",
        backend: Literal["local", "serial", "ray"] = "local",
        address: str | None = None,
        nodes: int | Literal["all"] | dict[str, int] = 1,
        evaluator: Literal["home", "node"] = "home",
        num_learners: int = 1,
        learner_nodes: int | dict[str, int] = 0,
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
        max_seconds: float | None = None,
        eval_interval: int | float | Literal["continuous"] | None = None,
        eval_episodes: int = 20,
        eval_exploration: bool = False,
        eval_max_steps: int = 30000,
        checkpoint_interval: int | None = None,
        keep_checkpoints: int = 3,
    ) -> None: ...

class IMPALA(Face):
    """Trains with IMPALA, V-trace; settings are the fields of `penstock.algorithms.impala.IMPALAConfig`.

    Parameters
    ----------
    env
        Environment: a Gymnasium id, "EnvPool/Id", "module:Class" or "file.py:Class"; in Python also a class, or a
        callable that returns an environment.
    num_workers
        Rollout workers; with backend="ray", per node. None: one per core, at most 16.
    num_envs_per_worker
        Environments per rollout worker; with one agent each, also its number of lanes.
    device
        Torch device of the learner and of central inference: "cpu", "cuda", "cuda:1", ...
    seed
        Seed of weights, environments and exploration.
    learning_rate
        Step size of the optimiser, or a function of progress in [0, 1]: "module:name" or "file.py:name", in Python also
        the function itself.
    total_steps
        Budget in steps; schedules span it.
    target_return
        The run ends when the mean return of an evaluation reaches this value; None: no target.
    run_dir
        Directory of the run; "auto": runs/<env>-<algorithm>-<time>; None: nothing is written.
    env_kwargs
        Keyword arguments of the environment's constructor.
    vectorize
        "make": one environment per lane; "vector": one vector environment per group of lanes.
    on_env_error
        On an exception or NaN in an environment: "stop" the run, or "restart" the rollout worker and count the error.
    reward_scale
        Factor applied to rewards for learning; reported returns stay unscaled.
    reward_clip
        Scaled rewards are clipped to [-reward_clip, reward_clip] for learning; reported returns stay unclipped. None:
        no clipping.
    num_agents
        Agents per environment, each of which is a lane; None: the number that the environment declares.
    team_reward
        With several agents, reward of each: its own, or the mean or sum over its team.
    num_policies
        Number of policies with identical settings. They are assigned to the agents in turn; with one agent per
        environment, each policy gets its own environments.
    policies
        Policies by name, each with its own settings; with several agents also ``agents``, one or more patterns of agent
        names.
    policy_of
        Function that maps (agent, environment index) to a policy name, instead of ``agents``; the agent is "" in
        environments with one agent. "module:function" or "file.py:function"; in Python also the function itself.
    seats
        With several policies and agents. "fixed": each policy always plays its own agents; "shuffled": agents are
        redistributed among the policies at random before each game, the number per policy unchanged.
    opponents
        With several agents, opponents that do not learn. "past": some games use frozen past versions as opponents; with
        one policy they play all seats but one, with several policies one policy learns in the game and past versions of
        the others play the remaining agents. The name of a policy: some games use its newest weights, without learning
        from them. "none": every seat learns.
    opponent_pool
        Number of past versions kept as opponents, per policy.
    opponent_interval
        Steps between two versions added to the pool; None: total_steps / 20.
    opponent_share
        Share of games played against opponents that do not learn.
    opponent_sampling
        "uniform": past versions are drawn with equal probability; "hard": in proportion to (1 - win rate)^2 against
        them.
    eval_against
        With several agents, opponents in evaluations: "random", "best", or a class or function as "module:name" or
        "file.py:name", in Python also itself; with several policies also "others", the other policies. Empty: one
        policy plays all seats, or the policies play each other.
    pbt
        Population-based training of the run's policies: at intervals a weak policy becomes a copy of a stronger one,
        with perturbed settings. "truncation": the worst are replaced by the best; "tournament": a policy that loses
        against a random other is replaced by it; "sample-factory": as "truncation", and settings of the policies in
        between are perturbed in place.
    pbt_space
        Settings that may change: a TOML file with a table per setting, as for `penstock search`; in Python also the
        tables.
    pbt_interval
        Steps of each policy between two decisions about it; None: a twentieth of its share of total_steps.
    pbt_start
        Steps of each policy before the first decision about it; None: pbt_interval.
    pbt_fraction
        Share of the policies that counts as the worst, and as the best; None: 0.2, for "sample-factory" 0.3.
    pbt_metric
        Metric that ranks policies: "return", the mean return of training episodes, or a name in info["metrics"].
    pbt_episodes
        Episodes since its last replacement that a policy needs to be ranked.
    schedule
        Tunable settings over the steps of the policy, which override the settings themselves: a population's
        lineage.jsonl or run directory, or {steps: {setting: value}}, on the command line as JSON.
    schedule_policy
        Policy of the lineage whose schedule is followed; None: the one with the best final score.
    num_groups
        Groups of environments per worker that step in turn; None: 2 with central inference, 1 with local.
    inference
        "local": each rollout worker chooses its own actions; "central": a policy worker batches requests of several
        rollout workers; "auto": central on a GPU, local on a CPU and with backend="ray".
    backend
        "local": one process per role; "serial": everything in this process, bit-for-bit reproducible; "ray": the nodes
        of a Ray cluster step the lanes.
    address
        With backend="ray", address of the cluster's head node, or "auto"; None: a cluster on this machine, started for
        the run.
    nodes
        With backend="ray", number of nodes that step lanes, "all", or the number of nodes with a custom Ray resource,
        by resource name.
    evaluator
        With backend="ray", machine that runs evaluations: "home", or "node", the first node, on a core besides those of
        its rollout workers.
    num_learners
        Learners of the policy, one process each, with device="cuda" one GPU each; each computes a share of every
        update. With backend="local" and central inference, each has its own policy worker.
    learner_nodes
        With backend="ray", number of learners on separate nodes, or the number on nodes with a custom Ray resource, by
        resource name. The first learner always runs at home.
    precision
        Arithmetic of the network's body (bfloat16 through autocast); heads, losses and weights stay float32. "auto":
        bfloat16 where the role's GPU or CPU is faster with it, else float32.
    encoder
        "mlp", "nature_cnn", "impala_resnet", or "auto" (by observation); a custom nn.Module as "module:Class" or
        "file.py:Class", in Python also the class itself or a callable.
    hidden_sizes
        Widths of the mlp encoder's hidden layers.
    activation
        Activation of the mlp encoder.
    normalize_observations
        Running normalisation of float observations; its statistics are part of the weights.
    memory
        Memory core after the encoder.
    memory_size
        Width of the memory core.
    memory_span
        Steps over which an untrained memory core remembers (chrono initialisation, arXiv:1804.11188); None: default
        initialisation.
    shared_encoder
        One encoder for policy and value; None: shared for images, memory and custom modules, separate for mlp.
    rewards
        "environment": learn from the environment's rewards; "rudder": redistribute delayed rewards to the steps that
        earned them, by a network trained beside the policy. Reported returns stay unchanged.
    redistribution_attribution
        Credit of a step: the difference that it makes to the prediction, or integrated gradients.
    redistribution_points
        Points on the path of integrated gradients.
    redistribution_max_error
        Original rewards are used while predictions leave more than this share of the returns' variance unexplained.
    redistributor_size
        Memory cells of the network that predicts returns.
    redistributor_learning_rate
        Step size of this network's optimiser.
    redistributor_interval
        Steps of the run per update of this network.
    redistributor_batch_size
        Episodes per update of this network.
    redistributor_lessons
        Capacity of this network's episode buffer; the episodes with the largest prediction errors are kept.
    redistributor_chunk
        Steps of truncated backpropagation; longer episodes are cut into chunks that overlap by half.
    redistributor_max_steps
        Longest episode to learn from.
    redistribution_value
        Rewards that values are learned from: "redistributed", as for the policy; "original", with redistributed rewards
        mixed into the policy's advantages, as in the paper's Atari experiments.
    redistribution_share
        With original values, largest share of redistributed rewards in the advantages.
    redistribution_trace
        With original values, share of each redistributed reward that is also credited to the preceding step.
    gamma
        Discount per step.
    learning_rate_schedule
        "linear", as published: a numeric learning_rate decays to 0 over total_steps. Ignored when learning_rate is a
        function.
    burn_in
        First steps of each segment that only warm up the memory state: no loss, no gradient.
    max_grad_norm
        Global norm to which gradients are clipped.
    segment_length
        Steps per segment (T).
    entropy_coef
        Weight of the entropy bonus, or a function of progress as for learning_rate.
    entropy_coef_final
        Final weight of the entropy bonus: a numeric entropy_coef moves linearly to it over total_steps; None: constant.
    value_coef
        Weight of the value loss.
    normalize_returns
        Running normalisation of value targets; its statistics are part of the weights.
    batch_size
        Steps per update.
    max_policy_lag
        Steps whose action was chosen by weights at least this many versions old are masked out of the loss.
    replay
        Composition of each batch: sources as kind:share,setting=value. Shares are exact, such as 0.5 or 7/8. Kinds:
        queue (fresh segments), uniform, reservoir, prioritized, attentive, elite.
    rmsprop_decay
        Decay rate of the running mean of squared gradients.
    rmsprop_eps
        Constant that bounds steps where gradients are small.
    rmsprop_eps_inside
        True: g / sqrt(s + eps), as in TensorFlow 1 and the papers' code; False: g / (sqrt(s) + eps).
    vtrace_lambda
        Lambda of V-trace's targets: weight of longer returns.
    rho_bar
        Bound on the probability ratio in the temporal difference; determines the policy whose value is learned.
    c_bar
        Bound on the probability ratio in the trace; determines the speed of convergence.
    rho_pg_bar
        Bound on the probability ratio in the policy gradient.
    reduction
        "sum": losses are summed over the steps of a batch, as published; "mean": averaged. Learning rate and gradient
        clipping must match.
    max_seconds
        Budget in seconds of wall-clock time. The final evaluation may take an extra tenth of it, at least 10 s.
    eval_interval
        Steps between evaluations; below 1, a fraction of total_steps; "continuous": back to back, always with the
        newest weights; 0: never. None: total_steps / 20, or with a target_return at most a fifth of the time (serial:
        after each batch).
    eval_episodes
        Episodes per evaluation; in games, episodes per opponent and seat or policy.
    eval_exploration
        Evaluations sample actions; algorithms without sampling explore as at the end of training.
    eval_max_steps
        Steps after which an evaluation gives an episode up and plays another; it counts as far as it came.
    checkpoint_interval
        Steps between checkpoints; 0: only at the end; None: total_steps / 10.
    keep_checkpoints
        Number of checkpoints kept, besides the best.
    save_replay
        Store replayed segments in checkpoints; learning pauses meanwhile. A run resumed without them refills its
        sources before it learns.
    """

    def __init__(
        self,
        env: str | Callable[..., Any] = ...,
        *,
        preset: str | os.PathLike[str] | None = None,
        num_workers: int | None = None,
        num_envs_per_worker: int = 16,
        device: str = "cpu",
        seed: int = 0,
        learning_rate: float | str | Callable[[float], float] = 0.002,
        total_steps: int = 1000000,
        target_return: float | None = None,
        run_dir: str | os.PathLike[str] | None = "auto",
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
        num_groups: int | None = None,
        inference: Literal["auto", "local", "central"] = "auto",
        backend: Literal["local", "serial", "ray"] = "local",
        address: str | None = None,
        nodes: int | Literal["all"] | dict[str, int] = 1,
        evaluator: Literal["home", "node"] = "home",
        num_learners: int = 1,
        learner_nodes: int | dict[str, int] = 0,
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
        max_seconds: float | None = None,
        eval_interval: int | float | Literal["continuous"] | None = None,
        eval_episodes: int = 20,
        eval_exploration: bool = False,
        eval_max_steps: int = 30000,
        checkpoint_interval: int | None = None,
        keep_checkpoints: int = 3,
        save_replay: bool = False,
    ) -> None: ...

class IMPACT(Face):
    """Trains with IMPACT, batches used again; settings are the fields of `penstock.algorithms.impact.IMPACTConfig`.

    Parameters
    ----------
    env
        Environment: a Gymnasium id, "EnvPool/Id", "module:Class" or "file.py:Class"; in Python also a class, or a
        callable that returns an environment.
    num_workers
        Rollout workers; with backend="ray", per node. None: one per core, at most 16.
    num_envs_per_worker
        Environments per rollout worker; with one agent each, also its number of lanes.
    device
        Torch device of the learner and of central inference: "cpu", "cuda", "cuda:1", ...
    seed
        Seed of weights, environments and exploration.
    learning_rate
        Step size of the optimiser, or a function of progress in [0, 1]: "module:name" or "file.py:name", in Python also
        the function itself.
    total_steps
        Budget in steps; schedules span it.
    target_return
        The run ends when the mean return of an evaluation reaches this value; None: no target.
    run_dir
        Directory of the run; "auto": runs/<env>-<algorithm>-<time>; None: nothing is written.
    env_kwargs
        Keyword arguments of the environment's constructor.
    vectorize
        "make": one environment per lane; "vector": one vector environment per group of lanes.
    on_env_error
        On an exception or NaN in an environment: "stop" the run, or "restart" the rollout worker and count the error.
    reward_scale
        Factor applied to rewards for learning; reported returns stay unscaled.
    reward_clip
        Scaled rewards are clipped to [-reward_clip, reward_clip] for learning; reported returns stay unclipped. None:
        no clipping.
    num_agents
        Agents per environment, each of which is a lane; None: the number that the environment declares.
    team_reward
        With several agents, reward of each: its own, or the mean or sum over its team.
    num_policies
        Number of policies with identical settings. They are assigned to the agents in turn; with one agent per
        environment, each policy gets its own environments.
    policies
        Policies by name, each with its own settings; with several agents also ``agents``, one or more patterns of agent
        names.
    policy_of
        Function that maps (agent, environment index) to a policy name, instead of ``agents``; the agent is "" in
        environments with one agent. "module:function" or "file.py:function"; in Python also the function itself.
    seats
        With several policies and agents. "fixed": each policy always plays its own agents; "shuffled": agents are
        redistributed among the policies at random before each game, the number per policy unchanged.
    opponents
        With several agents, opponents that do not learn. "past": some games use frozen past versions as opponents; with
        one policy they play all seats but one, with several policies one policy learns in the game and past versions of
        the others play the remaining agents. The name of a policy: some games use its newest weights, without learning
        from them. "none": every seat learns.
    opponent_pool
        Number of past versions kept as opponents, per policy.
    opponent_interval
        Steps between two versions added to the pool; None: total_steps / 20.
    opponent_share
        Share of games played against opponents that do not learn.
    opponent_sampling
        "uniform": past versions are drawn with equal probability; "hard": in proportion to (1 - win rate)^2 against
        them.
    eval_against
        With several agents, opponents in evaluations: "random", "best", or a class or function as "module:name" or
        "file.py:name", in Python also itself; with several policies also "others", the other policies. Empty: one
        policy plays all seats, or the policies play each other.
    pbt
        Population-based training of the run's policies: at intervals a weak policy becomes a copy of a stronger one,
        with perturbed settings. "truncation": the worst are replaced by the best; "tournament": a policy that loses
        against a random other is replaced by it; "sample-factory": as "truncation", and settings of the policies in
        between are perturbed in place.
    pbt_space
        Settings that may change: a TOML file with a table per setting, as for `penstock search`; in Python also the
        tables.
    pbt_interval
        Steps of each policy between two decisions about it; None: a twentieth of its share of total_steps.
    pbt_start
        Steps of each policy before the first decision about it; None: pbt_interval.
    pbt_fraction
        Share of the policies that counts as the worst, and as the best; None: 0.2, for "sample-factory" 0.3.
    pbt_metric
        Metric that ranks policies: "return", the mean return of training episodes, or a name in info["metrics"].
    pbt_episodes
        Episodes since its last replacement that a policy needs to be ranked.
    schedule
        Tunable settings over the steps of the policy, which override the settings themselves: a population's
        lineage.jsonl or run directory, or {steps: {setting: value}}, on the command line as JSON.
    schedule_policy
        Policy of the lineage whose schedule is followed; None: the one with the best final score.
    num_groups
        Groups of environments per worker that step in turn; None: 2 with central inference, 1 with local.
    inference
        "local": each rollout worker chooses its own actions; "central": a policy worker batches requests of several
        rollout workers; "auto": central on a GPU, local on a CPU and with backend="ray".
    backend
        "local": one process per role; "serial": everything in this process, bit-for-bit reproducible; "ray": the nodes
        of a Ray cluster step the lanes.
    address
        With backend="ray", address of the cluster's head node, or "auto"; None: a cluster on this machine, started for
        the run.
    nodes
        With backend="ray", number of nodes that step lanes, "all", or the number of nodes with a custom Ray resource,
        by resource name.
    evaluator
        With backend="ray", machine that runs evaluations: "home", or "node", the first node, on a core besides those of
        its rollout workers.
    num_learners
        Learners of the policy, one process each, with device="cuda" one GPU each; each computes a share of every
        update. With backend="local" and central inference, each has its own policy worker.
    learner_nodes
        With backend="ray", number of learners on separate nodes, or the number on nodes with a custom Ray resource, by
        resource name. The first learner always runs at home.
    precision
        Arithmetic of the network's body (bfloat16 through autocast); heads, losses and weights stay float32. "auto":
        bfloat16 where the role's GPU or CPU is faster with it, else float32.
    encoder
        "mlp", "nature_cnn", "impala_resnet", or "auto" (by observation); a custom nn.Module as "module:Class" or
        "file.py:Class", in Python also the class itself or a callable.
    hidden_sizes
        Widths of the mlp encoder's hidden layers.
    activation
        Activation of the mlp encoder.
    normalize_observations
        Running normalisation of float observations; its statistics are part of the weights.
    memory
        Memory core after the encoder.
    memory_size
        Width of the memory core.
    memory_span
        Steps over which an untrained memory core remembers (chrono initialisation, arXiv:1804.11188); None: default
        initialisation.
    shared_encoder
        One encoder for policy and value; None: shared for images, memory and custom modules, separate for mlp.
    gamma
        Discount per step.
    learning_rate_schedule
        "linear": a numeric learning_rate decays to 0 over total_steps. Ignored when learning_rate is a function.
    burn_in
        First steps of each segment that only warm up the memory state: no loss, no gradient.
    max_grad_norm
        Global norm to which gradients are clipped.
    segment_length
        Steps per segment (T).
    entropy_coef
        Weight of the entropy bonus, or a function of progress as for learning_rate.
    entropy_coef_final
        Final weight of the entropy bonus: a numeric entropy_coef moves linearly to it over total_steps; None: constant.
    value_coef
        Weight of the value loss.
    normalize_returns
        Running normalisation of value targets; its statistics are part of the weights.
    batch_size
        Steps per update.
    max_policy_lag
        Steps whose action was chosen by weights at least this many versions old are masked out of the loss.
    adam_beta1
        Decay rate of the running mean of gradients.
    adam_beta2
        Decay rate of the running mean of squared gradients.
    adam_eps
        Constant added to the root of the mean square.
    num_batches
        Capacity of the circular buffer in batches (N); a new batch replaces the oldest.
    batch_uses
        Number of updates from each batch (K).
    target_period
        Updates between two copies of the network to the target network (published: N * K).
    rho_target
        Bound on mu / pi_target, the ratio that corrects the surrogate against the target network.
    clip_range
        The surrogate's ratio is clipped to [1 - clip_range, 1 + clip_range].
    gae_lambda
        Lambda of V-trace's targets: weight of longer returns.
    rho_bar
        V-trace: bound on the ratio pi_target / mu in the temporal difference.
    c_bar
        V-trace: bound on the ratio pi_target / mu in the trace.
    kl_coef
        Weight of KL(pi_target || pi).
    normalize_advantages
        Normalise advantages to mean 0 and standard deviation 1 in each update.
    max_seconds
        Budget in seconds of wall-clock time. The final evaluation may take an extra tenth of it, at least 10 s.
    eval_interval
        Steps between evaluations; below 1, a fraction of total_steps; "continuous": back to back, always with the
        newest weights; 0: never. None: total_steps / 20, or with a target_return at most a fifth of the time (serial:
        after each batch).
    eval_episodes
        Episodes per evaluation; in games, episodes per opponent and seat or policy.
    eval_exploration
        Evaluations sample actions; algorithms without sampling explore as at the end of training.
    eval_max_steps
        Steps after which an evaluation gives an episode up and plays another; it counts as far as it came.
    checkpoint_interval
        Steps between checkpoints; 0: only at the end; None: total_steps / 10.
    keep_checkpoints
        Number of checkpoints kept, besides the best.
    """

    def __init__(
        self,
        env: str | Callable[..., Any] = ...,
        *,
        preset: str | os.PathLike[str] | None = None,
        num_workers: int | None = None,
        num_envs_per_worker: int = 16,
        device: str = "cpu",
        seed: int = 0,
        learning_rate: float | str | Callable[[float], float] = 0.002,
        total_steps: int = 1000000,
        target_return: float | None = None,
        run_dir: str | os.PathLike[str] | None = "auto",
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
        num_groups: int | None = None,
        inference: Literal["auto", "local", "central"] = "auto",
        backend: Literal["local", "serial", "ray"] = "local",
        address: str | None = None,
        nodes: int | Literal["all"] | dict[str, int] = 1,
        evaluator: Literal["home", "node"] = "home",
        num_learners: int = 1,
        learner_nodes: int | dict[str, int] = 0,
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
        max_seconds: float | None = None,
        eval_interval: int | float | Literal["continuous"] | None = None,
        eval_episodes: int = 20,
        eval_exploration: bool = False,
        eval_max_steps: int = 30000,
        checkpoint_interval: int | None = None,
        keep_checkpoints: int = 3,
    ) -> None: ...

class CLEAR(Face):
    """Trains with CLEAR, against forgetting; settings are the fields of `penstock.algorithms.clear.CLEARConfig`.

    Parameters
    ----------
    env
        Environment: a Gymnasium id, "EnvPool/Id", "module:Class" or "file.py:Class"; in Python also a class, or a
        callable that returns an environment.
    num_workers
        Rollout workers; with backend="ray", per node. None: one per core, at most 16.
    num_envs_per_worker
        Environments per rollout worker; with one agent each, also its number of lanes.
    device
        Torch device of the learner and of central inference: "cpu", "cuda", "cuda:1", ...
    seed
        Seed of weights, environments and exploration.
    learning_rate
        Step size of the optimiser, or a function of progress in [0, 1]: "module:name" or "file.py:name", in Python also
        the function itself.
    total_steps
        Budget in steps; schedules span it.
    target_return
        The run ends when the mean return of an evaluation reaches this value; None: no target.
    run_dir
        Directory of the run; "auto": runs/<env>-<algorithm>-<time>; None: nothing is written.
    env_kwargs
        Keyword arguments of the environment's constructor.
    vectorize
        "make": one environment per lane; "vector": one vector environment per group of lanes.
    on_env_error
        On an exception or NaN in an environment: "stop" the run, or "restart" the rollout worker and count the error.
    reward_scale
        Factor applied to rewards for learning; reported returns stay unscaled.
    reward_clip
        Scaled rewards are clipped to [-reward_clip, reward_clip] for learning; reported returns stay unclipped. None:
        no clipping.
    num_agents
        Agents per environment, each of which is a lane; None: the number that the environment declares.
    team_reward
        With several agents, reward of each: its own, or the mean or sum over its team.
    num_policies
        Number of policies with identical settings. They are assigned to the agents in turn; with one agent per
        environment, each policy gets its own environments.
    policies
        Policies by name, each with its own settings; with several agents also ``agents``, one or more patterns of agent
        names.
    policy_of
        Function that maps (agent, environment index) to a policy name, instead of ``agents``; the agent is "" in
        environments with one agent. "module:function" or "file.py:function"; in Python also the function itself.
    seats
        With several policies and agents. "fixed": each policy always plays its own agents; "shuffled": agents are
        redistributed among the policies at random before each game, the number per policy unchanged.
    opponents
        With several agents, opponents that do not learn. "past": some games use frozen past versions as opponents; with
        one policy they play all seats but one, with several policies one policy learns in the game and past versions of
        the others play the remaining agents. The name of a policy: some games use its newest weights, without learning
        from them. "none": every seat learns.
    opponent_pool
        Number of past versions kept as opponents, per policy.
    opponent_interval
        Steps between two versions added to the pool; None: total_steps / 20.
    opponent_share
        Share of games played against opponents that do not learn.
    opponent_sampling
        "uniform": past versions are drawn with equal probability; "hard": in proportion to (1 - win rate)^2 against
        them.
    eval_against
        With several agents, opponents in evaluations: "random", "best", or a class or function as "module:name" or
        "file.py:name", in Python also itself; with several policies also "others", the other policies. Empty: one
        policy plays all seats, or the policies play each other.
    pbt
        Population-based training of the run's policies: at intervals a weak policy becomes a copy of a stronger one,
        with perturbed settings. "truncation": the worst are replaced by the best; "tournament": a policy that loses
        against a random other is replaced by it; "sample-factory": as "truncation", and settings of the policies in
        between are perturbed in place.
    pbt_space
        Settings that may change: a TOML file with a table per setting, as for `penstock search`; in Python also the
        tables.
    pbt_interval
        Steps of each policy between two decisions about it; None: a twentieth of its share of total_steps.
    pbt_start
        Steps of each policy before the first decision about it; None: pbt_interval.
    pbt_fraction
        Share of the policies that counts as the worst, and as the best; None: 0.2, for "sample-factory" 0.3.
    pbt_metric
        Metric that ranks policies: "return", the mean return of training episodes, or a name in info["metrics"].
    pbt_episodes
        Episodes since its last replacement that a policy needs to be ranked.
    schedule
        Tunable settings over the steps of the policy, which override the settings themselves: a population's
        lineage.jsonl or run directory, or {steps: {setting: value}}, on the command line as JSON.
    schedule_policy
        Policy of the lineage whose schedule is followed; None: the one with the best final score.
    num_groups
        Groups of environments per worker that step in turn; None: 2 with central inference, 1 with local.
    inference
        "local": each rollout worker chooses its own actions; "central": a policy worker batches requests of several
        rollout workers; "auto": central on a GPU, local on a CPU and with backend="ray".
    backend
        "local": one process per role; "serial": everything in this process, bit-for-bit reproducible; "ray": the nodes
        of a Ray cluster step the lanes.
    address
        With backend="ray", address of the cluster's head node, or "auto"; None: a cluster on this machine, started for
        the run.
    nodes
        With backend="ray", number of nodes that step lanes, "all", or the number of nodes with a custom Ray resource,
        by resource name.
    evaluator
        With backend="ray", machine that runs evaluations: "home", or "node", the first node, on a core besides those of
        its rollout workers.
    num_learners
        Learners of the policy, one process each, with device="cuda" one GPU each; each computes a share of every
        update. With backend="local" and central inference, each has its own policy worker.
    learner_nodes
        With backend="ray", number of learners on separate nodes, or the number on nodes with a custom Ray resource, by
        resource name. The first learner always runs at home.
    precision
        Arithmetic of the network's body (bfloat16 through autocast); heads, losses and weights stay float32. "auto":
        bfloat16 where the role's GPU or CPU is faster with it, else float32.
    encoder
        "mlp", "nature_cnn", "impala_resnet", or "auto" (by observation); a custom nn.Module as "module:Class" or
        "file.py:Class", in Python also the class itself or a callable.
    hidden_sizes
        Widths of the mlp encoder's hidden layers.
    activation
        Activation of the mlp encoder.
    normalize_observations
        Running normalisation of float observations; its statistics are part of the weights.
    memory
        Memory core after the encoder.
    memory_size
        Width of the memory core.
    memory_span
        Steps over which an untrained memory core remembers (chrono initialisation, arXiv:1804.11188); None: default
        initialisation.
    shared_encoder
        One encoder for policy and value; None: shared for images, memory and custom modules, separate for mlp.
    rewards
        "environment": learn from the environment's rewards; "rudder": redistribute delayed rewards to the steps that
        earned them, by a network trained beside the policy. Reported returns stay unchanged.
    redistribution_attribution
        Credit of a step: the difference that it makes to the prediction, or integrated gradients.
    redistribution_points
        Points on the path of integrated gradients.
    redistribution_max_error
        Original rewards are used while predictions leave more than this share of the returns' variance unexplained.
    redistributor_size
        Memory cells of the network that predicts returns.
    redistributor_learning_rate
        Step size of this network's optimiser.
    redistributor_interval
        Steps of the run per update of this network.
    redistributor_batch_size
        Episodes per update of this network.
    redistributor_lessons
        Capacity of this network's episode buffer; the episodes with the largest prediction errors are kept.
    redistributor_chunk
        Steps of truncated backpropagation; longer episodes are cut into chunks that overlap by half.
    redistributor_max_steps
        Longest episode to learn from.
    redistribution_value
        Rewards that values are learned from: "redistributed", as for the policy; "original", with redistributed rewards
        mixed into the policy's advantages, as in the paper's Atari experiments.
    redistribution_share
        With original values, largest share of redistributed rewards in the advantages.
    redistribution_trace
        With original values, share of each redistributed reward that is also credited to the preceding step.
    gamma
        Discount per step.
    learning_rate_schedule
        "linear", as published: a numeric learning_rate decays to 0 over total_steps. Ignored when learning_rate is a
        function.
    burn_in
        First steps of each segment that only warm up the memory state: no loss, no gradient.
    max_grad_norm
        Global norm to which gradients are clipped.
    segment_length
        Steps per segment (T).
    entropy_coef
        Weight of the entropy bonus, or a function of progress as for learning_rate.
    entropy_coef_final
        Final weight of the entropy bonus: a numeric entropy_coef moves linearly to it over total_steps; None: constant.
    value_coef
        Weight of the value loss.
    normalize_returns
        Running normalisation of value targets; its statistics are part of the weights.
    batch_size
        Steps per update.
    max_policy_lag
        Steps whose action was chosen by weights at least this many versions old are masked out of the loss.
    replay
        Composition of each batch: sources as kind:share,setting=value. Shares are exact, such as 0.5 or 7/8. Kinds:
        queue (fresh segments), uniform, reservoir, prioritized, attentive, elite.
    rmsprop_decay
        Decay rate of the running mean of squared gradients.
    rmsprop_eps
        Constant that bounds steps where gradients are small.
    rmsprop_eps_inside
        True: g / sqrt(s + eps), as in TensorFlow 1 and the papers' code; False: g / (sqrt(s) + eps).
    vtrace_lambda
        Lambda of V-trace's targets: weight of longer returns.
    rho_bar
        Bound on the probability ratio in the temporal difference; determines the policy whose value is learned.
    c_bar
        Bound on the probability ratio in the trace; determines the speed of convergence.
    rho_pg_bar
        Bound on the probability ratio in the policy gradient.
    reduction
        "sum": losses are summed over the steps of a batch, as published; "mean": averaged. Learning rate and gradient
        clipping must match.
    policy_cloning_coef
        Weight of KL(mu || pi) on replayed steps, with mu the policy that acted.
    value_cloning_coef
        Weight of the squared difference to the value recorded while acting, on replayed steps.
    max_seconds
        Budget in seconds of wall-clock time. The final evaluation may take an extra tenth of it, at least 10 s.
    eval_interval
        Steps between evaluations; below 1, a fraction of total_steps; "continuous": back to back, always with the
        newest weights; 0: never. None: total_steps / 20, or with a target_return at most a fifth of the time (serial:
        after each batch).
    eval_episodes
        Episodes per evaluation; in games, episodes per opponent and seat or policy.
    eval_exploration
        Evaluations sample actions; algorithms without sampling explore as at the end of training.
    eval_max_steps
        Steps after which an evaluation gives an episode up and plays another; it counts as far as it came.
    checkpoint_interval
        Steps between checkpoints; 0: only at the end; None: total_steps / 10.
    keep_checkpoints
        Number of checkpoints kept, besides the best.
    save_replay
        Store replayed segments in checkpoints; learning pauses meanwhile. A run resumed without them refills its
        sources before it learns.
    """

    def __init__(
        self,
        env: str | Callable[..., Any] = ...,
        *,
        preset: str | os.PathLike[str] | None = None,
        num_workers: int | None = None,
        num_envs_per_worker: int = 16,
        device: str = "cpu",
        seed: int = 0,
        learning_rate: float | str | Callable[[float], float] = 0.002,
        total_steps: int = 1000000,
        target_return: float | None = None,
        run_dir: str | os.PathLike[str] | None = "auto",
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
        num_groups: int | None = None,
        inference: Literal["auto", "local", "central"] = "auto",
        backend: Literal["local", "serial", "ray"] = "local",
        address: str | None = None,
        nodes: int | Literal["all"] | dict[str, int] = 1,
        evaluator: Literal["home", "node"] = "home",
        num_learners: int = 1,
        learner_nodes: int | dict[str, int] = 0,
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
        max_seconds: float | None = None,
        eval_interval: int | float | Literal["continuous"] | None = None,
        eval_episodes: int = 20,
        eval_exploration: bool = False,
        eval_max_steps: int = 30000,
        checkpoint_interval: int | None = None,
        keep_checkpoints: int = 3,
        save_replay: bool = False,
    ) -> None: ...

class LASER(Face):
    """Trains with LASER, mostly from replay; settings are the fields of `penstock.algorithms.laser.LASERConfig`.

    Parameters
    ----------
    env
        Environment: a Gymnasium id, "EnvPool/Id", "module:Class" or "file.py:Class"; in Python also a class, or a
        callable that returns an environment.
    num_workers
        Rollout workers; with backend="ray", per node. None: one per core, at most 16.
    num_envs_per_worker
        Environments per rollout worker; with one agent each, also its number of lanes.
    device
        Torch device of the learner and of central inference: "cpu", "cuda", "cuda:1", ...
    seed
        Seed of weights, environments and exploration.
    learning_rate
        Step size of the optimiser, or a function of progress in [0, 1]: "module:name" or "file.py:name", in Python also
        the function itself.
    total_steps
        Budget in steps; schedules span it.
    target_return
        The run ends when the mean return of an evaluation reaches this value; None: no target.
    run_dir
        Directory of the run; "auto": runs/<env>-<algorithm>-<time>; None: nothing is written.
    env_kwargs
        Keyword arguments of the environment's constructor.
    vectorize
        "make": one environment per lane; "vector": one vector environment per group of lanes.
    on_env_error
        On an exception or NaN in an environment: "stop" the run, or "restart" the rollout worker and count the error.
    reward_scale
        Factor applied to rewards for learning; reported returns stay unscaled.
    reward_clip
        Scaled rewards are clipped to [-reward_clip, reward_clip] for learning; reported returns stay unclipped. None:
        no clipping.
    num_agents
        Agents per environment, each of which is a lane; None: the number that the environment declares.
    team_reward
        With several agents, reward of each: its own, or the mean or sum over its team.
    num_policies
        Number of policies with identical settings. They are assigned to the agents in turn; with one agent per
        environment, each policy gets its own environments.
    policies
        Policies by name, each with its own settings; with several agents also ``agents``, one or more patterns of agent
        names.
    policy_of
        Function that maps (agent, environment index) to a policy name, instead of ``agents``; the agent is "" in
        environments with one agent. "module:function" or "file.py:function"; in Python also the function itself.
    seats
        With several policies and agents. "fixed": each policy always plays its own agents; "shuffled": agents are
        redistributed among the policies at random before each game, the number per policy unchanged.
    opponents
        With several agents, opponents that do not learn. "past": some games use frozen past versions as opponents; with
        one policy they play all seats but one, with several policies one policy learns in the game and past versions of
        the others play the remaining agents. The name of a policy: some games use its newest weights, without learning
        from them. "none": every seat learns.
    opponent_pool
        Number of past versions kept as opponents, per policy.
    opponent_interval
        Steps between two versions added to the pool; None: total_steps / 20.
    opponent_share
        Share of games played against opponents that do not learn.
    opponent_sampling
        "uniform": past versions are drawn with equal probability; "hard": in proportion to (1 - win rate)^2 against
        them.
    eval_against
        With several agents, opponents in evaluations: "random", "best", or a class or function as "module:name" or
        "file.py:name", in Python also itself; with several policies also "others", the other policies. Empty: one
        policy plays all seats, or the policies play each other.
    pbt
        Population-based training of the run's policies: at intervals a weak policy becomes a copy of a stronger one,
        with perturbed settings. "truncation": the worst are replaced by the best; "tournament": a policy that loses
        against a random other is replaced by it; "sample-factory": as "truncation", and settings of the policies in
        between are perturbed in place.
    pbt_space
        Settings that may change: a TOML file with a table per setting, as for `penstock search`; in Python also the
        tables.
    pbt_interval
        Steps of each policy between two decisions about it; None: a twentieth of its share of total_steps.
    pbt_start
        Steps of each policy before the first decision about it; None: pbt_interval.
    pbt_fraction
        Share of the policies that counts as the worst, and as the best; None: 0.2, for "sample-factory" 0.3.
    pbt_metric
        Metric that ranks policies: "return", the mean return of training episodes, or a name in info["metrics"].
    pbt_episodes
        Episodes since its last replacement that a policy needs to be ranked.
    schedule
        Tunable settings over the steps of the policy, which override the settings themselves: a population's
        lineage.jsonl or run directory, or {steps: {setting: value}}, on the command line as JSON.
    schedule_policy
        Policy of the lineage whose schedule is followed; None: the one with the best final score.
    num_groups
        Groups of environments per worker that step in turn; None: 2 with central inference, 1 with local.
    inference
        "local": each rollout worker chooses its own actions; "central": a policy worker batches requests of several
        rollout workers; "auto": central on a GPU, local on a CPU and with backend="ray".
    backend
        "local": one process per role; "serial": everything in this process, bit-for-bit reproducible; "ray": the nodes
        of a Ray cluster step the lanes.
    address
        With backend="ray", address of the cluster's head node, or "auto"; None: a cluster on this machine, started for
        the run.
    nodes
        With backend="ray", number of nodes that step lanes, "all", or the number of nodes with a custom Ray resource,
        by resource name.
    evaluator
        With backend="ray", machine that runs evaluations: "home", or "node", the first node, on a core besides those of
        its rollout workers.
    num_learners
        Learners of the policy, one process each, with device="cuda" one GPU each; each computes a share of every
        update. With backend="local" and central inference, each has its own policy worker.
    learner_nodes
        With backend="ray", number of learners on separate nodes, or the number on nodes with a custom Ray resource, by
        resource name. The first learner always runs at home.
    precision
        Arithmetic of the network's body (bfloat16 through autocast); heads, losses and weights stay float32. "auto":
        bfloat16 where the role's GPU or CPU is faster with it, else float32.
    encoder
        "mlp", "nature_cnn", "impala_resnet", or "auto" (by observation); a custom nn.Module as "module:Class" or
        "file.py:Class", in Python also the class itself or a callable.
    hidden_sizes
        Widths of the mlp encoder's hidden layers.
    activation
        Activation of the mlp encoder.
    normalize_observations
        Running normalisation of float observations; its statistics are part of the weights.
    memory
        Memory core after the encoder.
    memory_size
        Width of the memory core.
    memory_span
        Steps over which an untrained memory core remembers (chrono initialisation, arXiv:1804.11188); None: default
        initialisation.
    shared_encoder
        One encoder for policy and value; None: shared for images, memory and custom modules, separate for mlp.
    rewards
        "environment": learn from the environment's rewards; "rudder": redistribute delayed rewards to the steps that
        earned them, by a network trained beside the policy. Reported returns stay unchanged.
    redistribution_attribution
        Credit of a step: the difference that it makes to the prediction, or integrated gradients.
    redistribution_points
        Points on the path of integrated gradients.
    redistribution_max_error
        Original rewards are used while predictions leave more than this share of the returns' variance unexplained.
    redistributor_size
        Memory cells of the network that predicts returns.
    redistributor_learning_rate
        Step size of this network's optimiser.
    redistributor_interval
        Steps of the run per update of this network.
    redistributor_batch_size
        Episodes per update of this network.
    redistributor_lessons
        Capacity of this network's episode buffer; the episodes with the largest prediction errors are kept.
    redistributor_chunk
        Steps of truncated backpropagation; longer episodes are cut into chunks that overlap by half.
    redistributor_max_steps
        Longest episode to learn from.
    redistribution_value
        Rewards that values are learned from: "redistributed", as for the policy; "original", with redistributed rewards
        mixed into the policy's advantages, as in the paper's Atari experiments.
    redistribution_share
        With original values, largest share of redistributed rewards in the advantages.
    redistribution_trace
        With original values, share of each redistributed reward that is also credited to the preceding step.
    gamma
        Discount per step.
    learning_rate_schedule
        "linear", as published: a numeric learning_rate decays to 0 over total_steps. Ignored when learning_rate is a
        function.
    burn_in
        First steps of each segment that only warm up the memory state: no loss, no gradient.
    max_grad_norm
        Global norm to which gradients are clipped.
    segment_length
        Steps per segment (T).
    entropy_coef
        Weight of the entropy bonus, or a function of progress as for learning_rate.
    entropy_coef_final
        Final weight of the entropy bonus: a numeric entropy_coef moves linearly to it over total_steps; None: constant.
    value_coef
        Weight of the value loss.
    normalize_returns
        Running normalisation of value targets; its statistics are part of the weights.
    batch_size
        Steps per update.
    max_policy_lag
        Steps whose action was chosen by weights at least this many versions old are masked out of the loss.
    replay
        Composition of each batch: sources as kind:share,setting=value. Shares are exact, such as 0.5 or 7/8. Kinds:
        queue (fresh segments), uniform, reservoir, prioritized, attentive, elite.
    rmsprop_decay
        Decay rate of the running mean of squared gradients.
    rmsprop_eps
        Constant that bounds steps where gradients are small.
    rmsprop_eps_inside
        True: g / sqrt(s + eps), as in TensorFlow 1 and the papers' code; False: g / (sqrt(s) + eps).
    vtrace_lambda
        Lambda of V-trace's targets: weight of longer returns.
    rho_bar
        Bound on the probability ratio in the temporal difference; determines the policy whose value is learned.
    c_bar
        Bound on the probability ratio in the trace; determines the speed of convergence.
    rho_pg_bar
        Bound on the probability ratio in the policy gradient.
    reduction
        "sum": losses are summed over the steps of a batch, as published; "mean": averaged. Learning rate and gradient
        clipping must match.
    trust_region
        States with a larger KL(pi || implied policy), in nats, are masked out of the loss, and traces end there.
    max_seconds
        Budget in seconds of wall-clock time. The final evaluation may take an extra tenth of it, at least 10 s.
    eval_interval
        Steps between evaluations; below 1, a fraction of total_steps; "continuous": back to back, always with the
        newest weights; 0: never. None: total_steps / 20, or with a target_return at most a fifth of the time (serial:
        after each batch).
    eval_episodes
        Episodes per evaluation; in games, episodes per opponent and seat or policy.
    eval_exploration
        Evaluations sample actions; algorithms without sampling explore as at the end of training.
    eval_max_steps
        Steps after which an evaluation gives an episode up and plays another; it counts as far as it came.
    checkpoint_interval
        Steps between checkpoints; 0: only at the end; None: total_steps / 10.
    keep_checkpoints
        Number of checkpoints kept, besides the best.
    save_replay
        Store replayed segments in checkpoints; learning pauses meanwhile. A run resumed without them refills its
        sources before it learns.
    """

    def __init__(
        self,
        env: str | Callable[..., Any] = ...,
        *,
        preset: str | os.PathLike[str] | None = None,
        num_workers: int | None = None,
        num_envs_per_worker: int = 16,
        device: str = "cpu",
        seed: int = 0,
        learning_rate: float | str | Callable[[float], float] = 0.002,
        total_steps: int = 1000000,
        target_return: float | None = None,
        run_dir: str | os.PathLike[str] | None = "auto",
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
        num_groups: int | None = None,
        inference: Literal["auto", "local", "central"] = "auto",
        backend: Literal["local", "serial", "ray"] = "local",
        address: str | None = None,
        nodes: int | Literal["all"] | dict[str, int] = 1,
        evaluator: Literal["home", "node"] = "home",
        num_learners: int = 1,
        learner_nodes: int | dict[str, int] = 0,
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
        max_seconds: float | None = None,
        eval_interval: int | float | Literal["continuous"] | None = None,
        eval_episodes: int = 20,
        eval_exploration: bool = False,
        eval_max_steps: int = 30000,
        checkpoint_interval: int | None = None,
        keep_checkpoints: int = 3,
        save_replay: bool = False,
    ) -> None: ...

class PQN(Face):
    """Trains with PQN, Q-learning without replay; settings are the fields of `penstock.algorithms.pqn.PQNConfig`.

    Parameters
    ----------
    env
        Environment: a Gymnasium id, "EnvPool/Id", "module:Class" or "file.py:Class"; in Python also a class, or a
        callable that returns an environment.
    num_workers
        Rollout workers; with backend="ray", per node. None: one per core, at most 16.
    num_envs_per_worker
        Environments per rollout worker; with one agent each, also its number of lanes.
    device
        Torch device of the learner and of central inference: "cpu", "cuda", "cuda:1", ...
    seed
        Seed of weights, environments and exploration.
    learning_rate
        Step size of the optimiser, or a function of progress in [0, 1]: "module:name" or "file.py:name", in Python also
        the function itself.
    total_steps
        Budget in steps; schedules span it.
    target_return
        The run ends when the mean return of an evaluation reaches this value; None: no target.
    run_dir
        Directory of the run; "auto": runs/<env>-<algorithm>-<time>; None: nothing is written.
    env_kwargs
        Keyword arguments of the environment's constructor.
    vectorize
        "make": one environment per lane; "vector": one vector environment per group of lanes.
    on_env_error
        On an exception or NaN in an environment: "stop" the run, or "restart" the rollout worker and count the error.
    reward_scale
        Factor applied to rewards for learning; reported returns stay unscaled.
    reward_clip
        Scaled rewards are clipped to [-reward_clip, reward_clip] for learning; reported returns stay unclipped. None:
        no clipping.
    num_agents
        Agents per environment, each of which is a lane; None: the number that the environment declares.
    team_reward
        With several agents, reward of each: its own, or the mean or sum over its team.
    num_policies
        Number of policies with identical settings. They are assigned to the agents in turn; with one agent per
        environment, each policy gets its own environments.
    policies
        Policies by name, each with its own settings; with several agents also ``agents``, one or more patterns of agent
        names.
    policy_of
        Function that maps (agent, environment index) to a policy name, instead of ``agents``; the agent is "" in
        environments with one agent. "module:function" or "file.py:function"; in Python also the function itself.
    seats
        With several policies and agents. "fixed": each policy always plays its own agents; "shuffled": agents are
        redistributed among the policies at random before each game, the number per policy unchanged.
    opponents
        With several agents, opponents that do not learn. "past": some games use frozen past versions as opponents; with
        one policy they play all seats but one, with several policies one policy learns in the game and past versions of
        the others play the remaining agents. The name of a policy: some games use its newest weights, without learning
        from them. "none": every seat learns.
    opponent_pool
        Number of past versions kept as opponents, per policy.
    opponent_interval
        Steps between two versions added to the pool; None: total_steps / 20.
    opponent_share
        Share of games played against opponents that do not learn.
    opponent_sampling
        "uniform": past versions are drawn with equal probability; "hard": in proportion to (1 - win rate)^2 against
        them.
    eval_against
        With several agents, opponents in evaluations: "random", "best", or a class or function as "module:name" or
        "file.py:name", in Python also itself; with several policies also "others", the other policies. Empty: one
        policy plays all seats, or the policies play each other.
    pbt
        Population-based training of the run's policies: at intervals a weak policy becomes a copy of a stronger one,
        with perturbed settings. "truncation": the worst are replaced by the best; "tournament": a policy that loses
        against a random other is replaced by it; "sample-factory": as "truncation", and settings of the policies in
        between are perturbed in place.
    pbt_space
        Settings that may change: a TOML file with a table per setting, as for `penstock search`; in Python also the
        tables.
    pbt_interval
        Steps of each policy between two decisions about it; None: a twentieth of its share of total_steps.
    pbt_start
        Steps of each policy before the first decision about it; None: pbt_interval.
    pbt_fraction
        Share of the policies that counts as the worst, and as the best; None: 0.2, for "sample-factory" 0.3.
    pbt_metric
        Metric that ranks policies: "return", the mean return of training episodes, or a name in info["metrics"].
    pbt_episodes
        Episodes since its last replacement that a policy needs to be ranked.
    schedule
        Tunable settings over the steps of the policy, which override the settings themselves: a population's
        lineage.jsonl or run directory, or {steps: {setting: value}}, on the command line as JSON.
    schedule_policy
        Policy of the lineage whose schedule is followed; None: the one with the best final score.
    num_groups
        Groups of environments per worker that step in turn; None: 2 with central inference, 1 with local.
    inference
        "local": each rollout worker chooses its own actions; "central": a policy worker batches requests of several
        rollout workers; "auto": central on a GPU, local on a CPU and with backend="ray".
    backend
        "local": one process per role; "serial": everything in this process, bit-for-bit reproducible; "ray": the nodes
        of a Ray cluster step the lanes.
    address
        With backend="ray", address of the cluster's head node, or "auto"; None: a cluster on this machine, started for
        the run.
    nodes
        With backend="ray", number of nodes that step lanes, "all", or the number of nodes with a custom Ray resource,
        by resource name.
    evaluator
        With backend="ray", machine that runs evaluations: "home", or "node", the first node, on a core besides those of
        its rollout workers.
    num_learners
        Learners of the policy, one process each, with device="cuda" one GPU each; each computes a share of every
        update. With backend="local" and central inference, each has its own policy worker.
    learner_nodes
        With backend="ray", number of learners on separate nodes, or the number on nodes with a custom Ray resource, by
        resource name. The first learner always runs at home.
    precision
        Arithmetic of the network's body (bfloat16 through autocast); heads, losses and weights stay float32. "auto":
        bfloat16 where the role's GPU or CPU is faster with it, else float32.
    encoder
        "mlp", "nature_cnn", "impala_resnet", or "auto" (by observation); a custom nn.Module as "module:Class" or
        "file.py:Class", in Python also the class itself or a callable.
    hidden_sizes
        Widths of the hidden layers of mlp networks.
    activation
        Activation of mlp networks.
    normalize_observations
        Running normalisation of float observations; its statistics are part of the weights.
    memory
        Memory core after the encoder.
    memory_size
        Width of the memory core.
    memory_span
        Steps over which an untrained memory core remembers (chrono initialisation, arXiv:1804.11188); None: default
        initialisation.
    rewards
        "environment": learn from the environment's rewards; "rudder": redistribute delayed rewards to the steps that
        earned them, by a network trained beside the policy. Reported returns stay unchanged.
    redistribution_attribution
        Credit of a step: the difference that it makes to the prediction, or integrated gradients.
    redistribution_points
        Points on the path of integrated gradients.
    redistribution_max_error
        Original rewards are used while predictions leave more than this share of the returns' variance unexplained.
    redistributor_size
        Memory cells of the network that predicts returns.
    redistributor_learning_rate
        Step size of this network's optimiser.
    redistributor_interval
        Steps of the run per update of this network.
    redistributor_batch_size
        Episodes per update of this network.
    redistributor_lessons
        Capacity of this network's episode buffer; the episodes with the largest prediction errors are kept.
    redistributor_chunk
        Steps of truncated backpropagation; longer episodes are cut into chunks that overlap by half.
    redistributor_max_steps
        Longest episode to learn from.
    redistribution_value
        Rewards that values are learned from: "redistributed", as for the policy; "original", with redistributed rewards
        mixed into the policy's advantages, as in the paper's Atari experiments.
    redistribution_share
        With original values, largest share of redistributed rewards in the advantages.
    redistribution_trace
        With original values, share of each redistributed reward that is also credited to the preceding step.
    gamma
        Discount per step.
    learning_rate_schedule
        "linear": a numeric learning_rate decays to 0 over total_steps. Ignored when learning_rate is a function.
    burn_in
        First steps of each segment that only warm up the memory state: no loss, no gradient.
    max_grad_norm
        Global norm to which gradients are clipped.
    segment_length
        Steps per segment (T).
    layer_norm
        Layer normalisation before each activation of the encoder (section 3.3); custom encoders are left unchanged.
    batch_size
        Steps per update (one minibatch); the segments of all lanes together are a multiple of it.
    num_epochs
        Passes over each batch.
    q_lambda
        Lambda of the returns that action values regress on: 0, one step; 1, the rest of the segment.
    exploration
        Probability of a random action at the start.
    exploration_final
        Probability of a random action after exploration_steps.
    exploration_steps
        Steps over which this probability decays linearly.
    max_seconds
        Budget in seconds of wall-clock time. The final evaluation may take an extra tenth of it, at least 10 s.
    eval_interval
        Steps between evaluations; below 1, a fraction of total_steps; "continuous": back to back, always with the
        newest weights; 0: never. None: total_steps / 20, or with a target_return at most a fifth of the time (serial:
        after each batch).
    eval_episodes
        Episodes per evaluation; in games, episodes per opponent and seat or policy.
    eval_exploration
        Evaluations sample actions; algorithms without sampling explore as at the end of training.
    eval_max_steps
        Steps after which an evaluation gives an episode up and plays another; it counts as far as it came.
    checkpoint_interval
        Steps between checkpoints; 0: only at the end; None: total_steps / 10.
    keep_checkpoints
        Number of checkpoints kept, besides the best.
    """

    def __init__(
        self,
        env: str | Callable[..., Any] = ...,
        *,
        preset: str | os.PathLike[str] | None = None,
        num_workers: int | None = None,
        num_envs_per_worker: int = 16,
        device: str = "cpu",
        seed: int = 0,
        learning_rate: float | str | Callable[[float], float] = 0.001,
        total_steps: int = 500000,
        target_return: float | None = None,
        run_dir: str | os.PathLike[str] | None = "auto",
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
        num_groups: int | None = None,
        inference: Literal["auto", "local", "central"] = "auto",
        backend: Literal["local", "serial", "ray"] = "local",
        address: str | None = None,
        nodes: int | Literal["all"] | dict[str, int] = 1,
        evaluator: Literal["home", "node"] = "home",
        num_learners: int = 1,
        learner_nodes: int | dict[str, int] = 0,
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
        max_seconds: float | None = None,
        eval_interval: int | float | Literal["continuous"] | None = None,
        eval_episodes: int = 20,
        eval_exploration: bool = False,
        eval_max_steps: int = 30000,
        checkpoint_interval: int | None = None,
        keep_checkpoints: int = 3,
    ) -> None: ...

class DQN(Face):
    """Trains with DQN and its extensions; settings are the fields of `penstock.algorithms.dqn.DQNConfig`.

    Parameters
    ----------
    env
        Environment: a Gymnasium id, "EnvPool/Id", "module:Class" or "file.py:Class"; in Python also a class, or a
        callable that returns an environment.
    num_workers
        Rollout workers; with backend="ray", per node. None: one per core, at most 16.
    num_envs_per_worker
        Environments per rollout worker; with one agent each, also its number of lanes.
    device
        Torch device of the learner and of central inference: "cpu", "cuda", "cuda:1", ...
    seed
        Seed of weights, environments and exploration.
    learning_rate
        Step size of the optimiser, or a function of progress in [0, 1]: "module:name" or "file.py:name", in Python also
        the function itself.
    total_steps
        Budget in steps; schedules span it.
    target_return
        The run ends when the mean return of an evaluation reaches this value; None: no target.
    run_dir
        Directory of the run; "auto": runs/<env>-<algorithm>-<time>; None: nothing is written.
    env_kwargs
        Keyword arguments of the environment's constructor.
    vectorize
        "make": one environment per lane; "vector": one vector environment per group of lanes.
    on_env_error
        On an exception or NaN in an environment: "stop" the run, or "restart" the rollout worker and count the error.
    reward_scale
        Factor applied to rewards for learning; reported returns stay unscaled.
    reward_clip
        Scaled rewards are clipped to [-reward_clip, reward_clip] for learning; reported returns stay unclipped. None:
        no clipping.
    num_agents
        Agents per environment, each of which is a lane; None: the number that the environment declares.
    team_reward
        With several agents, reward of each: its own, or the mean or sum over its team.
    num_policies
        Number of policies with identical settings. They are assigned to the agents in turn; with one agent per
        environment, each policy gets its own environments.
    policies
        Policies by name, each with its own settings; with several agents also ``agents``, one or more patterns of agent
        names.
    policy_of
        Function that maps (agent, environment index) to a policy name, instead of ``agents``; the agent is "" in
        environments with one agent. "module:function" or "file.py:function"; in Python also the function itself.
    seats
        With several policies and agents. "fixed": each policy always plays its own agents; "shuffled": agents are
        redistributed among the policies at random before each game, the number per policy unchanged.
    opponents
        With several agents, opponents that do not learn. "past": some games use frozen past versions as opponents; with
        one policy they play all seats but one, with several policies one policy learns in the game and past versions of
        the others play the remaining agents. The name of a policy: some games use its newest weights, without learning
        from them. "none": every seat learns.
    opponent_pool
        Number of past versions kept as opponents, per policy.
    opponent_interval
        Steps between two versions added to the pool; None: total_steps / 20.
    opponent_share
        Share of games played against opponents that do not learn.
    opponent_sampling
        "uniform": past versions are drawn with equal probability; "hard": in proportion to (1 - win rate)^2 against
        them.
    eval_against
        With several agents, opponents in evaluations: "random", "best", or a class or function as "module:name" or
        "file.py:name", in Python also itself; with several policies also "others", the other policies. Empty: one
        policy plays all seats, or the policies play each other.
    pbt
        Population-based training of the run's policies: at intervals a weak policy becomes a copy of a stronger one,
        with perturbed settings. "truncation": the worst are replaced by the best; "tournament": a policy that loses
        against a random other is replaced by it; "sample-factory": as "truncation", and settings of the policies in
        between are perturbed in place.
    pbt_space
        Settings that may change: a TOML file with a table per setting, as for `penstock search`; in Python also the
        tables.
    pbt_interval
        Steps of each policy between two decisions about it; None: a twentieth of its share of total_steps.
    pbt_start
        Steps of each policy before the first decision about it; None: pbt_interval.
    pbt_fraction
        Share of the policies that counts as the worst, and as the best; None: 0.2, for "sample-factory" 0.3.
    pbt_metric
        Metric that ranks policies: "return", the mean return of training episodes, or a name in info["metrics"].
    pbt_episodes
        Episodes since its last replacement that a policy needs to be ranked.
    schedule
        Tunable settings over the steps of the policy, which override the settings themselves: a population's
        lineage.jsonl or run directory, or {steps: {setting: value}}, on the command line as JSON.
    schedule_policy
        Policy of the lineage whose schedule is followed; None: the one with the best final score.
    num_groups
        Groups of environments per worker that step in turn; None: 2 with central inference, 1 with local.
    inference
        "local": each rollout worker chooses its own actions; "central": a policy worker batches requests of several
        rollout workers; "auto": central on a GPU, local on a CPU and with backend="ray".
    backend
        "local": one process per role; "serial": everything in this process, bit-for-bit reproducible; "ray": the nodes
        of a Ray cluster step the lanes.
    address
        With backend="ray", address of the cluster's head node, or "auto"; None: a cluster on this machine, started for
        the run.
    nodes
        With backend="ray", number of nodes that step lanes, "all", or the number of nodes with a custom Ray resource,
        by resource name.
    evaluator
        With backend="ray", machine that runs evaluations: "home", or "node", the first node, on a core besides those of
        its rollout workers.
    num_learners
        Learners of the policy, one process each, with device="cuda" one GPU each; each computes a share of every
        update. With backend="local" and central inference, each has its own policy worker.
    learner_nodes
        With backend="ray", number of learners on separate nodes, or the number on nodes with a custom Ray resource, by
        resource name. The first learner always runs at home.
    precision
        Arithmetic of the network's body (bfloat16 through autocast); heads, losses and weights stay float32. "auto":
        bfloat16 where the role's GPU or CPU is faster with it, else float32.
    encoder
        "mlp", "nature_cnn", "impala_resnet", or "auto" (by observation); a custom nn.Module as "module:Class" or
        "file.py:Class", in Python also the class itself or a callable.
    hidden_sizes
        Widths of the hidden layers of mlp networks.
    activation
        Activation of mlp networks.
    normalize_observations
        Running normalisation of float observations; its statistics are part of the weights.
    memory
        Memory core after the encoder; with one, sequences are replayed instead of transitions, as in R2D2.
    memory_size
        Width of the memory core.
    memory_span
        Steps over which an untrained memory core remembers (chrono initialisation, arXiv:1804.11188); None: default
        initialisation.
    dueling
        Dueling network (arXiv:1511.06581): separate streams for value and advantages.
    distributional
        Distribution of returns to learn: "none", the mean alone; "c51", probabilities of fixed returns
        (arXiv:1707.06887); "quantile", fixed quantiles, QR-DQN (arXiv:1710.10044); "iqn", quantiles at sampled
        fractions (arXiv:1806.06923).
    num_atoms
        Number of fixed returns of "c51" (arXiv:1707.06887, section 5).
    v_min
        Smallest return of the c51 support (published, for clipped rewards: -10); with rescale_values, a rescaled
        return.
    v_max
        Largest return of the c51 support (published, for clipped rewards: 10); with rescale_values, a rescaled return.
    num_quantiles
        Number of quantiles of "quantile" (published: 200), and of fractions that "iqn" samples for a value and for its
        target.
    noisy
        NoisyNets (arXiv:1706.10295): noise on the head's weights replaces random actions; exploration is ignored.
    noisy_sigma
        Initial scale of this noise, sigma_0 (arXiv:1706.10295, section 3.2).
    rewards
        "environment": learn from the environment's rewards; "rudder": redistribute delayed rewards to the steps that
        earned them, by a network trained beside the policy. Reported returns stay unchanged.
    redistribution_attribution
        Credit of a step: the difference that it makes to the prediction, or integrated gradients.
    redistribution_points
        Points on the path of integrated gradients.
    redistribution_max_error
        Original rewards are used while predictions leave more than this share of the returns' variance unexplained.
    redistributor_size
        Memory cells of the network that predicts returns.
    redistributor_learning_rate
        Step size of this network's optimiser.
    redistributor_interval
        Steps of the run per update of this network.
    redistributor_batch_size
        Episodes per update of this network.
    redistributor_lessons
        Capacity of this network's episode buffer; the episodes with the largest prediction errors are kept.
    redistributor_chunk
        Steps of truncated backpropagation; longer episodes are cut into chunks that overlap by half.
    redistributor_max_steps
        Longest episode to learn from.
    gamma
        Discount per step.
    learning_rate_schedule
        "linear": a numeric learning_rate decays to 0 over total_steps. Ignored when learning_rate is a function.
    batch_size
        Transitions per update, drawn from the replay buffer; with memory, sequences.
    buffer_size
        Capacity of the replay buffer in transitions; the oldest is overwritten.
    learning_starts
        Steps before the first update; continuous actions are uniformly random until then.
    updates_per_step
        Updates per step (published: one per four steps).
    ratio_slack
        Updates by which either side may be ahead; None: a few, with backend="serial" those due for one step of all
        lanes.
    n_step
        Length n of n-step returns, shorter at the end of an episode.
    publish_interval
        Updates between two publications of the weights to the acting roles.
    hindsight
        Hindsight experience replay (arXiv:1707.01495): ended episodes are stored again with achieved goals as desired
        goals: goals of the same or later steps ("future"), of any step ("episode"), or of the last step ("final").
        None: off.
    goals_per_step
        Relabelled goals per step, with hindsight="future" or "episode" (section 4.5: k).
    prioritized
        Prioritized replay (arXiv:1511.05952): transitions with large errors are drawn more often.
    priority_alpha
        Exponent of the priorities: 0, uniform; 1, proportional (arXiv:1511.05952).
    priority_beta
        Exponent of the importance weights at the start (arXiv:1511.05952).
    priority_beta_final
        Exponent of the importance weights at total_steps (arXiv:1511.05952).
    sequence_length
        Learned steps per sequence; without memory, all settings of sequences have no effect.
    burn_in
        Steps before these that only warm up the stored memory state: no loss, no gradient.
    sequence_overlap
        Learned steps shared by successive sequences of an episode.
    priority_eta
        Weight of the largest error in a sequence's priority; the mean error has the rest.
    optimizer
        "rmsprop": centred, decay 0.95, as published; "adam": as in most current implementations.
    optimizer_eps
        Constant that the optimiser adds to the root of the mean square.
    max_grad_norm
        Global norm to which gradients are clipped (arXiv:1511.06581); None: no clipping.
    double
        Double DQN (arXiv:1509.06461): the online network selects the action, the target network evaluates it.
    target_period
        Updates between two copies of the network to the target network.
    rescale_values
        Learn values of rescaled returns, h(x) = sign(x) (sqrt(|x| + 1) - 1) + x / 1000 (arXiv:1805.11593).
    exploration
        Probability of a random action at the start (doi:10.1038/nature14236).
    exploration_final
        Probability of a random action after exploration_steps.
    exploration_steps
        Steps over which this probability decays linearly.
    max_seconds
        Budget in seconds of wall-clock time. The final evaluation may take an extra tenth of it, at least 10 s.
    eval_interval
        Steps between evaluations; below 1, a fraction of total_steps; "continuous": back to back, always with the
        newest weights; 0: never. None: total_steps / 20, or with a target_return at most a fifth of the time (serial:
        after each batch).
    eval_episodes
        Episodes per evaluation; in games, episodes per opponent and seat or policy.
    eval_exploration
        Evaluations sample actions; algorithms without sampling explore as at the end of training.
    eval_max_steps
        Steps after which an evaluation gives an episode up and plays another; it counts as far as it came.
    checkpoint_interval
        Steps between checkpoints; 0: only at the end; None: total_steps / 10.
    keep_checkpoints
        Number of checkpoints kept, besides the best.
    save_replay
        Store the replay buffer in checkpoints, incrementally; learning pauses meanwhile. A run resumed without it
        refills the buffer before it learns.
    """

    def __init__(
        self,
        env: str | Callable[..., Any] = ...,
        *,
        preset: str | os.PathLike[str] | None = None,
        num_workers: int | None = None,
        num_envs_per_worker: int = 1,
        device: str = "cpu",
        seed: int = 0,
        learning_rate: float | str | Callable[[float], float] = 0.002,
        total_steps: int = 1000000,
        target_return: float | None = None,
        run_dir: str | os.PathLike[str] | None = "auto",
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
        num_groups: int | None = None,
        inference: Literal["auto", "local", "central"] = "auto",
        backend: Literal["local", "serial", "ray"] = "local",
        address: str | None = None,
        nodes: int | Literal["all"] | dict[str, int] = 1,
        evaluator: Literal["home", "node"] = "home",
        num_learners: int = 1,
        learner_nodes: int | dict[str, int] = 0,
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
        max_seconds: float | None = None,
        eval_interval: int | float | Literal["continuous"] | None = None,
        eval_episodes: int = 20,
        eval_exploration: bool = False,
        eval_max_steps: int = 30000,
        checkpoint_interval: int | None = None,
        keep_checkpoints: int = 3,
        save_replay: bool = False,
    ) -> None: ...

class Rainbow(Face):
    """Trains with Rainbow, six extensions of DQN; settings are those of `penstock.algorithms.rainbow.RainbowConfig`.

    Parameters
    ----------
    env
        Environment: a Gymnasium id, "EnvPool/Id", "module:Class" or "file.py:Class"; in Python also a class, or a
        callable that returns an environment.
    num_workers
        Rollout workers; with backend="ray", per node. None: one per core, at most 16.
    num_envs_per_worker
        Environments per rollout worker; with one agent each, also its number of lanes.
    device
        Torch device of the learner and of central inference: "cpu", "cuda", "cuda:1", ...
    seed
        Seed of weights, environments and exploration.
    learning_rate
        Step size of the optimiser, or a function of progress in [0, 1]: "module:name" or "file.py:name", in Python also
        the function itself.
    total_steps
        Budget in steps; schedules span it.
    target_return
        The run ends when the mean return of an evaluation reaches this value; None: no target.
    run_dir
        Directory of the run; "auto": runs/<env>-<algorithm>-<time>; None: nothing is written.
    env_kwargs
        Keyword arguments of the environment's constructor.
    vectorize
        "make": one environment per lane; "vector": one vector environment per group of lanes.
    on_env_error
        On an exception or NaN in an environment: "stop" the run, or "restart" the rollout worker and count the error.
    reward_scale
        Factor applied to rewards for learning; reported returns stay unscaled.
    reward_clip
        Scaled rewards are clipped to [-reward_clip, reward_clip] for learning; reported returns stay unclipped. None:
        no clipping.
    num_agents
        Agents per environment, each of which is a lane; None: the number that the environment declares.
    team_reward
        With several agents, reward of each: its own, or the mean or sum over its team.
    num_policies
        Number of policies with identical settings. They are assigned to the agents in turn; with one agent per
        environment, each policy gets its own environments.
    policies
        Policies by name, each with its own settings; with several agents also ``agents``, one or more patterns of agent
        names.
    policy_of
        Function that maps (agent, environment index) to a policy name, instead of ``agents``; the agent is "" in
        environments with one agent. "module:function" or "file.py:function"; in Python also the function itself.
    seats
        With several policies and agents. "fixed": each policy always plays its own agents; "shuffled": agents are
        redistributed among the policies at random before each game, the number per policy unchanged.
    opponents
        With several agents, opponents that do not learn. "past": some games use frozen past versions as opponents; with
        one policy they play all seats but one, with several policies one policy learns in the game and past versions of
        the others play the remaining agents. The name of a policy: some games use its newest weights, without learning
        from them. "none": every seat learns.
    opponent_pool
        Number of past versions kept as opponents, per policy.
    opponent_interval
        Steps between two versions added to the pool; None: total_steps / 20.
    opponent_share
        Share of games played against opponents that do not learn.
    opponent_sampling
        "uniform": past versions are drawn with equal probability; "hard": in proportion to (1 - win rate)^2 against
        them.
    eval_against
        With several agents, opponents in evaluations: "random", "best", or a class or function as "module:name" or
        "file.py:name", in Python also itself; with several policies also "others", the other policies. Empty: one
        policy plays all seats, or the policies play each other.
    pbt
        Population-based training of the run's policies: at intervals a weak policy becomes a copy of a stronger one,
        with perturbed settings. "truncation": the worst are replaced by the best; "tournament": a policy that loses
        against a random other is replaced by it; "sample-factory": as "truncation", and settings of the policies in
        between are perturbed in place.
    pbt_space
        Settings that may change: a TOML file with a table per setting, as for `penstock search`; in Python also the
        tables.
    pbt_interval
        Steps of each policy between two decisions about it; None: a twentieth of its share of total_steps.
    pbt_start
        Steps of each policy before the first decision about it; None: pbt_interval.
    pbt_fraction
        Share of the policies that counts as the worst, and as the best; None: 0.2, for "sample-factory" 0.3.
    pbt_metric
        Metric that ranks policies: "return", the mean return of training episodes, or a name in info["metrics"].
    pbt_episodes
        Episodes since its last replacement that a policy needs to be ranked.
    schedule
        Tunable settings over the steps of the policy, which override the settings themselves: a population's
        lineage.jsonl or run directory, or {steps: {setting: value}}, on the command line as JSON.
    schedule_policy
        Policy of the lineage whose schedule is followed; None: the one with the best final score.
    num_groups
        Groups of environments per worker that step in turn; None: 2 with central inference, 1 with local.
    inference
        "local": each rollout worker chooses its own actions; "central": a policy worker batches requests of several
        rollout workers; "auto": central on a GPU, local on a CPU and with backend="ray".
    backend
        "local": one process per role; "serial": everything in this process, bit-for-bit reproducible; "ray": the nodes
        of a Ray cluster step the lanes.
    address
        With backend="ray", address of the cluster's head node, or "auto"; None: a cluster on this machine, started for
        the run.
    nodes
        With backend="ray", number of nodes that step lanes, "all", or the number of nodes with a custom Ray resource,
        by resource name.
    evaluator
        With backend="ray", machine that runs evaluations: "home", or "node", the first node, on a core besides those of
        its rollout workers.
    num_learners
        Learners of the policy, one process each, with device="cuda" one GPU each; each computes a share of every
        update. With backend="local" and central inference, each has its own policy worker.
    learner_nodes
        With backend="ray", number of learners on separate nodes, or the number on nodes with a custom Ray resource, by
        resource name. The first learner always runs at home.
    precision
        Arithmetic of the network's body (bfloat16 through autocast); heads, losses and weights stay float32. "auto":
        bfloat16 where the role's GPU or CPU is faster with it, else float32.
    encoder
        "mlp", "nature_cnn", "impala_resnet", or "auto" (by observation); a custom nn.Module as "module:Class" or
        "file.py:Class", in Python also the class itself or a callable.
    hidden_sizes
        Widths of the hidden layers of mlp networks.
    activation
        Activation of mlp networks.
    normalize_observations
        Running normalisation of float observations; its statistics are part of the weights.
    memory
        Memory core after the encoder; with one, sequences are replayed instead of transitions, as in R2D2.
    memory_size
        Width of the memory core.
    memory_span
        Steps over which an untrained memory core remembers (chrono initialisation, arXiv:1804.11188); None: default
        initialisation.
    dueling
        Dueling network (arXiv:1511.06581): separate streams for value and advantages of every atom.
    distributional
        Distribution of returns to learn: "none", the mean alone; "c51", probabilities of fixed returns
        (arXiv:1707.06887); "quantile", fixed quantiles, QR-DQN (arXiv:1710.10044); "iqn", quantiles at sampled
        fractions (arXiv:1806.06923).
    num_atoms
        Number of fixed returns of "c51" (arXiv:1707.06887, section 5).
    v_min
        Smallest return of the c51 support (published, for clipped rewards: -10); with rescale_values, a rescaled
        return.
    v_max
        Largest return of the c51 support (published, for clipped rewards: 10); with rescale_values, a rescaled return.
    num_quantiles
        Number of quantiles of "quantile" (published: 200), and of fractions that "iqn" samples for a value and for its
        target.
    noisy
        NoisyNets (arXiv:1706.10295): noise on the head's weights replaces random actions; exploration is ignored.
    noisy_sigma
        Initial scale of this noise, sigma_0 (arXiv:1706.10295, section 3.2).
    rewards
        "environment": learn from the environment's rewards; "rudder": redistribute delayed rewards to the steps that
        earned them, by a network trained beside the policy. Reported returns stay unchanged.
    redistribution_attribution
        Credit of a step: the difference that it makes to the prediction, or integrated gradients.
    redistribution_points
        Points on the path of integrated gradients.
    redistribution_max_error
        Original rewards are used while predictions leave more than this share of the returns' variance unexplained.
    redistributor_size
        Memory cells of the network that predicts returns.
    redistributor_learning_rate
        Step size of this network's optimiser.
    redistributor_interval
        Steps of the run per update of this network.
    redistributor_batch_size
        Episodes per update of this network.
    redistributor_lessons
        Capacity of this network's episode buffer; the episodes with the largest prediction errors are kept.
    redistributor_chunk
        Steps of truncated backpropagation; longer episodes are cut into chunks that overlap by half.
    redistributor_max_steps
        Longest episode to learn from.
    gamma
        Discount per step.
    learning_rate_schedule
        "linear": a numeric learning_rate decays to 0 over total_steps. Ignored when learning_rate is a function.
    batch_size
        Transitions per update, drawn from the replay buffer; with memory, sequences.
    buffer_size
        Capacity of the replay buffer in transitions; the oldest is overwritten.
    learning_starts
        Steps before the first update; continuous actions are uniformly random until then.
    updates_per_step
        Updates per step (published: one per four steps).
    ratio_slack
        Updates by which either side may be ahead; None: a few, with backend="serial" those due for one step of all
        lanes.
    n_step
        Length n of n-step returns, shorter at the end of an episode (table 1).
    publish_interval
        Updates between two publications of the weights to the acting roles.
    hindsight
        Hindsight experience replay (arXiv:1707.01495): ended episodes are stored again with achieved goals as desired
        goals: goals of the same or later steps ("future"), of any step ("episode"), or of the last step ("final").
        None: off.
    goals_per_step
        Relabelled goals per step, with hindsight="future" or "episode" (section 4.5: k).
    prioritized
        Prioritized replay (arXiv:1511.05952), by the KL divergence that is the loss.
    priority_alpha
        Exponent of the priorities: 0, uniform; 1, proportional (table 1).
    priority_beta
        Exponent of the importance weights at the start (arXiv:1511.05952).
    priority_beta_final
        Exponent of the importance weights at total_steps (arXiv:1511.05952).
    sequence_length
        Learned steps per sequence; without memory, all settings of sequences have no effect.
    burn_in
        Steps before these that only warm up the stored memory state: no loss, no gradient.
    sequence_overlap
        Learned steps shared by successive sequences of an episode.
    priority_eta
        Weight of the largest error in a sequence's priority; the mean error has the rest.
    optimizer
        "rmsprop": centred, decay 0.95, as published; "adam": as in most current implementations.
    optimizer_eps
        Constant that the optimiser adds to the root of the mean square.
    max_grad_norm
        Global norm to which gradients are clipped (arXiv:1511.06581); None: no clipping.
    double
        Double DQN (arXiv:1509.06461): the online network selects the action, the target network evaluates it.
    target_period
        Updates between two copies of the network to the target network.
    rescale_values
        Learn values of rescaled returns, h(x) = sign(x) (sqrt(|x| + 1) - 1) + x / 1000 (arXiv:1805.11593).
    exploration
        Probability of a random action at the start (doi:10.1038/nature14236).
    exploration_final
        Probability of a random action after exploration_steps.
    exploration_steps
        Steps over which this probability decays linearly.
    max_seconds
        Budget in seconds of wall-clock time. The final evaluation may take an extra tenth of it, at least 10 s.
    eval_interval
        Steps between evaluations; below 1, a fraction of total_steps; "continuous": back to back, always with the
        newest weights; 0: never. None: total_steps / 20, or with a target_return at most a fifth of the time (serial:
        after each batch).
    eval_episodes
        Episodes per evaluation; in games, episodes per opponent and seat or policy.
    eval_exploration
        Evaluations sample actions; algorithms without sampling explore as at the end of training.
    eval_max_steps
        Steps after which an evaluation gives an episode up and plays another; it counts as far as it came.
    checkpoint_interval
        Steps between checkpoints; 0: only at the end; None: total_steps / 10.
    keep_checkpoints
        Number of checkpoints kept, besides the best.
    save_replay
        Store the replay buffer in checkpoints, incrementally; learning pauses meanwhile. A run resumed without it
        refills the buffer before it learns.
    """

    def __init__(
        self,
        env: str | Callable[..., Any] = ...,
        *,
        preset: str | os.PathLike[str] | None = None,
        num_workers: int | None = None,
        num_envs_per_worker: int = 1,
        device: str = "cpu",
        seed: int = 0,
        learning_rate: float | str | Callable[[float], float] = 0.001,
        total_steps: int = 1000000,
        target_return: float | None = None,
        run_dir: str | os.PathLike[str] | None = "auto",
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
        num_groups: int | None = None,
        inference: Literal["auto", "local", "central"] = "auto",
        backend: Literal["local", "serial", "ray"] = "local",
        address: str | None = None,
        nodes: int | Literal["all"] | dict[str, int] = 1,
        evaluator: Literal["home", "node"] = "home",
        num_learners: int = 1,
        learner_nodes: int | dict[str, int] = 0,
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
        max_seconds: float | None = None,
        eval_interval: int | float | Literal["continuous"] | None = None,
        eval_episodes: int = 20,
        eval_exploration: bool = False,
        eval_max_steps: int = 30000,
        checkpoint_interval: int | None = None,
        keep_checkpoints: int = 3,
        save_replay: bool = False,
    ) -> None: ...

class ApeX(Face):
    """Trains with Ape-X DQN; settings are the fields of `penstock.algorithms.apex.ApeXConfig`.

    Parameters
    ----------
    env
        Environment: a Gymnasium id, "EnvPool/Id", "module:Class" or "file.py:Class"; in Python also a class, or a
        callable that returns an environment.
    num_workers
        Rollout workers; with backend="ray", per node. None: one per core, at most 16.
    num_envs_per_worker
        Environments per rollout worker; with one agent each, also its number of lanes.
    device
        Torch device of the learner and of central inference: "cpu", "cuda", "cuda:1", ...
    seed
        Seed of weights, environments and exploration.
    learning_rate
        Step size of the optimiser, or a function of progress in [0, 1]: "module:name" or "file.py:name", in Python also
        the function itself.
    total_steps
        Budget in steps; schedules span it.
    target_return
        The run ends when the mean return of an evaluation reaches this value; None: no target.
    run_dir
        Directory of the run; "auto": runs/<env>-<algorithm>-<time>; None: nothing is written.
    env_kwargs
        Keyword arguments of the environment's constructor.
    vectorize
        "make": one environment per lane; "vector": one vector environment per group of lanes.
    on_env_error
        On an exception or NaN in an environment: "stop" the run, or "restart" the rollout worker and count the error.
    reward_scale
        Factor applied to rewards for learning; reported returns stay unscaled.
    reward_clip
        Scaled rewards are clipped to [-reward_clip, reward_clip] for learning; reported returns stay unclipped. None:
        no clipping.
    num_agents
        Agents per environment, each of which is a lane; None: the number that the environment declares.
    team_reward
        With several agents, reward of each: its own, or the mean or sum over its team.
    num_policies
        Number of policies with identical settings. They are assigned to the agents in turn; with one agent per
        environment, each policy gets its own environments.
    policies
        Policies by name, each with its own settings; with several agents also ``agents``, one or more patterns of agent
        names.
    policy_of
        Function that maps (agent, environment index) to a policy name, instead of ``agents``; the agent is "" in
        environments with one agent. "module:function" or "file.py:function"; in Python also the function itself.
    seats
        With several policies and agents. "fixed": each policy always plays its own agents; "shuffled": agents are
        redistributed among the policies at random before each game, the number per policy unchanged.
    opponents
        With several agents, opponents that do not learn. "past": some games use frozen past versions as opponents; with
        one policy they play all seats but one, with several policies one policy learns in the game and past versions of
        the others play the remaining agents. The name of a policy: some games use its newest weights, without learning
        from them. "none": every seat learns.
    opponent_pool
        Number of past versions kept as opponents, per policy.
    opponent_interval
        Steps between two versions added to the pool; None: total_steps / 20.
    opponent_share
        Share of games played against opponents that do not learn.
    opponent_sampling
        "uniform": past versions are drawn with equal probability; "hard": in proportion to (1 - win rate)^2 against
        them.
    eval_against
        With several agents, opponents in evaluations: "random", "best", or a class or function as "module:name" or
        "file.py:name", in Python also itself; with several policies also "others", the other policies. Empty: one
        policy plays all seats, or the policies play each other.
    pbt
        Population-based training of the run's policies: at intervals a weak policy becomes a copy of a stronger one,
        with perturbed settings. "truncation": the worst are replaced by the best; "tournament": a policy that loses
        against a random other is replaced by it; "sample-factory": as "truncation", and settings of the policies in
        between are perturbed in place.
    pbt_space
        Settings that may change: a TOML file with a table per setting, as for `penstock search`; in Python also the
        tables.
    pbt_interval
        Steps of each policy between two decisions about it; None: a twentieth of its share of total_steps.
    pbt_start
        Steps of each policy before the first decision about it; None: pbt_interval.
    pbt_fraction
        Share of the policies that counts as the worst, and as the best; None: 0.2, for "sample-factory" 0.3.
    pbt_metric
        Metric that ranks policies: "return", the mean return of training episodes, or a name in info["metrics"].
    pbt_episodes
        Episodes since its last replacement that a policy needs to be ranked.
    schedule
        Tunable settings over the steps of the policy, which override the settings themselves: a population's
        lineage.jsonl or run directory, or {steps: {setting: value}}, on the command line as JSON.
    schedule_policy
        Policy of the lineage whose schedule is followed; None: the one with the best final score.
    num_groups
        Groups of environments per worker that step in turn; None: 2 with central inference, 1 with local.
    inference
        "local": each rollout worker chooses its own actions; "central": a policy worker batches requests of several
        rollout workers; "auto": central on a GPU, local on a CPU and with backend="ray".
    backend
        "local": one process per role; "serial": everything in this process, bit-for-bit reproducible; "ray": the nodes
        of a Ray cluster step the lanes.
    address
        With backend="ray", address of the cluster's head node, or "auto"; None: a cluster on this machine, started for
        the run.
    nodes
        With backend="ray", number of nodes that step lanes, "all", or the number of nodes with a custom Ray resource,
        by resource name.
    evaluator
        With backend="ray", machine that runs evaluations: "home", or "node", the first node, on a core besides those of
        its rollout workers.
    num_learners
        Learners of the policy, one process each, with device="cuda" one GPU each; each computes a share of every
        update. With backend="local" and central inference, each has its own policy worker.
    learner_nodes
        With backend="ray", number of learners on separate nodes, or the number on nodes with a custom Ray resource, by
        resource name. The first learner always runs at home.
    precision
        Arithmetic of the network's body (bfloat16 through autocast); heads, losses and weights stay float32. "auto":
        bfloat16 where the role's GPU or CPU is faster with it, else float32.
    encoder
        "mlp", "nature_cnn", "impala_resnet", or "auto" (by observation); a custom nn.Module as "module:Class" or
        "file.py:Class", in Python also the class itself or a callable.
    hidden_sizes
        Widths of the hidden layers of mlp networks.
    activation
        Activation of mlp networks.
    normalize_observations
        Running normalisation of float observations; its statistics are part of the weights.
    memory
        Memory core after the encoder; with one, sequences are replayed instead of transitions, as in R2D2.
    memory_size
        Width of the memory core.
    memory_span
        Steps over which an untrained memory core remembers (chrono initialisation, arXiv:1804.11188); None: default
        initialisation.
    dueling
        Dueling network (arXiv:1511.06581): separate streams for value and advantages.
    distributional
        Distribution of returns to learn: "none", the mean alone; "c51", probabilities of fixed returns
        (arXiv:1707.06887); "quantile", fixed quantiles, QR-DQN (arXiv:1710.10044); "iqn", quantiles at sampled
        fractions (arXiv:1806.06923).
    num_atoms
        Number of fixed returns of "c51" (arXiv:1707.06887, section 5).
    v_min
        Smallest return of the c51 support (published, for clipped rewards: -10); with rescale_values, a rescaled
        return.
    v_max
        Largest return of the c51 support (published, for clipped rewards: 10); with rescale_values, a rescaled return.
    num_quantiles
        Number of quantiles of "quantile" (published: 200), and of fractions that "iqn" samples for a value and for its
        target.
    noisy
        NoisyNets (arXiv:1706.10295): noise on the head's weights replaces random actions; exploration is ignored.
    noisy_sigma
        Initial scale of this noise, sigma_0 (arXiv:1706.10295, section 3.2).
    rewards
        "environment": learn from the environment's rewards; "rudder": redistribute delayed rewards to the steps that
        earned them, by a network trained beside the policy. Reported returns stay unchanged.
    redistribution_attribution
        Credit of a step: the difference that it makes to the prediction, or integrated gradients.
    redistribution_points
        Points on the path of integrated gradients.
    redistribution_max_error
        Original rewards are used while predictions leave more than this share of the returns' variance unexplained.
    redistributor_size
        Memory cells of the network that predicts returns.
    redistributor_learning_rate
        Step size of this network's optimiser.
    redistributor_interval
        Steps of the run per update of this network.
    redistributor_batch_size
        Episodes per update of this network.
    redistributor_lessons
        Capacity of this network's episode buffer; the episodes with the largest prediction errors are kept.
    redistributor_chunk
        Steps of truncated backpropagation; longer episodes are cut into chunks that overlap by half.
    redistributor_max_steps
        Longest episode to learn from.
    gamma
        Discount per step.
    learning_rate_schedule
        "linear": a numeric learning_rate decays to 0 over total_steps. Ignored when learning_rate is a function.
    batch_size
        Transitions per update, drawn from the replay buffer; with memory, sequences.
    buffer_size
        Capacity of the replay buffer in transitions; the oldest is overwritten.
    learning_starts
        Steps before the first update; continuous actions are uniformly random until then.
    updates_per_step
        Updates per step (published: one per four steps).
    ratio_slack
        Updates by which either side may be ahead; None: a few, with backend="serial" those due for one step of all
        lanes.
    n_step
        Length n of n-step returns, shorter at the end of an episode (section 4.1).
    publish_interval
        Updates between two publications of the weights to the acting roles.
    hindsight
        Hindsight experience replay (arXiv:1707.01495): ended episodes are stored again with achieved goals as desired
        goals: goals of the same or later steps ("future"), of any step ("episode"), or of the last step ("final").
        None: off.
    goals_per_step
        Relabelled goals per step, with hindsight="future" or "episode" (section 4.5: k).
    prioritized
        Prioritized replay (arXiv:1511.05952): transitions with large errors are drawn more often.
    priority_alpha
        Exponent of the priorities: 0, uniform; 1, proportional (arXiv:1511.05952).
    priority_beta
        Exponent of the importance weights at the start (arXiv:1511.05952).
    priority_beta_final
        Exponent of the importance weights at total_steps; not annealed here.
    sequence_length
        Learned steps per sequence; without memory, all settings of sequences have no effect.
    burn_in
        Steps before these that only warm up the stored memory state: no loss, no gradient.
    sequence_overlap
        Learned steps shared by successive sequences of an episode.
    priority_eta
        Weight of the largest error in a sequence's priority; the mean error has the rest.
    optimizer
        "rmsprop": centred, decay 0.95, as published; "adam": as in most current implementations.
    optimizer_eps
        Constant that the optimiser adds to the root of the mean square.
    max_grad_norm
        Global norm to which gradients are clipped (arXiv:1511.06581); None: no clipping.
    double
        Double DQN (arXiv:1509.06461): the online network selects the action, the target network evaluates it.
    target_period
        Updates between two copies of the network to the target network.
    rescale_values
        Learn values of rescaled returns, h(x) = sign(x) (sqrt(|x| + 1) - 1) + x / 1000 (arXiv:1805.11593).
    exploration
        Probability of a random action in the first lane (section 4.1).
    exploration_exponent
        Lane i of N explores with probability exploration ** (1 + exploration_exponent * i / (N - 1)) (section 4.1).
    max_seconds
        Budget in seconds of wall-clock time. The final evaluation may take an extra tenth of it, at least 10 s.
    eval_interval
        Steps between evaluations; below 1, a fraction of total_steps; "continuous": back to back, always with the
        newest weights; 0: never. None: total_steps / 20, or with a target_return at most a fifth of the time (serial:
        after each batch).
    eval_episodes
        Episodes per evaluation; in games, episodes per opponent and seat or policy.
    eval_exploration
        Evaluations sample actions; algorithms without sampling explore as at the end of training.
    eval_max_steps
        Steps after which an evaluation gives an episode up and plays another; it counts as far as it came.
    checkpoint_interval
        Steps between checkpoints; 0: only at the end; None: total_steps / 10.
    keep_checkpoints
        Number of checkpoints kept, besides the best.
    save_replay
        Store the replay buffer in checkpoints, incrementally; learning pauses meanwhile. A run resumed without it
        refills the buffer before it learns.
    """

    def __init__(
        self,
        env: str | Callable[..., Any] = ...,
        *,
        preset: str | os.PathLike[str] | None = None,
        num_workers: int | None = None,
        num_envs_per_worker: int = 4,
        device: str = "cpu",
        seed: int = 0,
        learning_rate: float | str | Callable[[float], float] = 0.002,
        total_steps: int = 1000000,
        target_return: float | None = None,
        run_dir: str | os.PathLike[str] | None = "auto",
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
        num_groups: int | None = None,
        inference: Literal["auto", "local", "central"] = "auto",
        backend: Literal["local", "serial", "ray"] = "local",
        address: str | None = None,
        nodes: int | Literal["all"] | dict[str, int] = 1,
        evaluator: Literal["home", "node"] = "home",
        num_learners: int = 1,
        learner_nodes: int | dict[str, int] = 0,
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
        max_seconds: float | None = None,
        eval_interval: int | float | Literal["continuous"] | None = None,
        eval_episodes: int = 20,
        eval_exploration: bool = False,
        eval_max_steps: int = 30000,
        checkpoint_interval: int | None = None,
        keep_checkpoints: int = 3,
        save_replay: bool = False,
    ) -> None: ...

class R2D2(Face):
    """Trains with R2D2, recurrent Ape-X; settings are the fields of `penstock.algorithms.r2d2.R2D2Config`.

    Parameters
    ----------
    env
        Environment: a Gymnasium id, "EnvPool/Id", "module:Class" or "file.py:Class"; in Python also a class, or a
        callable that returns an environment.
    num_workers
        Rollout workers; with backend="ray", per node. None: one per core, at most 16.
    num_envs_per_worker
        Environments per rollout worker; with one agent each, also its number of lanes.
    device
        Torch device of the learner and of central inference: "cpu", "cuda", "cuda:1", ...
    seed
        Seed of weights, environments and exploration.
    learning_rate
        Step size of the optimiser, or a function of progress in [0, 1]: "module:name" or "file.py:name", in Python also
        the function itself.
    total_steps
        Budget in steps; schedules span it.
    target_return
        The run ends when the mean return of an evaluation reaches this value; None: no target.
    run_dir
        Directory of the run; "auto": runs/<env>-<algorithm>-<time>; None: nothing is written.
    env_kwargs
        Keyword arguments of the environment's constructor.
    vectorize
        "make": one environment per lane; "vector": one vector environment per group of lanes.
    on_env_error
        On an exception or NaN in an environment: "stop" the run, or "restart" the rollout worker and count the error.
    reward_scale
        Factor applied to rewards for learning; reported returns stay unscaled.
    reward_clip
        Scaled rewards are clipped to [-reward_clip, reward_clip] for learning; reported returns stay unclipped. None:
        no clipping.
    num_agents
        Agents per environment, each of which is a lane; None: the number that the environment declares.
    team_reward
        With several agents, reward of each: its own, or the mean or sum over its team.
    num_policies
        Number of policies with identical settings. They are assigned to the agents in turn; with one agent per
        environment, each policy gets its own environments.
    policies
        Policies by name, each with its own settings; with several agents also ``agents``, one or more patterns of agent
        names.
    policy_of
        Function that maps (agent, environment index) to a policy name, instead of ``agents``; the agent is "" in
        environments with one agent. "module:function" or "file.py:function"; in Python also the function itself.
    seats
        With several policies and agents. "fixed": each policy always plays its own agents; "shuffled": agents are
        redistributed among the policies at random before each game, the number per policy unchanged.
    opponents
        With several agents, opponents that do not learn. "past": some games use frozen past versions as opponents; with
        one policy they play all seats but one, with several policies one policy learns in the game and past versions of
        the others play the remaining agents. The name of a policy: some games use its newest weights, without learning
        from them. "none": every seat learns.
    opponent_pool
        Number of past versions kept as opponents, per policy.
    opponent_interval
        Steps between two versions added to the pool; None: total_steps / 20.
    opponent_share
        Share of games played against opponents that do not learn.
    opponent_sampling
        "uniform": past versions are drawn with equal probability; "hard": in proportion to (1 - win rate)^2 against
        them.
    eval_against
        With several agents, opponents in evaluations: "random", "best", or a class or function as "module:name" or
        "file.py:name", in Python also itself; with several policies also "others", the other policies. Empty: one
        policy plays all seats, or the policies play each other.
    pbt
        Population-based training of the run's policies: at intervals a weak policy becomes a copy of a stronger one,
        with perturbed settings. "truncation": the worst are replaced by the best; "tournament": a policy that loses
        against a random other is replaced by it; "sample-factory": as "truncation", and settings of the policies in
        between are perturbed in place.
    pbt_space
        Settings that may change: a TOML file with a table per setting, as for `penstock search`; in Python also the
        tables.
    pbt_interval
        Steps of each policy between two decisions about it; None: a twentieth of its share of total_steps.
    pbt_start
        Steps of each policy before the first decision about it; None: pbt_interval.
    pbt_fraction
        Share of the policies that counts as the worst, and as the best; None: 0.2, for "sample-factory" 0.3.
    pbt_metric
        Metric that ranks policies: "return", the mean return of training episodes, or a name in info["metrics"].
    pbt_episodes
        Episodes since its last replacement that a policy needs to be ranked.
    schedule
        Tunable settings over the steps of the policy, which override the settings themselves: a population's
        lineage.jsonl or run directory, or {steps: {setting: value}}, on the command line as JSON.
    schedule_policy
        Policy of the lineage whose schedule is followed; None: the one with the best final score.
    num_groups
        Groups of environments per worker that step in turn; None: 2 with central inference, 1 with local.
    inference
        "local": each rollout worker chooses its own actions; "central": a policy worker batches requests of several
        rollout workers; "auto": central on a GPU, local on a CPU and with backend="ray".
    backend
        "local": one process per role; "serial": everything in this process, bit-for-bit reproducible; "ray": the nodes
        of a Ray cluster step the lanes.
    address
        With backend="ray", address of the cluster's head node, or "auto"; None: a cluster on this machine, started for
        the run.
    nodes
        With backend="ray", number of nodes that step lanes, "all", or the number of nodes with a custom Ray resource,
        by resource name.
    evaluator
        With backend="ray", machine that runs evaluations: "home", or "node", the first node, on a core besides those of
        its rollout workers.
    num_learners
        Learners of the policy, one process each, with device="cuda" one GPU each; each computes a share of every
        update. With backend="local" and central inference, each has its own policy worker.
    learner_nodes
        With backend="ray", number of learners on separate nodes, or the number on nodes with a custom Ray resource, by
        resource name. The first learner always runs at home.
    precision
        Arithmetic of the network's body (bfloat16 through autocast); heads, losses and weights stay float32. "auto":
        bfloat16 where the role's GPU or CPU is faster with it, else float32.
    encoder
        "mlp", "nature_cnn", "impala_resnet", or "auto" (by observation); a custom nn.Module as "module:Class" or
        "file.py:Class", in Python also the class itself or a callable.
    hidden_sizes
        Widths of the hidden layers of mlp networks.
    activation
        Activation of mlp networks.
    normalize_observations
        Running normalisation of float observations; its statistics are part of the weights.
    memory
        Memory core after the encoder.
    memory_size
        Width of the memory core.
    memory_span
        Steps over which an untrained memory core remembers (chrono initialisation, arXiv:1804.11188); None: default
        initialisation.
    dueling
        Dueling network (arXiv:1511.06581): separate streams for value and advantages.
    distributional
        Distribution of returns to learn: "none", the mean alone; "c51", probabilities of fixed returns
        (arXiv:1707.06887); "quantile", fixed quantiles, QR-DQN (arXiv:1710.10044); "iqn", quantiles at sampled
        fractions (arXiv:1806.06923).
    num_atoms
        Number of fixed returns of "c51" (arXiv:1707.06887, section 5).
    v_min
        Smallest return of the c51 support (published, for clipped rewards: -10); with rescale_values, a rescaled
        return.
    v_max
        Largest return of the c51 support (published, for clipped rewards: 10); with rescale_values, a rescaled return.
    num_quantiles
        Number of quantiles of "quantile" (published: 200), and of fractions that "iqn" samples for a value and for its
        target.
    noisy
        NoisyNets (arXiv:1706.10295): noise on the head's weights replaces random actions; exploration is ignored.
    noisy_sigma
        Initial scale of this noise, sigma_0 (arXiv:1706.10295, section 3.2).
    rewards
        "environment": learn from the environment's rewards; "rudder": redistribute delayed rewards to the steps that
        earned them, by a network trained beside the policy. Reported returns stay unchanged.
    redistribution_attribution
        Credit of a step: the difference that it makes to the prediction, or integrated gradients.
    redistribution_points
        Points on the path of integrated gradients.
    redistribution_max_error
        Original rewards are used while predictions leave more than this share of the returns' variance unexplained.
    redistributor_size
        Memory cells of the network that predicts returns.
    redistributor_learning_rate
        Step size of this network's optimiser.
    redistributor_interval
        Steps of the run per update of this network.
    redistributor_batch_size
        Episodes per update of this network.
    redistributor_lessons
        Capacity of this network's episode buffer; the episodes with the largest prediction errors are kept.
    redistributor_chunk
        Steps of truncated backpropagation; longer episodes are cut into chunks that overlap by half.
    redistributor_max_steps
        Longest episode to learn from.
    gamma
        Discount per step (section 2.3: 0.997).
    learning_rate_schedule
        "linear": a numeric learning_rate decays to 0 over total_steps. Ignored when learning_rate is a function.
    batch_size
        Sequences per update, drawn from the replay buffer.
    buffer_size
        Capacity of the replay buffer in transitions; the oldest is overwritten.
    learning_starts
        Steps before the first update; continuous actions are uniformly random until then.
    updates_per_step
        Updates per step; each learns from batch_size * sequence_length steps.
    ratio_slack
        Updates by which either side may be ahead; None: a few, with backend="serial" those due for one step of all
        lanes.
    n_step
        Length n of n-step returns, shorter at the end of a sequence or an episode (section 2.3).
    publish_interval
        Updates between two publications of the weights to the acting roles.
    hindsight
        Hindsight experience replay (arXiv:1707.01495): ended episodes are stored again with achieved goals as desired
        goals: goals of the same or later steps ("future"), of any step ("episode"), or of the last step ("final").
        None: off.
    goals_per_step
        Relabelled goals per step, with hindsight="future" or "episode" (section 4.5: k).
    prioritized
        Prioritized replay (arXiv:1511.05952): transitions with large errors are drawn more often.
    priority_alpha
        Exponent of the priorities: 0, uniform; 1, proportional (section 2.3).
    priority_beta
        Exponent of the importance weights at the start (section 2.3).
    priority_beta_final
        Exponent of the importance weights at total_steps; not annealed here.
    sequence_length
        Learned steps per sequence (section 2.3: 80).
    burn_in
        Steps before these that only warm up the stored memory state: no loss, no gradient (section 3: 40).
    sequence_overlap
        Learned steps shared by successive sequences of an episode (section 2.3: 40).
    priority_eta
        Weight of the largest error in a sequence's priority; the mean error has the rest.
    optimizer
        "rmsprop": centred, decay 0.95, as published; "adam": as in most current implementations.
    optimizer_eps
        Constant that the optimiser adds to the root of the mean square.
    max_grad_norm
        Global norm to which gradients are clipped; None: no clipping.
    double
        Double DQN (arXiv:1509.06461): the online network selects the action, the target network evaluates it.
    target_period
        Updates between two copies of the network to the target network.
    rescale_values
        Learn values of rescaled returns, h(x) = sign(x) (sqrt(|x| + 1) - 1) + x / 1000 (section 2.3).
    exploration
        Probability of a random action in the first lane (section 4.1).
    exploration_exponent
        Lane i of N explores with probability exploration ** (1 + exploration_exponent * i / (N - 1)) (section 4.1).
    max_seconds
        Budget in seconds of wall-clock time. The final evaluation may take an extra tenth of it, at least 10 s.
    eval_interval
        Steps between evaluations; below 1, a fraction of total_steps; "continuous": back to back, always with the
        newest weights; 0: never. None: total_steps / 20, or with a target_return at most a fifth of the time (serial:
        after each batch).
    eval_episodes
        Episodes per evaluation; in games, episodes per opponent and seat or policy.
    eval_exploration
        Evaluations sample actions; algorithms without sampling explore as at the end of training.
    eval_max_steps
        Steps after which an evaluation gives an episode up and plays another; it counts as far as it came.
    checkpoint_interval
        Steps between checkpoints; 0: only at the end; None: total_steps / 10.
    keep_checkpoints
        Number of checkpoints kept, besides the best.
    save_replay
        Store the replay buffer in checkpoints, incrementally; learning pauses meanwhile. A run resumed without it
        refills the buffer before it learns.
    """

    def __init__(
        self,
        env: str | Callable[..., Any] = ...,
        *,
        preset: str | os.PathLike[str] | None = None,
        num_workers: int | None = None,
        num_envs_per_worker: int = 4,
        device: str = "cpu",
        seed: int = 0,
        learning_rate: float | str | Callable[[float], float] = 0.001,
        total_steps: int = 1000000,
        target_return: float | None = None,
        run_dir: str | os.PathLike[str] | None = "auto",
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
        num_groups: int | None = None,
        inference: Literal["auto", "local", "central"] = "auto",
        backend: Literal["local", "serial", "ray"] = "local",
        address: str | None = None,
        nodes: int | Literal["all"] | dict[str, int] = 1,
        evaluator: Literal["home", "node"] = "home",
        num_learners: int = 1,
        learner_nodes: int | dict[str, int] = 0,
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
        max_seconds: float | None = None,
        eval_interval: int | float | Literal["continuous"] | None = None,
        eval_episodes: int = 20,
        eval_exploration: bool = False,
        eval_max_steps: int = 30000,
        checkpoint_interval: int | None = None,
        keep_checkpoints: int = 3,
        save_replay: bool = False,
    ) -> None: ...

class DDPG(Face):
    """Trains with DDPG, for continuous actions; settings are the fields of `penstock.algorithms.ddpg.DDPGConfig`.

    Parameters
    ----------
    env
        Environment: a Gymnasium id, "EnvPool/Id", "module:Class" or "file.py:Class"; in Python also a class, or a
        callable that returns an environment.
    num_workers
        Rollout workers; with backend="ray", per node. None: one per core, at most 16.
    num_envs_per_worker
        Environments per rollout worker; with one agent each, also its number of lanes.
    device
        Torch device of the learner and of central inference: "cpu", "cuda", "cuda:1", ...
    seed
        Seed of weights, environments and exploration.
    learning_rate
        Step size of the optimiser, or a function of progress in [0, 1]: "module:name" or "file.py:name", in Python also
        the function itself.
    total_steps
        Budget in steps; schedules span it.
    target_return
        The run ends when the mean return of an evaluation reaches this value; None: no target.
    run_dir
        Directory of the run; "auto": runs/<env>-<algorithm>-<time>; None: nothing is written.
    env_kwargs
        Keyword arguments of the environment's constructor.
    vectorize
        "make": one environment per lane; "vector": one vector environment per group of lanes.
    on_env_error
        On an exception or NaN in an environment: "stop" the run, or "restart" the rollout worker and count the error.
    reward_scale
        Factor applied to rewards for learning; reported returns stay unscaled.
    reward_clip
        Scaled rewards are clipped to [-reward_clip, reward_clip] for learning; reported returns stay unclipped. None:
        no clipping.
    num_agents
        Agents per environment, each of which is a lane; None: the number that the environment declares.
    team_reward
        With several agents, reward of each: its own, or the mean or sum over its team.
    num_policies
        Number of policies with identical settings. They are assigned to the agents in turn; with one agent per
        environment, each policy gets its own environments.
    policies
        Policies by name, each with its own settings; with several agents also ``agents``, one or more patterns of agent
        names.
    policy_of
        Function that maps (agent, environment index) to a policy name, instead of ``agents``; the agent is "" in
        environments with one agent. "module:function" or "file.py:function"; in Python also the function itself.
    seats
        With several policies and agents. "fixed": each policy always plays its own agents; "shuffled": agents are
        redistributed among the policies at random before each game, the number per policy unchanged.
    opponents
        With several agents, opponents that do not learn. "past": some games use frozen past versions as opponents; with
        one policy they play all seats but one, with several policies one policy learns in the game and past versions of
        the others play the remaining agents. The name of a policy: some games use its newest weights, without learning
        from them. "none": every seat learns.
    opponent_pool
        Number of past versions kept as opponents, per policy.
    opponent_interval
        Steps between two versions added to the pool; None: total_steps / 20.
    opponent_share
        Share of games played against opponents that do not learn.
    opponent_sampling
        "uniform": past versions are drawn with equal probability; "hard": in proportion to (1 - win rate)^2 against
        them.
    eval_against
        With several agents, opponents in evaluations: "random", "best", or a class or function as "module:name" or
        "file.py:name", in Python also itself; with several policies also "others", the other policies. Empty: one
        policy plays all seats, or the policies play each other.
    pbt
        Population-based training of the run's policies: at intervals a weak policy becomes a copy of a stronger one,
        with perturbed settings. "truncation": the worst are replaced by the best; "tournament": a policy that loses
        against a random other is replaced by it; "sample-factory": as "truncation", and settings of the policies in
        between are perturbed in place.
    pbt_space
        Settings that may change: a TOML file with a table per setting, as for `penstock search`; in Python also the
        tables.
    pbt_interval
        Steps of each policy between two decisions about it; None: a twentieth of its share of total_steps.
    pbt_start
        Steps of each policy before the first decision about it; None: pbt_interval.
    pbt_fraction
        Share of the policies that counts as the worst, and as the best; None: 0.2, for "sample-factory" 0.3.
    pbt_metric
        Metric that ranks policies: "return", the mean return of training episodes, or a name in info["metrics"].
    pbt_episodes
        Episodes since its last replacement that a policy needs to be ranked.
    schedule
        Tunable settings over the steps of the policy, which override the settings themselves: a population's
        lineage.jsonl or run directory, or {steps: {setting: value}}, on the command line as JSON.
    schedule_policy
        Policy of the lineage whose schedule is followed; None: the one with the best final score.
    num_groups
        Groups of environments per worker that step in turn; None: 2 with central inference, 1 with local.
    inference
        "local": each rollout worker chooses its own actions; "central": a policy worker batches requests of several
        rollout workers; "auto": central on a GPU, local on a CPU and with backend="ray".
    backend
        "local": one process per role; "serial": everything in this process, bit-for-bit reproducible; "ray": the nodes
        of a Ray cluster step the lanes.
    address
        With backend="ray", address of the cluster's head node, or "auto"; None: a cluster on this machine, started for
        the run.
    nodes
        With backend="ray", number of nodes that step lanes, "all", or the number of nodes with a custom Ray resource,
        by resource name.
    evaluator
        With backend="ray", machine that runs evaluations: "home", or "node", the first node, on a core besides those of
        its rollout workers.
    num_learners
        Learners of the policy, one process each, with device="cuda" one GPU each; each computes a share of every
        update. With backend="local" and central inference, each has its own policy worker.
    learner_nodes
        With backend="ray", number of learners on separate nodes, or the number on nodes with a custom Ray resource, by
        resource name. The first learner always runs at home.
    precision
        Arithmetic of the network's body (bfloat16 through autocast); heads, losses and weights stay float32. "auto":
        bfloat16 where the role's GPU or CPU is faster with it, else float32.
    encoder
        "mlp", "nature_cnn", "impala_resnet", or "auto" (by observation); a custom nn.Module as "module:Class" or
        "file.py:Class", in Python also the class itself or a callable.
    hidden_sizes
        Widths of the hidden layers of mlp networks.
    activation
        Activation of mlp networks.
    normalize_observations
        Running normalisation of float observations; its statistics are part of the weights.
    rewards
        "environment": learn from the environment's rewards; "rudder": redistribute delayed rewards to the steps that
        earned them, by a network trained beside the policy. Reported returns stay unchanged.
    redistribution_attribution
        Credit of a step: the difference that it makes to the prediction, or integrated gradients.
    redistribution_points
        Points on the path of integrated gradients.
    redistribution_max_error
        Original rewards are used while predictions leave more than this share of the returns' variance unexplained.
    redistributor_size
        Memory cells of the network that predicts returns.
    redistributor_learning_rate
        Step size of this network's optimiser.
    redistributor_interval
        Steps of the run per update of this network.
    redistributor_batch_size
        Episodes per update of this network.
    redistributor_lessons
        Capacity of this network's episode buffer; the episodes with the largest prediction errors are kept.
    redistributor_chunk
        Steps of truncated backpropagation; longer episodes are cut into chunks that overlap by half.
    redistributor_max_steps
        Longest episode to learn from.
    gamma
        Discount per step.
    learning_rate_schedule
        "linear": a numeric learning_rate decays to 0 over total_steps. Ignored when learning_rate is a function.
    batch_size
        Transitions per update, drawn from the replay buffer.
    buffer_size
        Capacity of the replay buffer in transitions; the oldest is overwritten.
    learning_starts
        Steps before the first update; continuous actions are uniformly random until then.
    updates_per_step
        Updates per step; the rate limiter holds back learner or rollout workers to keep this ratio.
    ratio_slack
        Updates by which either side may be ahead; None: a few, with backend="serial" those due for one step of all
        lanes.
    n_step
        Length n of n-step returns, shorter at the end of an episode.
    publish_interval
        Updates between two publications of the weights to the acting roles.
    hindsight
        Hindsight experience replay (arXiv:1707.01495): ended episodes are stored again with achieved goals as desired
        goals: goals of the same or later steps ("future"), of any step ("episode"), or of the last step ("final").
        None: off.
    goals_per_step
        Relabelled goals per step, with hindsight="future" or "episode" (section 4.5: k).
    prioritized
        Prioritized replay (arXiv:1511.05952): transitions with large errors are drawn more often.
    priority_alpha
        Exponent of the priorities: 0, uniform; 1, proportional (arXiv:1511.05952).
    priority_beta
        Exponent of the importance weights at the start (arXiv:1511.05952).
    priority_beta_final
        Exponent of the importance weights at total_steps (arXiv:1511.05952).
    actor_learning_rate
        Step size of the policy's optimiser, or a function of progress; None: learning_rate.
    tau
        Fraction by which target networks move towards the online networks per update.
    exploration_noise
        Standard deviation of the noise on actions in [-1, 1] (as in CleanRL).
    max_seconds
        Budget in seconds of wall-clock time. The final evaluation may take an extra tenth of it, at least 10 s.
    eval_interval
        Steps between evaluations; below 1, a fraction of total_steps; "continuous": back to back, always with the
        newest weights; 0: never. None: total_steps / 20, or with a target_return at most a fifth of the time (serial:
        after each batch).
    eval_episodes
        Episodes per evaluation; in games, episodes per opponent and seat or policy.
    eval_exploration
        Evaluations sample actions; algorithms without sampling explore as at the end of training.
    eval_max_steps
        Steps after which an evaluation gives an episode up and plays another; it counts as far as it came.
    checkpoint_interval
        Steps between checkpoints; 0: only at the end; None: total_steps / 10.
    keep_checkpoints
        Number of checkpoints kept, besides the best.
    save_replay
        Store the replay buffer in checkpoints, incrementally; learning pauses meanwhile. A run resumed without it
        refills the buffer before it learns.
    """

    def __init__(
        self,
        env: str | Callable[..., Any] = ...,
        *,
        preset: str | os.PathLike[str] | None = None,
        num_workers: int | None = None,
        num_envs_per_worker: int = 1,
        device: str = "cpu",
        seed: int = 0,
        learning_rate: float | str | Callable[[float], float] = 0.0003,
        total_steps: int = 1000000,
        target_return: float | None = None,
        run_dir: str | os.PathLike[str] | None = "auto",
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
        num_groups: int | None = None,
        inference: Literal["auto", "local", "central"] = "auto",
        backend: Literal["local", "serial", "ray"] = "local",
        address: str | None = None,
        nodes: int | Literal["all"] | dict[str, int] = 1,
        evaluator: Literal["home", "node"] = "home",
        num_learners: int = 1,
        learner_nodes: int | dict[str, int] = 0,
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
        max_seconds: float | None = None,
        eval_interval: int | float | Literal["continuous"] | None = None,
        eval_episodes: int = 20,
        eval_exploration: bool = False,
        eval_max_steps: int = 30000,
        checkpoint_interval: int | None = None,
        keep_checkpoints: int = 3,
        save_replay: bool = False,
    ) -> None: ...

class TD3(Face):
    """Trains with TD3, for continuous actions; settings are the fields of `penstock.algorithms.td3.TD3Config`.

    Parameters
    ----------
    env
        Environment: a Gymnasium id, "EnvPool/Id", "module:Class" or "file.py:Class"; in Python also a class, or a
        callable that returns an environment.
    num_workers
        Rollout workers; with backend="ray", per node. None: one per core, at most 16.
    num_envs_per_worker
        Environments per rollout worker; with one agent each, also its number of lanes.
    device
        Torch device of the learner and of central inference: "cpu", "cuda", "cuda:1", ...
    seed
        Seed of weights, environments and exploration.
    learning_rate
        Step size of the optimiser, or a function of progress in [0, 1]: "module:name" or "file.py:name", in Python also
        the function itself.
    total_steps
        Budget in steps; schedules span it.
    target_return
        The run ends when the mean return of an evaluation reaches this value; None: no target.
    run_dir
        Directory of the run; "auto": runs/<env>-<algorithm>-<time>; None: nothing is written.
    env_kwargs
        Keyword arguments of the environment's constructor.
    vectorize
        "make": one environment per lane; "vector": one vector environment per group of lanes.
    on_env_error
        On an exception or NaN in an environment: "stop" the run, or "restart" the rollout worker and count the error.
    reward_scale
        Factor applied to rewards for learning; reported returns stay unscaled.
    reward_clip
        Scaled rewards are clipped to [-reward_clip, reward_clip] for learning; reported returns stay unclipped. None:
        no clipping.
    num_agents
        Agents per environment, each of which is a lane; None: the number that the environment declares.
    team_reward
        With several agents, reward of each: its own, or the mean or sum over its team.
    num_policies
        Number of policies with identical settings. They are assigned to the agents in turn; with one agent per
        environment, each policy gets its own environments.
    policies
        Policies by name, each with its own settings; with several agents also ``agents``, one or more patterns of agent
        names.
    policy_of
        Function that maps (agent, environment index) to a policy name, instead of ``agents``; the agent is "" in
        environments with one agent. "module:function" or "file.py:function"; in Python also the function itself.
    seats
        With several policies and agents. "fixed": each policy always plays its own agents; "shuffled": agents are
        redistributed among the policies at random before each game, the number per policy unchanged.
    opponents
        With several agents, opponents that do not learn. "past": some games use frozen past versions as opponents; with
        one policy they play all seats but one, with several policies one policy learns in the game and past versions of
        the others play the remaining agents. The name of a policy: some games use its newest weights, without learning
        from them. "none": every seat learns.
    opponent_pool
        Number of past versions kept as opponents, per policy.
    opponent_interval
        Steps between two versions added to the pool; None: total_steps / 20.
    opponent_share
        Share of games played against opponents that do not learn.
    opponent_sampling
        "uniform": past versions are drawn with equal probability; "hard": in proportion to (1 - win rate)^2 against
        them.
    eval_against
        With several agents, opponents in evaluations: "random", "best", or a class or function as "module:name" or
        "file.py:name", in Python also itself; with several policies also "others", the other policies. Empty: one
        policy plays all seats, or the policies play each other.
    pbt
        Population-based training of the run's policies: at intervals a weak policy becomes a copy of a stronger one,
        with perturbed settings. "truncation": the worst are replaced by the best; "tournament": a policy that loses
        against a random other is replaced by it; "sample-factory": as "truncation", and settings of the policies in
        between are perturbed in place.
    pbt_space
        Settings that may change: a TOML file with a table per setting, as for `penstock search`; in Python also the
        tables.
    pbt_interval
        Steps of each policy between two decisions about it; None: a twentieth of its share of total_steps.
    pbt_start
        Steps of each policy before the first decision about it; None: pbt_interval.
    pbt_fraction
        Share of the policies that counts as the worst, and as the best; None: 0.2, for "sample-factory" 0.3.
    pbt_metric
        Metric that ranks policies: "return", the mean return of training episodes, or a name in info["metrics"].
    pbt_episodes
        Episodes since its last replacement that a policy needs to be ranked.
    schedule
        Tunable settings over the steps of the policy, which override the settings themselves: a population's
        lineage.jsonl or run directory, or {steps: {setting: value}}, on the command line as JSON.
    schedule_policy
        Policy of the lineage whose schedule is followed; None: the one with the best final score.
    num_groups
        Groups of environments per worker that step in turn; None: 2 with central inference, 1 with local.
    inference
        "local": each rollout worker chooses its own actions; "central": a policy worker batches requests of several
        rollout workers; "auto": central on a GPU, local on a CPU and with backend="ray".
    backend
        "local": one process per role; "serial": everything in this process, bit-for-bit reproducible; "ray": the nodes
        of a Ray cluster step the lanes.
    address
        With backend="ray", address of the cluster's head node, or "auto"; None: a cluster on this machine, started for
        the run.
    nodes
        With backend="ray", number of nodes that step lanes, "all", or the number of nodes with a custom Ray resource,
        by resource name.
    evaluator
        With backend="ray", machine that runs evaluations: "home", or "node", the first node, on a core besides those of
        its rollout workers.
    num_learners
        Learners of the policy, one process each, with device="cuda" one GPU each; each computes a share of every
        update. With backend="local" and central inference, each has its own policy worker.
    learner_nodes
        With backend="ray", number of learners on separate nodes, or the number on nodes with a custom Ray resource, by
        resource name. The first learner always runs at home.
    precision
        Arithmetic of the network's body (bfloat16 through autocast); heads, losses and weights stay float32. "auto":
        bfloat16 where the role's GPU or CPU is faster with it, else float32.
    encoder
        "mlp", "nature_cnn", "impala_resnet", or "auto" (by observation); a custom nn.Module as "module:Class" or
        "file.py:Class", in Python also the class itself or a callable.
    hidden_sizes
        Widths of the hidden layers of mlp networks.
    activation
        Activation of mlp networks.
    normalize_observations
        Running normalisation of float observations; its statistics are part of the weights.
    rewards
        "environment": learn from the environment's rewards; "rudder": redistribute delayed rewards to the steps that
        earned them, by a network trained beside the policy. Reported returns stay unchanged.
    redistribution_attribution
        Credit of a step: the difference that it makes to the prediction, or integrated gradients.
    redistribution_points
        Points on the path of integrated gradients.
    redistribution_max_error
        Original rewards are used while predictions leave more than this share of the returns' variance unexplained.
    redistributor_size
        Memory cells of the network that predicts returns.
    redistributor_learning_rate
        Step size of this network's optimiser.
    redistributor_interval
        Steps of the run per update of this network.
    redistributor_batch_size
        Episodes per update of this network.
    redistributor_lessons
        Capacity of this network's episode buffer; the episodes with the largest prediction errors are kept.
    redistributor_chunk
        Steps of truncated backpropagation; longer episodes are cut into chunks that overlap by half.
    redistributor_max_steps
        Longest episode to learn from.
    gamma
        Discount per step.
    learning_rate_schedule
        "linear": a numeric learning_rate decays to 0 over total_steps. Ignored when learning_rate is a function.
    batch_size
        Transitions per update, drawn from the replay buffer.
    buffer_size
        Capacity of the replay buffer in transitions; the oldest is overwritten.
    learning_starts
        Steps before the first update; continuous actions are uniformly random until then.
    updates_per_step
        Updates per step; the rate limiter holds back learner or rollout workers to keep this ratio.
    ratio_slack
        Updates by which either side may be ahead; None: a few, with backend="serial" those due for one step of all
        lanes.
    n_step
        Length n of n-step returns, shorter at the end of an episode.
    publish_interval
        Updates between two publications of the weights to the acting roles.
    hindsight
        Hindsight experience replay (arXiv:1707.01495): ended episodes are stored again with achieved goals as desired
        goals: goals of the same or later steps ("future"), of any step ("episode"), or of the last step ("final").
        None: off.
    goals_per_step
        Relabelled goals per step, with hindsight="future" or "episode" (section 4.5: k).
    prioritized
        Prioritized replay (arXiv:1511.05952): transitions with large errors are drawn more often.
    priority_alpha
        Exponent of the priorities: 0, uniform; 1, proportional (arXiv:1511.05952).
    priority_beta
        Exponent of the importance weights at the start (arXiv:1511.05952).
    priority_beta_final
        Exponent of the importance weights at total_steps (arXiv:1511.05952).
    actor_learning_rate
        Step size of the policy's optimiser, or a function of progress; None: learning_rate.
    tau
        Fraction by which target networks move towards the online networks per update.
    exploration_noise
        Standard deviation of the noise on actions in [-1, 1] (section 6.1).
    target_noise
        Standard deviation of the noise that smooths the target policy (section 6.1).
    target_noise_clip
        Bound on this noise (section 6.1).
    policy_delay
        Critic updates per update of policy and targets (section 6.1).
    max_seconds
        Budget in seconds of wall-clock time. The final evaluation may take an extra tenth of it, at least 10 s.
    eval_interval
        Steps between evaluations; below 1, a fraction of total_steps; "continuous": back to back, always with the
        newest weights; 0: never. None: total_steps / 20, or with a target_return at most a fifth of the time (serial:
        after each batch).
    eval_episodes
        Episodes per evaluation; in games, episodes per opponent and seat or policy.
    eval_exploration
        Evaluations sample actions; algorithms without sampling explore as at the end of training.
    eval_max_steps
        Steps after which an evaluation gives an episode up and plays another; it counts as far as it came.
    checkpoint_interval
        Steps between checkpoints; 0: only at the end; None: total_steps / 10.
    keep_checkpoints
        Number of checkpoints kept, besides the best.
    save_replay
        Store the replay buffer in checkpoints, incrementally; learning pauses meanwhile. A run resumed without it
        refills the buffer before it learns.
    """

    def __init__(
        self,
        env: str | Callable[..., Any] = ...,
        *,
        preset: str | os.PathLike[str] | None = None,
        num_workers: int | None = None,
        num_envs_per_worker: int = 1,
        device: str = "cpu",
        seed: int = 0,
        learning_rate: float | str | Callable[[float], float] = 0.0003,
        total_steps: int = 1000000,
        target_return: float | None = None,
        run_dir: str | os.PathLike[str] | None = "auto",
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
        num_groups: int | None = None,
        inference: Literal["auto", "local", "central"] = "auto",
        backend: Literal["local", "serial", "ray"] = "local",
        address: str | None = None,
        nodes: int | Literal["all"] | dict[str, int] = 1,
        evaluator: Literal["home", "node"] = "home",
        num_learners: int = 1,
        learner_nodes: int | dict[str, int] = 0,
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
        max_seconds: float | None = None,
        eval_interval: int | float | Literal["continuous"] | None = None,
        eval_episodes: int = 20,
        eval_exploration: bool = False,
        eval_max_steps: int = 30000,
        checkpoint_interval: int | None = None,
        keep_checkpoints: int = 3,
        save_replay: bool = False,
    ) -> None: ...

class SAC(Face):
    """Trains with SAC, for continuous actions; settings are the fields of `penstock.algorithms.sac.SACConfig`.

    Parameters
    ----------
    env
        Environment: a Gymnasium id, "EnvPool/Id", "module:Class" or "file.py:Class"; in Python also a class, or a
        callable that returns an environment.
    num_workers
        Rollout workers; with backend="ray", per node. None: one per core, at most 16.
    num_envs_per_worker
        Environments per rollout worker; with one agent each, also its number of lanes.
    device
        Torch device of the learner and of central inference: "cpu", "cuda", "cuda:1", ...
    seed
        Seed of weights, environments and exploration.
    learning_rate
        Step size of the optimiser, or a function of progress in [0, 1]: "module:name" or "file.py:name", in Python also
        the function itself.
    total_steps
        Budget in steps; schedules span it.
    target_return
        The run ends when the mean return of an evaluation reaches this value; None: no target.
    run_dir
        Directory of the run; "auto": runs/<env>-<algorithm>-<time>; None: nothing is written.
    env_kwargs
        Keyword arguments of the environment's constructor.
    vectorize
        "make": one environment per lane; "vector": one vector environment per group of lanes.
    on_env_error
        On an exception or NaN in an environment: "stop" the run, or "restart" the rollout worker and count the error.
    reward_scale
        Factor applied to rewards for learning; reported returns stay unscaled.
    reward_clip
        Scaled rewards are clipped to [-reward_clip, reward_clip] for learning; reported returns stay unclipped. None:
        no clipping.
    num_agents
        Agents per environment, each of which is a lane; None: the number that the environment declares.
    team_reward
        With several agents, reward of each: its own, or the mean or sum over its team.
    num_policies
        Number of policies with identical settings. They are assigned to the agents in turn; with one agent per
        environment, each policy gets its own environments.
    policies
        Policies by name, each with its own settings; with several agents also ``agents``, one or more patterns of agent
        names.
    policy_of
        Function that maps (agent, environment index) to a policy name, instead of ``agents``; the agent is "" in
        environments with one agent. "module:function" or "file.py:function"; in Python also the function itself.
    seats
        With several policies and agents. "fixed": each policy always plays its own agents; "shuffled": agents are
        redistributed among the policies at random before each game, the number per policy unchanged.
    opponents
        With several agents, opponents that do not learn. "past": some games use frozen past versions as opponents; with
        one policy they play all seats but one, with several policies one policy learns in the game and past versions of
        the others play the remaining agents. The name of a policy: some games use its newest weights, without learning
        from them. "none": every seat learns.
    opponent_pool
        Number of past versions kept as opponents, per policy.
    opponent_interval
        Steps between two versions added to the pool; None: total_steps / 20.
    opponent_share
        Share of games played against opponents that do not learn.
    opponent_sampling
        "uniform": past versions are drawn with equal probability; "hard": in proportion to (1 - win rate)^2 against
        them.
    eval_against
        With several agents, opponents in evaluations: "random", "best", or a class or function as "module:name" or
        "file.py:name", in Python also itself; with several policies also "others", the other policies. Empty: one
        policy plays all seats, or the policies play each other.
    pbt
        Population-based training of the run's policies: at intervals a weak policy becomes a copy of a stronger one,
        with perturbed settings. "truncation": the worst are replaced by the best; "tournament": a policy that loses
        against a random other is replaced by it; "sample-factory": as "truncation", and settings of the policies in
        between are perturbed in place.
    pbt_space
        Settings that may change: a TOML file with a table per setting, as for `penstock search`; in Python also the
        tables.
    pbt_interval
        Steps of each policy between two decisions about it; None: a twentieth of its share of total_steps.
    pbt_start
        Steps of each policy before the first decision about it; None: pbt_interval.
    pbt_fraction
        Share of the policies that counts as the worst, and as the best; None: 0.2, for "sample-factory" 0.3.
    pbt_metric
        Metric that ranks policies: "return", the mean return of training episodes, or a name in info["metrics"].
    pbt_episodes
        Episodes since its last replacement that a policy needs to be ranked.
    schedule
        Tunable settings over the steps of the policy, which override the settings themselves: a population's
        lineage.jsonl or run directory, or {steps: {setting: value}}, on the command line as JSON.
    schedule_policy
        Policy of the lineage whose schedule is followed; None: the one with the best final score.
    num_groups
        Groups of environments per worker that step in turn; None: 2 with central inference, 1 with local.
    inference
        "local": each rollout worker chooses its own actions; "central": a policy worker batches requests of several
        rollout workers; "auto": central on a GPU, local on a CPU and with backend="ray".
    backend
        "local": one process per role; "serial": everything in this process, bit-for-bit reproducible; "ray": the nodes
        of a Ray cluster step the lanes.
    address
        With backend="ray", address of the cluster's head node, or "auto"; None: a cluster on this machine, started for
        the run.
    nodes
        With backend="ray", number of nodes that step lanes, "all", or the number of nodes with a custom Ray resource,
        by resource name.
    evaluator
        With backend="ray", machine that runs evaluations: "home", or "node", the first node, on a core besides those of
        its rollout workers.
    num_learners
        Learners of the policy, one process each, with device="cuda" one GPU each; each computes a share of every
        update. With backend="local" and central inference, each has its own policy worker.
    learner_nodes
        With backend="ray", number of learners on separate nodes, or the number on nodes with a custom Ray resource, by
        resource name. The first learner always runs at home.
    precision
        Arithmetic of the network's body (bfloat16 through autocast); heads, losses and weights stay float32. "auto":
        bfloat16 where the role's GPU or CPU is faster with it, else float32.
    encoder
        "mlp", "nature_cnn", "impala_resnet", or "auto" (by observation); a custom nn.Module as "module:Class" or
        "file.py:Class", in Python also the class itself or a callable.
    hidden_sizes
        Widths of the hidden layers of mlp networks.
    activation
        Activation of mlp networks.
    normalize_observations
        Running normalisation of float observations; its statistics are part of the weights.
    rewards
        "environment": learn from the environment's rewards; "rudder": redistribute delayed rewards to the steps that
        earned them, by a network trained beside the policy. Reported returns stay unchanged.
    redistribution_attribution
        Credit of a step: the difference that it makes to the prediction, or integrated gradients.
    redistribution_points
        Points on the path of integrated gradients.
    redistribution_max_error
        Original rewards are used while predictions leave more than this share of the returns' variance unexplained.
    redistributor_size
        Memory cells of the network that predicts returns.
    redistributor_learning_rate
        Step size of this network's optimiser.
    redistributor_interval
        Steps of the run per update of this network.
    redistributor_batch_size
        Episodes per update of this network.
    redistributor_lessons
        Capacity of this network's episode buffer; the episodes with the largest prediction errors are kept.
    redistributor_chunk
        Steps of truncated backpropagation; longer episodes are cut into chunks that overlap by half.
    redistributor_max_steps
        Longest episode to learn from.
    gamma
        Discount per step.
    learning_rate_schedule
        "linear": a numeric learning_rate decays to 0 over total_steps. Ignored when learning_rate is a function.
    batch_size
        Transitions per update, drawn from the replay buffer.
    buffer_size
        Capacity of the replay buffer in transitions; the oldest is overwritten.
    learning_starts
        Steps before the first update; continuous actions are uniformly random until then.
    updates_per_step
        Updates per step; the rate limiter holds back learner or rollout workers to keep this ratio.
    ratio_slack
        Updates by which either side may be ahead; None: a few, with backend="serial" those due for one step of all
        lanes.
    n_step
        Length n of n-step returns, shorter at the end of an episode.
    publish_interval
        Updates between two publications of the weights to the acting roles.
    hindsight
        Hindsight experience replay (arXiv:1707.01495): ended episodes are stored again with achieved goals as desired
        goals: goals of the same or later steps ("future"), of any step ("episode"), or of the last step ("final").
        None: off.
    goals_per_step
        Relabelled goals per step, with hindsight="future" or "episode" (section 4.5: k).
    prioritized
        Prioritized replay (arXiv:1511.05952): transitions with large errors are drawn more often.
    priority_alpha
        Exponent of the priorities: 0, uniform; 1, proportional (arXiv:1511.05952).
    priority_beta
        Exponent of the importance weights at the start (arXiv:1511.05952).
    priority_beta_final
        Exponent of the importance weights at total_steps (arXiv:1511.05952).
    actor_learning_rate
        Step size of the policy's optimiser, or a function of progress; None: learning_rate.
    tau
        Fraction by which target networks move towards the online networks per update.
    alpha
        Fixed temperature; None: learned.
    initial_alpha
        Initial value of a learned temperature.
    target_entropy
        Target of a learned temperature: entropy of actions in [-1, 1]; None: minus their dimension (appendix D).
    max_seconds
        Budget in seconds of wall-clock time. The final evaluation may take an extra tenth of it, at least 10 s.
    eval_interval
        Steps between evaluations; below 1, a fraction of total_steps; "continuous": back to back, always with the
        newest weights; 0: never. None: total_steps / 20, or with a target_return at most a fifth of the time (serial:
        after each batch).
    eval_episodes
        Episodes per evaluation; in games, episodes per opponent and seat or policy.
    eval_exploration
        Evaluations sample actions; algorithms without sampling explore as at the end of training.
    eval_max_steps
        Steps after which an evaluation gives an episode up and plays another; it counts as far as it came.
    checkpoint_interval
        Steps between checkpoints; 0: only at the end; None: total_steps / 10.
    keep_checkpoints
        Number of checkpoints kept, besides the best.
    save_replay
        Store the replay buffer in checkpoints, incrementally; learning pauses meanwhile. A run resumed without it
        refills the buffer before it learns.
    """

    def __init__(
        self,
        env: str | Callable[..., Any] = ...,
        *,
        preset: str | os.PathLike[str] | None = None,
        num_workers: int | None = None,
        num_envs_per_worker: int = 1,
        device: str = "cpu",
        seed: int = 0,
        learning_rate: float | str | Callable[[float], float] = 0.0003,
        total_steps: int = 1000000,
        target_return: float | None = None,
        run_dir: str | os.PathLike[str] | None = "auto",
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
        num_groups: int | None = None,
        inference: Literal["auto", "local", "central"] = "auto",
        backend: Literal["local", "serial", "ray"] = "local",
        address: str | None = None,
        nodes: int | Literal["all"] | dict[str, int] = 1,
        evaluator: Literal["home", "node"] = "home",
        num_learners: int = 1,
        learner_nodes: int | dict[str, int] = 0,
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
        max_seconds: float | None = None,
        eval_interval: int | float | Literal["continuous"] | None = None,
        eval_episodes: int = 20,
        eval_exploration: bool = False,
        eval_max_steps: int = 30000,
        checkpoint_interval: int | None = None,
        keep_checkpoints: int = 3,
        save_replay: bool = False,
    ) -> None: ...

class TQC(Face):
    """Trains with TQC, SAC with quantile critics; settings are the fields of `penstock.algorithms.tqc.TQCConfig`.

    Parameters
    ----------
    env
        Environment: a Gymnasium id, "EnvPool/Id", "module:Class" or "file.py:Class"; in Python also a class, or a
        callable that returns an environment.
    num_workers
        Rollout workers; with backend="ray", per node. None: one per core, at most 16.
    num_envs_per_worker
        Environments per rollout worker; with one agent each, also its number of lanes.
    device
        Torch device of the learner and of central inference: "cpu", "cuda", "cuda:1", ...
    seed
        Seed of weights, environments and exploration.
    learning_rate
        Step size of the optimiser, or a function of progress in [0, 1]: "module:name" or "file.py:name", in Python also
        the function itself.
    total_steps
        Budget in steps; schedules span it.
    target_return
        The run ends when the mean return of an evaluation reaches this value; None: no target.
    run_dir
        Directory of the run; "auto": runs/<env>-<algorithm>-<time>; None: nothing is written.
    env_kwargs
        Keyword arguments of the environment's constructor.
    vectorize
        "make": one environment per lane; "vector": one vector environment per group of lanes.
    on_env_error
        On an exception or NaN in an environment: "stop" the run, or "restart" the rollout worker and count the error.
    reward_scale
        Factor applied to rewards for learning; reported returns stay unscaled.
    reward_clip
        Scaled rewards are clipped to [-reward_clip, reward_clip] for learning; reported returns stay unclipped. None:
        no clipping.
    num_agents
        Agents per environment, each of which is a lane; None: the number that the environment declares.
    team_reward
        With several agents, reward of each: its own, or the mean or sum over its team.
    num_policies
        Number of policies with identical settings. They are assigned to the agents in turn; with one agent per
        environment, each policy gets its own environments.
    policies
        Policies by name, each with its own settings; with several agents also ``agents``, one or more patterns of agent
        names.
    policy_of
        Function that maps (agent, environment index) to a policy name, instead of ``agents``; the agent is "" in
        environments with one agent. "module:function" or "file.py:function"; in Python also the function itself.
    seats
        With several policies and agents. "fixed": each policy always plays its own agents; "shuffled": agents are
        redistributed among the policies at random before each game, the number per policy unchanged.
    opponents
        With several agents, opponents that do not learn. "past": some games use frozen past versions as opponents; with
        one policy they play all seats but one, with several policies one policy learns in the game and past versions of
        the others play the remaining agents. The name of a policy: some games use its newest weights, without learning
        from them. "none": every seat learns.
    opponent_pool
        Number of past versions kept as opponents, per policy.
    opponent_interval
        Steps between two versions added to the pool; None: total_steps / 20.
    opponent_share
        Share of games played against opponents that do not learn.
    opponent_sampling
        "uniform": past versions are drawn with equal probability; "hard": in proportion to (1 - win rate)^2 against
        them.
    eval_against
        With several agents, opponents in evaluations: "random", "best", or a class or function as "module:name" or
        "file.py:name", in Python also itself; with several policies also "others", the other policies. Empty: one
        policy plays all seats, or the policies play each other.
    pbt
        Population-based training of the run's policies: at intervals a weak policy becomes a copy of a stronger one,
        with perturbed settings. "truncation": the worst are replaced by the best; "tournament": a policy that loses
        against a random other is replaced by it; "sample-factory": as "truncation", and settings of the policies in
        between are perturbed in place.
    pbt_space
        Settings that may change: a TOML file with a table per setting, as for `penstock search`; in Python also the
        tables.
    pbt_interval
        Steps of each policy between two decisions about it; None: a twentieth of its share of total_steps.
    pbt_start
        Steps of each policy before the first decision about it; None: pbt_interval.
    pbt_fraction
        Share of the policies that counts as the worst, and as the best; None: 0.2, for "sample-factory" 0.3.
    pbt_metric
        Metric that ranks policies: "return", the mean return of training episodes, or a name in info["metrics"].
    pbt_episodes
        Episodes since its last replacement that a policy needs to be ranked.
    schedule
        Tunable settings over the steps of the policy, which override the settings themselves: a population's
        lineage.jsonl or run directory, or {steps: {setting: value}}, on the command line as JSON.
    schedule_policy
        Policy of the lineage whose schedule is followed; None: the one with the best final score.
    num_groups
        Groups of environments per worker that step in turn; None: 2 with central inference, 1 with local.
    inference
        "local": each rollout worker chooses its own actions; "central": a policy worker batches requests of several
        rollout workers; "auto": central on a GPU, local on a CPU and with backend="ray".
    backend
        "local": one process per role; "serial": everything in this process, bit-for-bit reproducible; "ray": the nodes
        of a Ray cluster step the lanes.
    address
        With backend="ray", address of the cluster's head node, or "auto"; None: a cluster on this machine, started for
        the run.
    nodes
        With backend="ray", number of nodes that step lanes, "all", or the number of nodes with a custom Ray resource,
        by resource name.
    evaluator
        With backend="ray", machine that runs evaluations: "home", or "node", the first node, on a core besides those of
        its rollout workers.
    num_learners
        Learners of the policy, one process each, with device="cuda" one GPU each; each computes a share of every
        update. With backend="local" and central inference, each has its own policy worker.
    learner_nodes
        With backend="ray", number of learners on separate nodes, or the number on nodes with a custom Ray resource, by
        resource name. The first learner always runs at home.
    precision
        Arithmetic of the network's body (bfloat16 through autocast); heads, losses and weights stay float32. "auto":
        bfloat16 where the role's GPU or CPU is faster with it, else float32.
    encoder
        "mlp", "nature_cnn", "impala_resnet", or "auto" (by observation); a custom nn.Module as "module:Class" or
        "file.py:Class", in Python also the class itself or a callable.
    hidden_sizes
        Widths of the hidden layers of mlp networks.
    activation
        Activation of mlp networks.
    normalize_observations
        Running normalisation of float observations; its statistics are part of the weights.
    num_quantiles
        Quantiles per critic (M).
    rewards
        "environment": learn from the environment's rewards; "rudder": redistribute delayed rewards to the steps that
        earned them, by a network trained beside the policy. Reported returns stay unchanged.
    redistribution_attribution
        Credit of a step: the difference that it makes to the prediction, or integrated gradients.
    redistribution_points
        Points on the path of integrated gradients.
    redistribution_max_error
        Original rewards are used while predictions leave more than this share of the returns' variance unexplained.
    redistributor_size
        Memory cells of the network that predicts returns.
    redistributor_learning_rate
        Step size of this network's optimiser.
    redistributor_interval
        Steps of the run per update of this network.
    redistributor_batch_size
        Episodes per update of this network.
    redistributor_lessons
        Capacity of this network's episode buffer; the episodes with the largest prediction errors are kept.
    redistributor_chunk
        Steps of truncated backpropagation; longer episodes are cut into chunks that overlap by half.
    redistributor_max_steps
        Longest episode to learn from.
    gamma
        Discount per step.
    learning_rate_schedule
        "linear": a numeric learning_rate decays to 0 over total_steps. Ignored when learning_rate is a function.
    batch_size
        Transitions per update, drawn from the replay buffer.
    buffer_size
        Capacity of the replay buffer in transitions; the oldest is overwritten.
    learning_starts
        Steps before the first update; continuous actions are uniformly random until then.
    updates_per_step
        Updates per step; the rate limiter holds back learner or rollout workers to keep this ratio.
    ratio_slack
        Updates by which either side may be ahead; None: a few, with backend="serial" those due for one step of all
        lanes.
    n_step
        Length n of n-step returns, shorter at the end of an episode.
    publish_interval
        Updates between two publications of the weights to the acting roles.
    hindsight
        Hindsight experience replay (arXiv:1707.01495): ended episodes are stored again with achieved goals as desired
        goals: goals of the same or later steps ("future"), of any step ("episode"), or of the last step ("final").
        None: off.
    goals_per_step
        Relabelled goals per step, with hindsight="future" or "episode" (section 4.5: k).
    prioritized
        Prioritized replay (arXiv:1511.05952): transitions with large errors are drawn more often.
    priority_alpha
        Exponent of the priorities: 0, uniform; 1, proportional (arXiv:1511.05952).
    priority_beta
        Exponent of the importance weights at the start (arXiv:1511.05952).
    priority_beta_final
        Exponent of the importance weights at total_steps (arXiv:1511.05952).
    actor_learning_rate
        Step size of the policy's optimiser, or a function of progress; None: learning_rate.
    tau
        Fraction by which target networks move towards the online networks per update.
    alpha
        Fixed temperature; None: learned.
    initial_alpha
        Initial value of a learned temperature.
    target_entropy
        Target of a learned temperature: entropy of actions in [-1, 1]; None: minus their dimension (appendix D).
    num_critics
        Number of critics (N).
    dropped_quantiles
        Largest atoms dropped from the targets, per critic (d); more are more conservative. Published: 2 for most tasks,
        0 for HalfCheetah, 5 for Hopper.
    max_seconds
        Budget in seconds of wall-clock time. The final evaluation may take an extra tenth of it, at least 10 s.
    eval_interval
        Steps between evaluations; below 1, a fraction of total_steps; "continuous": back to back, always with the
        newest weights; 0: never. None: total_steps / 20, or with a target_return at most a fifth of the time (serial:
        after each batch).
    eval_episodes
        Episodes per evaluation; in games, episodes per opponent and seat or policy.
    eval_exploration
        Evaluations sample actions; algorithms without sampling explore as at the end of training.
    eval_max_steps
        Steps after which an evaluation gives an episode up and plays another; it counts as far as it came.
    checkpoint_interval
        Steps between checkpoints; 0: only at the end; None: total_steps / 10.
    keep_checkpoints
        Number of checkpoints kept, besides the best.
    save_replay
        Store the replay buffer in checkpoints, incrementally; learning pauses meanwhile. A run resumed without it
        refills the buffer before it learns.
    """

    def __init__(
        self,
        env: str | Callable[..., Any] = ...,
        *,
        preset: str | os.PathLike[str] | None = None,
        num_workers: int | None = None,
        num_envs_per_worker: int = 1,
        device: str = "cpu",
        seed: int = 0,
        learning_rate: float | str | Callable[[float], float] = 0.0003,
        total_steps: int = 1000000,
        target_return: float | None = None,
        run_dir: str | os.PathLike[str] | None = "auto",
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
        num_groups: int | None = None,
        inference: Literal["auto", "local", "central"] = "auto",
        backend: Literal["local", "serial", "ray"] = "local",
        address: str | None = None,
        nodes: int | Literal["all"] | dict[str, int] = 1,
        evaluator: Literal["home", "node"] = "home",
        num_learners: int = 1,
        learner_nodes: int | dict[str, int] = 0,
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
        max_seconds: float | None = None,
        eval_interval: int | float | Literal["continuous"] | None = None,
        eval_episodes: int = 20,
        eval_exploration: bool = False,
        eval_max_steps: int = 30000,
        checkpoint_interval: int | None = None,
        keep_checkpoints: int = 3,
        save_replay: bool = False,
    ) -> None: ...

class CrossQ(Face):
    """Trains with CrossQ, SAC without targets; settings are the fields of `penstock.algorithms.crossq.CrossQConfig`.

    Parameters
    ----------
    env
        Environment: a Gymnasium id, "EnvPool/Id", "module:Class" or "file.py:Class"; in Python also a class, or a
        callable that returns an environment.
    num_workers
        Rollout workers; with backend="ray", per node. None: one per core, at most 16.
    num_envs_per_worker
        Environments per rollout worker; with one agent each, also its number of lanes.
    device
        Torch device of the learner and of central inference: "cpu", "cuda", "cuda:1", ...
    seed
        Seed of weights, environments and exploration.
    learning_rate
        Step size of the optimiser, or a function of progress in [0, 1]: "module:name" or "file.py:name", in Python also
        the function itself.
    total_steps
        Budget in steps; schedules span it.
    target_return
        The run ends when the mean return of an evaluation reaches this value; None: no target.
    run_dir
        Directory of the run; "auto": runs/<env>-<algorithm>-<time>; None: nothing is written.
    env_kwargs
        Keyword arguments of the environment's constructor.
    vectorize
        "make": one environment per lane; "vector": one vector environment per group of lanes.
    on_env_error
        On an exception or NaN in an environment: "stop" the run, or "restart" the rollout worker and count the error.
    reward_scale
        Factor applied to rewards for learning; reported returns stay unscaled.
    reward_clip
        Scaled rewards are clipped to [-reward_clip, reward_clip] for learning; reported returns stay unclipped. None:
        no clipping.
    num_agents
        Agents per environment, each of which is a lane; None: the number that the environment declares.
    team_reward
        With several agents, reward of each: its own, or the mean or sum over its team.
    num_policies
        Number of policies with identical settings. They are assigned to the agents in turn; with one agent per
        environment, each policy gets its own environments.
    policies
        Policies by name, each with its own settings; with several agents also ``agents``, one or more patterns of agent
        names.
    policy_of
        Function that maps (agent, environment index) to a policy name, instead of ``agents``; the agent is "" in
        environments with one agent. "module:function" or "file.py:function"; in Python also the function itself.
    seats
        With several policies and agents. "fixed": each policy always plays its own agents; "shuffled": agents are
        redistributed among the policies at random before each game, the number per policy unchanged.
    opponents
        With several agents, opponents that do not learn. "past": some games use frozen past versions as opponents; with
        one policy they play all seats but one, with several policies one policy learns in the game and past versions of
        the others play the remaining agents. The name of a policy: some games use its newest weights, without learning
        from them. "none": every seat learns.
    opponent_pool
        Number of past versions kept as opponents, per policy.
    opponent_interval
        Steps between two versions added to the pool; None: total_steps / 20.
    opponent_share
        Share of games played against opponents that do not learn.
    opponent_sampling
        "uniform": past versions are drawn with equal probability; "hard": in proportion to (1 - win rate)^2 against
        them.
    eval_against
        With several agents, opponents in evaluations: "random", "best", or a class or function as "module:name" or
        "file.py:name", in Python also itself; with several policies also "others", the other policies. Empty: one
        policy plays all seats, or the policies play each other.
    pbt
        Population-based training of the run's policies: at intervals a weak policy becomes a copy of a stronger one,
        with perturbed settings. "truncation": the worst are replaced by the best; "tournament": a policy that loses
        against a random other is replaced by it; "sample-factory": as "truncation", and settings of the policies in
        between are perturbed in place.
    pbt_space
        Settings that may change: a TOML file with a table per setting, as for `penstock search`; in Python also the
        tables.
    pbt_interval
        Steps of each policy between two decisions about it; None: a twentieth of its share of total_steps.
    pbt_start
        Steps of each policy before the first decision about it; None: pbt_interval.
    pbt_fraction
        Share of the policies that counts as the worst, and as the best; None: 0.2, for "sample-factory" 0.3.
    pbt_metric
        Metric that ranks policies: "return", the mean return of training episodes, or a name in info["metrics"].
    pbt_episodes
        Episodes since its last replacement that a policy needs to be ranked.
    schedule
        Tunable settings over the steps of the policy, which override the settings themselves: a population's
        lineage.jsonl or run directory, or {steps: {setting: value}}, on the command line as JSON.
    schedule_policy
        Policy of the lineage whose schedule is followed; None: the one with the best final score.
    num_groups
        Groups of environments per worker that step in turn; None: 2 with central inference, 1 with local.
    inference
        "local": each rollout worker chooses its own actions; "central": a policy worker batches requests of several
        rollout workers; "auto": central on a GPU, local on a CPU and with backend="ray".
    backend
        "local": one process per role; "serial": everything in this process, bit-for-bit reproducible; "ray": the nodes
        of a Ray cluster step the lanes.
    address
        With backend="ray", address of the cluster's head node, or "auto"; None: a cluster on this machine, started for
        the run.
    nodes
        With backend="ray", number of nodes that step lanes, "all", or the number of nodes with a custom Ray resource,
        by resource name.
    evaluator
        With backend="ray", machine that runs evaluations: "home", or "node", the first node, on a core besides those of
        its rollout workers.
    num_learners
        Learners of the policy, one process each, with device="cuda" one GPU each; each computes a share of every
        update. With backend="local" and central inference, each has its own policy worker.
    learner_nodes
        With backend="ray", number of learners on separate nodes, or the number on nodes with a custom Ray resource, by
        resource name. The first learner always runs at home.
    precision
        Arithmetic of the network's body (bfloat16 through autocast); heads, losses and weights stay float32. "auto":
        bfloat16 where the role's GPU or CPU is faster with it, else float32.
    encoder
        "mlp", "nature_cnn", "impala_resnet", or "auto" (by observation); a custom nn.Module as "module:Class" or
        "file.py:Class", in Python also the class itself or a callable.
    hidden_sizes
        Widths of the hidden layers of mlp networks.
    activation
        Activation of mlp networks.
    normalize_observations
        Running normalisation of float observations; its statistics are part of the weights.
    rewards
        "environment": learn from the environment's rewards; "rudder": redistribute delayed rewards to the steps that
        earned them, by a network trained beside the policy. Reported returns stay unchanged.
    redistribution_attribution
        Credit of a step: the difference that it makes to the prediction, or integrated gradients.
    redistribution_points
        Points on the path of integrated gradients.
    redistribution_max_error
        Original rewards are used while predictions leave more than this share of the returns' variance unexplained.
    redistributor_size
        Memory cells of the network that predicts returns.
    redistributor_learning_rate
        Step size of this network's optimiser.
    redistributor_interval
        Steps of the run per update of this network.
    redistributor_batch_size
        Episodes per update of this network.
    redistributor_lessons
        Capacity of this network's episode buffer; the episodes with the largest prediction errors are kept.
    redistributor_chunk
        Steps of truncated backpropagation; longer episodes are cut into chunks that overlap by half.
    redistributor_max_steps
        Longest episode to learn from.
    gamma
        Discount per step.
    learning_rate_schedule
        "linear": a numeric learning_rate decays to 0 over total_steps. Ignored when learning_rate is a function.
    batch_size
        Transitions per update, drawn from the replay buffer.
    buffer_size
        Capacity of the replay buffer in transitions; the oldest is overwritten.
    learning_starts
        Steps before the first update; continuous actions are uniformly random until then.
    updates_per_step
        Updates per step; the rate limiter holds back learner or rollout workers to keep this ratio.
    ratio_slack
        Updates by which either side may be ahead; None: a few, with backend="serial" those due for one step of all
        lanes.
    n_step
        Length n of n-step returns, shorter at the end of an episode.
    publish_interval
        Updates between two publications of the weights to the acting roles.
    hindsight
        Hindsight experience replay (arXiv:1707.01495): ended episodes are stored again with achieved goals as desired
        goals: goals of the same or later steps ("future"), of any step ("episode"), or of the last step ("final").
        None: off.
    goals_per_step
        Relabelled goals per step, with hindsight="future" or "episode" (section 4.5: k).
    prioritized
        Prioritized replay (arXiv:1511.05952): transitions with large errors are drawn more often.
    priority_alpha
        Exponent of the priorities: 0, uniform; 1, proportional (arXiv:1511.05952).
    priority_beta
        Exponent of the importance weights at the start (arXiv:1511.05952).
    priority_beta_final
        Exponent of the importance weights at total_steps (arXiv:1511.05952).
    actor_learning_rate
        Step size of the policy's optimiser, or a function of progress; None: learning_rate.
    tau
        Always 1: there is no target network, and targets come from the online network.
    alpha
        Fixed temperature; None: learned.
    initial_alpha
        Initial value of a learned temperature.
    target_entropy
        Target of a learned temperature: entropy of actions in [-1, 1]; None: minus their dimension (appendix D).
    critic_hidden_sizes
        Widths of the critics' hidden layers (published: two of 2048).
    adam_beta1
        Decay rate of the optimisers' running mean of gradients.
    policy_delay
        Critic updates per update of policy and temperature.
    max_seconds
        Budget in seconds of wall-clock time. The final evaluation may take an extra tenth of it, at least 10 s.
    eval_interval
        Steps between evaluations; below 1, a fraction of total_steps; "continuous": back to back, always with the
        newest weights; 0: never. None: total_steps / 20, or with a target_return at most a fifth of the time (serial:
        after each batch).
    eval_episodes
        Episodes per evaluation; in games, episodes per opponent and seat or policy.
    eval_exploration
        Evaluations sample actions; algorithms without sampling explore as at the end of training.
    eval_max_steps
        Steps after which an evaluation gives an episode up and plays another; it counts as far as it came.
    checkpoint_interval
        Steps between checkpoints; 0: only at the end; None: total_steps / 10.
    keep_checkpoints
        Number of checkpoints kept, besides the best.
    save_replay
        Store the replay buffer in checkpoints, incrementally; learning pauses meanwhile. A run resumed without it
        refills the buffer before it learns.
    """

    def __init__(
        self,
        env: str | Callable[..., Any] = ...,
        *,
        preset: str | os.PathLike[str] | None = None,
        num_workers: int | None = None,
        num_envs_per_worker: int = 1,
        device: str = "cpu",
        seed: int = 0,
        learning_rate: float | str | Callable[[float], float] = 0.001,
        total_steps: int = 1000000,
        target_return: float | None = None,
        run_dir: str | os.PathLike[str] | None = "auto",
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
        num_groups: int | None = None,
        inference: Literal["auto", "local", "central"] = "auto",
        backend: Literal["local", "serial", "ray"] = "local",
        address: str | None = None,
        nodes: int | Literal["all"] | dict[str, int] = 1,
        evaluator: Literal["home", "node"] = "home",
        num_learners: int = 1,
        learner_nodes: int | dict[str, int] = 0,
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
        max_seconds: float | None = None,
        eval_interval: int | float | Literal["continuous"] | None = None,
        eval_episodes: int = 20,
        eval_exploration: bool = False,
        eval_max_steps: int = 30000,
        checkpoint_interval: int | None = None,
        keep_checkpoints: int = 3,
        save_replay: bool = False,
    ) -> None: ...

class ApeXDPG(Face):
    """Trains with Ape-X DPG; settings are the fields of `penstock.algorithms.apex_dpg.ApeXDPGConfig`.

    Parameters
    ----------
    env
        Environment: a Gymnasium id, "EnvPool/Id", "module:Class" or "file.py:Class"; in Python also a class, or a
        callable that returns an environment.
    num_workers
        Rollout workers; with backend="ray", per node. None: one per core, at most 16.
    num_envs_per_worker
        Environments per rollout worker; with one agent each, also its number of lanes.
    device
        Torch device of the learner and of central inference: "cpu", "cuda", "cuda:1", ...
    seed
        Seed of weights, environments and exploration.
    learning_rate
        Step size of the optimiser, or a function of progress in [0, 1]: "module:name" or "file.py:name", in Python also
        the function itself.
    total_steps
        Budget in steps; schedules span it.
    target_return
        The run ends when the mean return of an evaluation reaches this value; None: no target.
    run_dir
        Directory of the run; "auto": runs/<env>-<algorithm>-<time>; None: nothing is written.
    env_kwargs
        Keyword arguments of the environment's constructor.
    vectorize
        "make": one environment per lane; "vector": one vector environment per group of lanes.
    on_env_error
        On an exception or NaN in an environment: "stop" the run, or "restart" the rollout worker and count the error.
    reward_scale
        Factor applied to rewards for learning; reported returns stay unscaled.
    reward_clip
        Scaled rewards are clipped to [-reward_clip, reward_clip] for learning; reported returns stay unclipped. None:
        no clipping.
    num_agents
        Agents per environment, each of which is a lane; None: the number that the environment declares.
    team_reward
        With several agents, reward of each: its own, or the mean or sum over its team.
    num_policies
        Number of policies with identical settings. They are assigned to the agents in turn; with one agent per
        environment, each policy gets its own environments.
    policies
        Policies by name, each with its own settings; with several agents also ``agents``, one or more patterns of agent
        names.
    policy_of
        Function that maps (agent, environment index) to a policy name, instead of ``agents``; the agent is "" in
        environments with one agent. "module:function" or "file.py:function"; in Python also the function itself.
    seats
        With several policies and agents. "fixed": each policy always plays its own agents; "shuffled": agents are
        redistributed among the policies at random before each game, the number per policy unchanged.
    opponents
        With several agents, opponents that do not learn. "past": some games use frozen past versions as opponents; with
        one policy they play all seats but one, with several policies one policy learns in the game and past versions of
        the others play the remaining agents. The name of a policy: some games use its newest weights, without learning
        from them. "none": every seat learns.
    opponent_pool
        Number of past versions kept as opponents, per policy.
    opponent_interval
        Steps between two versions added to the pool; None: total_steps / 20.
    opponent_share
        Share of games played against opponents that do not learn.
    opponent_sampling
        "uniform": past versions are drawn with equal probability; "hard": in proportion to (1 - win rate)^2 against
        them.
    eval_against
        With several agents, opponents in evaluations: "random", "best", or a class or function as "module:name" or
        "file.py:name", in Python also itself; with several policies also "others", the other policies. Empty: one
        policy plays all seats, or the policies play each other.
    pbt
        Population-based training of the run's policies: at intervals a weak policy becomes a copy of a stronger one,
        with perturbed settings. "truncation": the worst are replaced by the best; "tournament": a policy that loses
        against a random other is replaced by it; "sample-factory": as "truncation", and settings of the policies in
        between are perturbed in place.
    pbt_space
        Settings that may change: a TOML file with a table per setting, as for `penstock search`; in Python also the
        tables.
    pbt_interval
        Steps of each policy between two decisions about it; None: a twentieth of its share of total_steps.
    pbt_start
        Steps of each policy before the first decision about it; None: pbt_interval.
    pbt_fraction
        Share of the policies that counts as the worst, and as the best; None: 0.2, for "sample-factory" 0.3.
    pbt_metric
        Metric that ranks policies: "return", the mean return of training episodes, or a name in info["metrics"].
    pbt_episodes
        Episodes since its last replacement that a policy needs to be ranked.
    schedule
        Tunable settings over the steps of the policy, which override the settings themselves: a population's
        lineage.jsonl or run directory, or {steps: {setting: value}}, on the command line as JSON.
    schedule_policy
        Policy of the lineage whose schedule is followed; None: the one with the best final score.
    num_groups
        Groups of environments per worker that step in turn; None: 2 with central inference, 1 with local.
    inference
        "local": each rollout worker chooses its own actions; "central": a policy worker batches requests of several
        rollout workers; "auto": central on a GPU, local on a CPU and with backend="ray".
    backend
        "local": one process per role; "serial": everything in this process, bit-for-bit reproducible; "ray": the nodes
        of a Ray cluster step the lanes.
    address
        With backend="ray", address of the cluster's head node, or "auto"; None: a cluster on this machine, started for
        the run.
    nodes
        With backend="ray", number of nodes that step lanes, "all", or the number of nodes with a custom Ray resource,
        by resource name.
    evaluator
        With backend="ray", machine that runs evaluations: "home", or "node", the first node, on a core besides those of
        its rollout workers.
    num_learners
        Learners of the policy, one process each, with device="cuda" one GPU each; each computes a share of every
        update. With backend="local" and central inference, each has its own policy worker.
    learner_nodes
        With backend="ray", number of learners on separate nodes, or the number on nodes with a custom Ray resource, by
        resource name. The first learner always runs at home.
    precision
        Arithmetic of the network's body (bfloat16 through autocast); heads, losses and weights stay float32. "auto":
        bfloat16 where the role's GPU or CPU is faster with it, else float32.
    encoder
        "mlp", "nature_cnn", "impala_resnet", or "auto" (by observation); a custom nn.Module as "module:Class" or
        "file.py:Class", in Python also the class itself or a callable.
    hidden_sizes
        Widths of the hidden layers of mlp networks.
    activation
        Activation of mlp networks.
    normalize_observations
        Running normalisation of float observations; its statistics are part of the weights.
    rewards
        "environment": learn from the environment's rewards; "rudder": redistribute delayed rewards to the steps that
        earned them, by a network trained beside the policy. Reported returns stay unchanged.
    redistribution_attribution
        Credit of a step: the difference that it makes to the prediction, or integrated gradients.
    redistribution_points
        Points on the path of integrated gradients.
    redistribution_max_error
        Original rewards are used while predictions leave more than this share of the returns' variance unexplained.
    redistributor_size
        Memory cells of the network that predicts returns.
    redistributor_learning_rate
        Step size of this network's optimiser.
    redistributor_interval
        Steps of the run per update of this network.
    redistributor_batch_size
        Episodes per update of this network.
    redistributor_lessons
        Capacity of this network's episode buffer; the episodes with the largest prediction errors are kept.
    redistributor_chunk
        Steps of truncated backpropagation; longer episodes are cut into chunks that overlap by half.
    redistributor_max_steps
        Longest episode to learn from.
    gamma
        Discount per step.
    learning_rate_schedule
        "linear": a numeric learning_rate decays to 0 over total_steps. Ignored when learning_rate is a function.
    batch_size
        Transitions per update, drawn from the replay buffer.
    buffer_size
        Capacity of the replay buffer in transitions; the oldest is overwritten.
    learning_starts
        Steps before the first update; continuous actions are uniformly random until then.
    updates_per_step
        Updates per step; the rate limiter holds back learner or rollout workers to keep this ratio.
    ratio_slack
        Updates by which either side may be ahead; None: a few, with backend="serial" those due for one step of all
        lanes.
    n_step
        Length n of n-step returns, shorter at the end of an episode (appendix D).
    publish_interval
        Updates between two publications of the weights to the acting roles.
    hindsight
        Hindsight experience replay (arXiv:1707.01495): ended episodes are stored again with achieved goals as desired
        goals: goals of the same or later steps ("future"), of any step ("episode"), or of the last step ("final").
        None: off.
    goals_per_step
        Relabelled goals per step, with hindsight="future" or "episode" (section 4.5: k).
    prioritized
        Prioritized replay (arXiv:1511.05952): transitions with large errors are drawn more often. Importance weights
        apply to the critics' loss alone.
    priority_alpha
        Exponent of the priorities: 0, uniform; 1, proportional (arXiv:1511.05952).
    priority_beta
        Exponent of the importance weights at the start (arXiv:1511.05952).
    priority_beta_final
        Exponent of the importance weights at total_steps; not annealed here.
    actor_learning_rate
        Step size of the policy's optimiser, or a function of progress; None: learning_rate.
    tau
        Fraction by which target networks move towards the online networks; 1: copied.
    exploration_noise
        Standard deviation of the noise on actions in [-1, 1], equal in every lane.
    target_period
        Updates between two moves of the target networks (appendix D).
    max_actor_grad
        Bound on each element of the policy's gradient (appendix D); None: no clipping.
    eviction_alpha
        In a full buffer, the transition to be replaced is drawn in proportion to its priority to this power, at most 0
        (appendix D): small errors go first. None: the oldest is replaced.
    max_seconds
        Budget in seconds of wall-clock time. The final evaluation may take an extra tenth of it, at least 10 s.
    eval_interval
        Steps between evaluations; below 1, a fraction of total_steps; "continuous": back to back, always with the
        newest weights; 0: never. None: total_steps / 20, or with a target_return at most a fifth of the time (serial:
        after each batch).
    eval_episodes
        Episodes per evaluation; in games, episodes per opponent and seat or policy.
    eval_exploration
        Evaluations sample actions; algorithms without sampling explore as at the end of training.
    eval_max_steps
        Steps after which an evaluation gives an episode up and plays another; it counts as far as it came.
    checkpoint_interval
        Steps between checkpoints; 0: only at the end; None: total_steps / 10.
    keep_checkpoints
        Number of checkpoints kept, besides the best.
    save_replay
        Store the replay buffer in checkpoints, incrementally; learning pauses meanwhile. A run resumed without it
        refills the buffer before it learns.
    """

    def __init__(
        self,
        env: str | Callable[..., Any] = ...,
        *,
        preset: str | os.PathLike[str] | None = None,
        num_workers: int | None = None,
        num_envs_per_worker: int = 4,
        device: str = "cpu",
        seed: int = 0,
        learning_rate: float | str | Callable[[float], float] = 0.0001,
        total_steps: int = 1000000,
        target_return: float | None = None,
        run_dir: str | os.PathLike[str] | None = "auto",
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
        num_groups: int | None = None,
        inference: Literal["auto", "local", "central"] = "auto",
        backend: Literal["local", "serial", "ray"] = "local",
        address: str | None = None,
        nodes: int | Literal["all"] | dict[str, int] = 1,
        evaluator: Literal["home", "node"] = "home",
        num_learners: int = 1,
        learner_nodes: int | dict[str, int] = 0,
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
        max_seconds: float | None = None,
        eval_interval: int | float | Literal["continuous"] | None = None,
        eval_episodes: int = 20,
        eval_exploration: bool = False,
        eval_max_steps: int = 30000,
        checkpoint_interval: int | None = None,
        keep_checkpoints: int = 3,
        save_replay: bool = False,
    ) -> None: ...

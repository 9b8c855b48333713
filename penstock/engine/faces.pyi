"""Written by ``python tools/signatures.py`` from the configs; edit those."""

import os
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Literal, TypedDict, Unpack

from penstock.algorithms.bases.algorithm import Algorithm
from penstock.engine.trainer import Trainer

_Env = str | Callable[..., Any]
_Preset = str | os.PathLike[str] | None

class Face(Trainer):
    """A trainer of one algorithm."""

    algorithm: ClassVar[type[Algorithm]]

class _Shared(TypedDict, total=False):
    env_kwargs: dict[str, Any]
    """Keyword arguments of the environment's constructor. Default: {}."""
    vectorize: Literal["make", "vector"]
    """"make": one environment per lane; "vector": one vector environment per group of lanes. Default: "make"."""
    num_agents: int | None
    """Agents per environment, each of which is a lane; None: the number that the environment declares. Default:
    None."""
    team_reward: Literal["own", "mean", "sum"]
    """With several agents, reward of each: its own, or the mean or sum over its team. Default: "own"."""
    num_policies: int
    """Number of policies with identical settings. They are assigned to the agents in turn; with one agent per
    environment, each policy gets its own environments. Default: 1."""
    policies: dict[str, dict[str, Any]]
    """Policies by name, each with its own settings; with several agents also ``agents``, one or more patterns of agent
    names. Default: {}."""
    policy_of: str | Callable[..., Any] | None
    """Function that maps (agent, environment index) to a policy name, instead of ``agents``; in environments with one
    agent, the agent is "". "module:function" or "file.py:function"; in Python also the function itself. Default:
    None."""
    seats: Literal["fixed", "shuffled"]
    """With several policies and agents. "fixed": each policy always plays its own agents; "shuffled": agents are
    assigned to the policies at random before each game, the number per policy unchanged. Default: "fixed"."""
    opponents: str
    """With several agents, opponents that do not learn. "past": some games use frozen past versions as opponents; with
    one policy they play all seats but one, with several policies one policy learns in the game and past versions of the
    others play the remaining agents. The name of a policy: some games use its newest weights, without learning from
    them. "none": every seat learns. Default: "none"."""
    opponent_pool: int
    """Number of past versions kept as opponents, per policy. Default: 8."""
    opponent_interval: int | None
    """Steps between versions added to the pool; None: total_steps / 20. Default: None."""
    opponent_share: float
    """Share of games played against opponents that do not learn. Default: 0.5."""
    opponent_sampling: Literal["uniform", "hard"]
    """"uniform": past versions are drawn with equal probability; "hard": in proportion to (1 - win rate)^2 against
    them. Default: "uniform"."""
    eval_against: Sequence[str | Callable[..., Any]]
    """With several agents, opponents in evaluations: "random", "best", or a class or function as "module:name" or
    "file.py:name", in Python also the object; with several policies also "others", the other policies. Empty: one
    policy plays all seats, or the policies play each other. Default: ()."""
    pbt: Literal["truncation", "tournament", "sample-factory"] | None
    """Population-based training of the run's policies (arXiv:1711.09846): at intervals a weak policy becomes a copy of
    a stronger one, with perturbed settings. "truncation": the best replace the worst; "tournament": a policy is
    replaced by a randomly drawn other one if that has a higher score; "sample-factory": like "truncation", and settings
    of the policies in between are perturbed, too. Default: None."""
    pbt_space: str | os.PathLike[str] | dict[str, Any] | None
    """Settings that may change: a TOML file with a table per setting, as for `penstock search`; in Python also the
    tables. Default: None."""
    pbt_interval: int | None
    """Steps of each policy between decisions about it; None: a twentieth of its share of total_steps. Default: None."""
    pbt_start: int | None
    """Steps of each policy before the first decision about it; None: pbt_interval. Default: None."""
    pbt_fraction: float | None
    """Share of the policies that counts as the worst, and as the best; None: 0.2, for "sample-factory" 0.3. Default:
    None."""
    pbt_metric: str
    """Metric that ranks policies: "return" (mean return of training episodes), or a name in info["metrics"]. Default:
    "return"."""
    pbt_episodes: int
    """Episodes that a policy needs since its last replacement to be ranked. Default: 10."""
    schedule: str | os.PathLike[str] | dict[Any, Any] | None
    """Values of tunable settings over the policy's steps, which override the settings: a population's lineage.jsonl or
    run directory, or {steps: {setting: value}}, on the command line as JSON. Default: None."""
    schedule_policy: str | None
    """Policy of the lineage whose schedule is used; None: the policy with the best final score. Default: None."""
    on_env_error: Literal["stop", "restart"]
    """On an exception or NaN in an environment: "stop" the run, or "restart" the rollout worker and count the error.
    Default: "stop"."""
    reward_scale: float
    """Factor applied to rewards for learning; reported returns stay unscaled. Default: 1.0."""
    reward_clip: float | None
    """Scaled rewards are clipped to [-reward_clip, reward_clip] for learning; reported returns stay unclipped. None: no
    clipping. Default: None."""
    num_workers: int | None
    """Rollout workers; with backend="ray", per node. None: one per core, at most 16. Default: None."""
    pin_workers: bool | None
    """Keep each rollout worker on one core. None: only with a GPU and one worker per core, where the scheduler would
    otherwise leave cores idle. Default: None."""
    num_envs_per_worker: int
    """Environments per rollout worker; with one agent each, also its number of lanes. Default: 16."""
    backend: Literal["local", "serial", "ray"]
    """"local": one process per role; "serial": everything in this process, bit-for-bit reproducible; "ray": the nodes
    of a Ray cluster step the lanes. Default: "local"."""
    address: str | None
    """With backend="ray", address of the cluster's head node, or "auto"; None: a cluster on this machine, started for
    the run. Default: None."""
    nodes: int | str | dict[str, int]
    """With backend="ray", number of nodes that step lanes, "all", "2:64" for 2 to 64 that come and go during the run,
    or the number of nodes with a custom Ray resource, by resource name. Default: 1."""
    evaluator: Literal["home", "node"]
    """With backend="ray", machine that runs evaluations: "home", or "node", the first node, on a core of its own beside
    the rollout workers'. Default: "home"."""
    num_evaluators: int
    """With evaluator="node", number of evaluators, one on each of the first nodes, which share the episodes of every
    evaluation. Default: 1."""
    num_learners: int
    """Learners of the policy, one process each, with device="cuda" one GPU each; each computes a share of every update.
    With backend="local" and central inference, each has its own policy worker. Default: 1."""
    nodes_per_gateway: int | None
    """With backend="ray", largest number of nodes per gateway, a process on one of them that relays between home and
    these nodes; None: no gateways for up to 8 nodes, else one per 64 nodes. Default: None."""
    node_weights: Literal["float32", "bfloat16"]
    """With backend="ray", precision in which weights are sent to nodes: "bfloat16" halves the bytes; lanes act with the
    rounded weights, and record their probabilities. Default: "float32"."""
    learner_nodes: int | dict[str, int]
    """With backend="ray", number of learners on separate nodes, or the number on nodes with a custom Ray resource, by
    resource name. The first learner always runs at home. Default: 0."""
    precision: Literal["auto", "float32", "bfloat16"]
    """Arithmetic of the network's body (bfloat16 through autocast); heads, losses and weights stay float32. "auto":
    bfloat16 where the role's GPU or CPU is faster with it, else float32. Default: "float32"."""
    seed: int
    """Seed of weights, environments and exploration. Default: 0."""
    encoder: str | Callable[..., Any]
    """"mlp", "nature_cnn", "nature_cnn_mlp" (the latter with hidden_sizes), "impala_resnet", or "auto" (by
    observation); a custom nn.Module as "module:Class" or "file.py:Class", in Python also the class itself or a
    callable. Default: "auto"."""
    hidden_sizes: Sequence[int]
    """Widths of the hidden layers of mlp networks. Default: (64, 64)."""
    activation: Literal["tanh", "relu", "elu", "silu"]
    """Activation of mlp networks. Default: "tanh"."""
    normalize_observations: bool
    """Running normalisation of float observations; its statistics are part of the weights. Default: True."""
    gamma: float
    """Discount per step. Default: 0.99."""
    learning_rate_schedule: Literal["constant", "linear"]
    """"linear": a numeric learning_rate decays to 0 over total_steps. Ignored when learning_rate is a function.
    Default: "constant"."""
    total_steps: int
    """Budget in steps; schedules span it. Default: 1000000."""
    max_seconds: float | None
    """Budget in seconds of wall-clock time. The final evaluation may take an extra tenth of it, at least 10 s. With
    backend="ray", time counts from the moment a node has joined. Default: None."""
    target_return: float | None
    """The run ends when the mean return of an evaluation reaches this value; None: no target. Default: None."""
    eval_interval: int | float | Literal["continuous"] | None
    """Steps between evaluations; below 1, a fraction of total_steps; "continuous": back to back, always with the newest
    weights; 0: never. None: total_steps / 20, or with a target_return after each batch; after the first second of play,
    they take at most 3 % of the cores' time, or 10 % with a target_return (no limit with backend="serial"). Default:
    None."""
    eval_episodes: int
    """Episodes per evaluation; in games, episodes per opponent and seat or policy. Default: 20."""
    eval_exploration: bool
    """Sample actions in evaluations; algorithms that do not sample explore as at the end of training. Default:
    False."""
    eval_max_steps: int
    """Steps after which an evaluation ends an episode early and plays another; the return up to then counts. Default:
    30000."""
    eval_videos: int
    """Largest number of evaluation videos kept in the run, spread over the training, among them the newest and that of
    the best weights; 0: no videos. A video shows one extra episode (needs the extra "video"). Default: 0."""
    checkpoint_interval: int | None
    """Steps between checkpoints; 0: only at the end of training; None: total_steps / 10. Default: None."""
    keep_checkpoints: int
    """Number of checkpoints kept, besides the best. Default: 3."""
    run_dir: str | os.PathLike[str] | None
    """Directory of the run; "auto": runs/<env>-<algorithm>-<time>; None: nothing is written. A URL such as
    s3://bucket/name is a directory runs/name whose files are also sent there (needs the extra "s3"); with a slash at
    its end, a directory within it, named as with "auto". Default: "auto"."""
    upload_timeout: float
    """Longest wait, in seconds, at the end of training until all files are sent to the URL of run_dir. Default:
    300.0."""

class _SharedExceptA3C(TypedDict, total=False):
    num_groups: int | None
    """Groups of environments per worker that step in turn; None: 2 with central inference, 1 with local. Default:
    None."""
    inference: Literal["auto", "local", "central"]
    """"local": each rollout worker chooses its own actions; "central": a policy worker batches requests of several
    rollout workers; "auto": central on a GPU, local on a CPU and with backend="ray". Default: "auto"."""
    device: str
    """Torch device of the learner and of central inference: "cpu", "cuda", "cuda:1", ... Default: "cpu"."""

class _SharedLearningRate(TypedDict, total=False):
    learning_rate: float | str | Callable[[float], float] | None
    """Step size of the optimiser, or a function of progress in [0, 1]: "module:name" or "file.py:name", in Python also
    the function itself. Default: 0.0003."""

class _Fresh(TypedDict, total=False):
    memory: Literal["none", "gru", "lstm"]
    """Memory core after the encoder. Default: "none"."""
    memory_size: int
    """Width of the memory core. Default: 128."""
    memory_span: int | None
    """Steps over which an untrained memory core remembers (chrono initialisation, arXiv:1804.11188); None: default
    initialisation. Default: None."""
    burn_in: int
    """First steps of each segment that only warm up the memory state: no loss, no gradient. Default: 0."""
    max_grad_norm: float
    """Global norm to which gradients are clipped. Default: 0.5."""
    segment_length: int
    """Steps per segment (T). Default: 32."""

class _DelayedReward(TypedDict, total=False):
    rewards: Literal["environment", "rudder"]
    """"environment": learn from the environment's rewards; "rudder": redistribute delayed rewards to the steps that
    earned them, with a network trained alongside the policy. Reported returns stay unchanged. Default:
    "environment"."""
    redistribution_attribution: Literal["difference", "integrated_gradients"]
    """Credit of a step: the change that it makes to the predicted return, or integrated gradients. Default:
    "difference"."""
    redistribution_points: int
    """Points on the path of integrated gradients. Default: 20."""
    redistribution_max_error: float
    """Original rewards are used while predictions leave more than this share of the returns' variance unexplained.
    Default: 0.2."""
    redistributor_size: int
    """Memory cells of the network that predicts returns. Default: 32."""
    redistributor_learning_rate: float
    """Step size of the return-predicting network's optimiser. Default: 0.005."""
    redistributor_interval: int
    """Steps of the run per update of the return-predicting network. Default: 25."""
    redistributor_batch_size: int
    """Episodes per update of the return-predicting network. Default: 8."""
    redistributor_lessons: int
    """Capacity of the network's episode buffer, which keeps the episodes with the largest prediction errors. Default:
    512."""
    redistributor_chunk: int
    """Steps of truncated backpropagation; longer episodes are cut into chunks that overlap by half. Default: 500."""
    redistributor_max_steps: int
    """Length of the longest episode that the return-predicting network learns from. Default: 10000."""

class _SegmentDelayedReward(TypedDict, total=False):
    redistribution_value: Literal["redistributed", "original"]
    """Rewards that values are learned from: "redistributed", as for the policy; "original", with redistributed rewards
    mixed into the policy's advantages, as in the paper's Atari experiments. Default: "redistributed"."""
    redistribution_share: float
    """With original values, largest share of redistributed rewards in the advantages. Default: 0.5."""
    redistribution_trace: float
    """With original values, share of each redistributed reward that is also credited to the preceding step. Default:
    0.5."""

class _Segment(TypedDict, total=False):
    shared_encoder: bool | None
    """One encoder for policy and value; None: shared for images, memory and custom modules, separate for mlp. Default:
    None."""
    continuous_actions: Literal["clipped", "squashed"]
    """Distribution of actions. "clipped": normal, clipped by the environment's lanes, with one standard deviation for
    all observations; "squashed": tanh of a normal one, which cannot leave the range, with a standard deviation that
    depends on the observation (arXiv:2006.05990, section 3.2). If any number is unbounded, all are "clipped". Default:
    "clipped"."""
    initial_log_std: float | None
    """Logarithm of the initial standard deviation of continuous actions, in units of half their range; None: -0.1 if
    squashed, 0 if clipped. Default: None."""
    log_std_lr_scale: float
    """Learning rate of the log standard deviation of "clipped" actions, relative to other parameters. 16 lets it fall
    within some ten thousand steps, for actions that must be precise, but too early if rewards are yet to be found.
    Default: 1.0."""
    entropy_coef: float | str | Callable[[float], float]
    """Weight of the entropy bonus, or a function of progress as for learning_rate. Default: 0.01."""
    entropy_coef_final: float | None
    """Final weight of the entropy bonus: a numeric entropy_coef moves linearly to it over total_steps; None: constant.
    Default: None."""
    value_coef: float
    """Weight of the value loss. Default: 0.5."""
    normalize_returns: bool
    """Running normalisation of value targets; its statistics are part of the weights. Default: True."""

class _Asynchronous(TypedDict, total=False):
    batch_size: int
    """Steps per update. Default: 512."""
    max_policy_lag: int
    """Policy lag, in versions, from which a step is masked out of the loss. Default: 100."""

class _Adam(TypedDict, total=False):
    adam_beta1: float
    """Decay rate of the running mean of gradients. Default: 0.9."""
    adam_beta2: float
    """Decay rate of the running mean of squared gradients. Default: 0.999."""
    adam_eps: float
    """Constant added to the root of the mean square. Default: 1e-05."""

class _Proximal(TypedDict, total=False):
    gae_lambda: float
    """Lambda of generalised advantage estimation. Default: 0.95."""
    normalize_advantages: bool
    """Normalise advantages to mean 0 and standard deviation 1 in each update. Default: True."""
    clip_range: float
    """Distance that the probability ratio may move from 1. Default: 0.2."""
    target_kl: float | None
    """Skip a batch's remaining updates once approx_kl exceeds 1.5 times this value (nats); None: never. Default:
    None."""

class _RMSProp(TypedDict, total=False):
    rmsprop_decay: float
    """Decay rate of the running mean of squared gradients, which begins at 0 (in TensorFlow 1 at 1). Default: 0.99."""
    rmsprop_eps: float
    """Constant that bounds steps when gradients are small. Default: 0.01."""
    rmsprop_eps_inside: bool
    """True: g / sqrt(s + eps), as in TensorFlow 1 and the papers' code; False: g / (sqrt(s) + eps). Default: True."""

class _Mixture(TypedDict, total=False):
    replay: Sequence[str]
    """Composition of each batch: sources as kind:share,setting=value. Shares are exact, such as 0.5 or 7/8. Kinds:
    queue (fresh segments), uniform, reservoir, prioritized, attentive, elite. Default: ('queue:1',)."""
    save_replay: bool
    """Store replayed segments in checkpoints; learning pauses meanwhile. A run resumed without them refills its sources
    before it learns. Default: False."""

class _IMPALA(TypedDict, total=False):
    vtrace_lambda: float
    """Lambda of V-trace's targets: weight of longer returns. Default: 1.0."""
    rho_bar: float
    """Bound on the probability ratio in the temporal difference; determines the policy whose value is learned. Default:
    1.0."""
    c_bar: float
    """Bound on the probability ratio in the trace; determines the speed of convergence. Default: 1.0."""
    rho_pg_bar: float
    """Bound on the probability ratio in the policy gradient. Default: 1.0."""
    reduction: Literal["sum", "mean"]
    """"sum": losses are summed over the steps of a batch, as published; "mean": averaged. Learning rate and gradient
    clipping must match. Default: "sum"."""

class _QLearning(TypedDict, total=False):
    learning_rate: float | str | Callable[[float], float]
    """Step size of the optimiser, or a function of progress in [0, 1]: "module:name" or "file.py:name", in Python also
    the function itself. Default: 0.002."""
    memory: Literal["none", "gru", "lstm"]
    """Memory core after the encoder; with one, sequences are replayed instead of transitions, as in R2D2. Default:
    "none"."""
    memory_size: int
    """Width of the memory core. Default: 128."""
    memory_span: int | None
    """Steps over which an untrained memory core remembers (chrono initialisation, arXiv:1804.11188); None: default
    initialisation. Default: None."""
    sequence_length: int
    """Learned steps per sequence; without memory, the settings of sequences have no effect. Default: 20."""
    burn_in: int
    """Steps before the learned ones that only warm up the stored memory state: no loss, no gradient. Default: 10."""
    sequence_overlap: int
    """Learned steps shared by successive sequences of an episode. Default: 10."""
    priority_eta: float
    """Weight of the largest error in a sequence's priority; the mean error has the rest. Default: 0.9."""
    optimizer: Literal["adam", "adamw", "rmsprop"]
    """"rmsprop": centred, decay 0.95, as published; "adam": as in most current implementations; "adamw": with decoupled
    weight decay (arXiv:1711.05101). Default: "adam"."""
    weight_decay: float
    """Weight decay of "adamw" alone: each update multiplies weights by 1 - learning_rate * weight_decay. Default:
    0.0001."""
    optimizer_eps: float
    """Constant that the optimiser adds to the root of the mean square. Default: 1e-08."""
    max_grad_norm: float | None
    """Global norm to which gradients are clipped (arXiv:1511.06581); None: no clipping. Default: 10.0."""
    double: bool
    """Double DQN (arXiv:1509.06461): the online network selects the action, the target network evaluates it. Default:
    False."""
    dueling: bool
    """Dueling network (arXiv:1511.06581): separate streams for value and advantages. Default: False."""
    td_loss: Literal["squared", "huber"]
    """Loss of a TD error if distributional="none": "squared", half its square (arXiv:1803.00933); "huber", linear
    beyond 1, which bounds the weight of rare large errors (doi:10.1038/nature14236). Default: "squared"."""
    target_period: int
    """Updates between copies of the network to the target network. Default: 100."""
    munchausen: bool
    """Munchausen reinforcement learning (M-DQN, arXiv:2007.14430): add the scaled logarithm of the target network's
    soft policy to the reward, and bootstrap from that policy's value with its entropy. Default: False."""
    munchausen_alpha: float
    """Weight of the logarithm added to the reward (arXiv:2007.14430, section 4). Default: 0.9."""
    munchausen_temperature: float
    """Temperature tau of the soft policy, in units of returns (arXiv:2007.14430, section 4). Default: 0.03."""
    munchausen_floor: float
    """Lower bound of tau log pi (arXiv:2007.14430, section 4: l_0). Default: -1.0."""
    rescale_values: bool
    """Learn values of rescaled returns, h(x) = sign(x) (sqrt(|x| + 1) - 1) + x / 1000 (arXiv:1805.11593). Default:
    False."""
    normalize_returns: bool
    """Running normalisation of value targets (PopArt, arXiv:1602.07714); its statistics are part of the weights. No
    effect with "c51", whose returns are fixed by v_min and v_max. Default: False."""
    distributional: Literal["none", "c51", "quantile", "iqn"]
    """Distribution of returns to learn: "none", the mean alone; "c51", probabilities of fixed returns
    (arXiv:1707.06887); "quantile", fixed quantiles, QR-DQN (arXiv:1710.10044); "iqn", quantiles at sampled fractions
    (arXiv:1806.06923). Default: "none"."""
    num_atoms: int
    """Number of fixed returns of "c51" (arXiv:1707.06887, section 5). Default: 51."""
    v_min: float
    """Smallest return of the c51 support (published, for clipped rewards: -10); with rescale_values, a rescaled return.
    Default: -100.0."""
    v_max: float
    """Largest return of the c51 support (published, for clipped rewards: 10); with rescale_values, a rescaled return.
    Default: 100.0."""
    num_quantiles: int
    """Number of quantiles of "quantile" (published: 200), and of fractions that "iqn" samples for a value and for its
    target. Default: 32."""
    num_acting_quantiles: int
    """Number of fractions, the midpoints of equal parts, whose quantiles "iqn" averages to choose an action
    (arXiv:1806.06923, section 3.1: K). Default: 32."""
    resnet_width: int
    """Multiple of the published channels and units of encoder="impala_resnet" (BTR, arXiv:2411.03820: 2). Default:
    1."""
    resnet_pool: int | None
    """Side to which encoder="impala_resnet" reduces its last maps, by adaptive max pooling (BTR, arXiv:2411.03820: 6);
    None: no pooling. Default: None."""
    spectral_norm: bool
    """Divide the residual convolutions of encoder="impala_resnet" by their largest singular value (arXiv:1802.05957, as
    in BTR, arXiv:2411.03820). Default: False."""
    noisy: bool
    """NoisyNets (arXiv:1706.10295): noise on the head's weights replaces random actions; exploration is ignored.
    Default: False."""
    noisy_sigma: float
    """Initial scale of the noise on weights, sigma_0 (arXiv:1706.10295, section 3.2). Default: 0.5."""
    noisy_epsilon: bool
    """With noisy, take random actions, too, as often as without it (BTR, arXiv:2411.03820). Default: False."""

class _Replay(TypedDict, total=False):
    batch_size: int
    """Transitions per update, drawn from the replay buffer. Default: 256."""
    buffer_size: int
    """Capacity of the replay buffer in transitions; the oldest is overwritten. Default: 1000000."""
    learning_starts: int
    """Steps before the first update; continuous actions are uniformly random until then. Default: 1000."""
    updates_per_step: float
    """Updates per step; the rate limiter holds back learner or rollout workers to keep this ratio. Default: 1.0."""
    ratio_slack: int | None
    """Updates by which learner or rollout workers may be ahead of updates_per_step; None: those due for two steps of
    all lanes, at least 32; with backend="serial", those due for one step. Default: None."""
    n_step: int
    """Length n of n-step returns, shorter at the end of an episode. Default: 1."""
    publish_interval: int
    """Updates between publications of the weights to the acting roles. Default: 1."""
    hindsight: Literal["future", "episode", "final"] | None
    """Hindsight experience replay (arXiv:1707.01495): store ended episodes again, with desired goals that they
    achieved: at the same or a later step ("future"), at any step ("episode"), or at the last step ("final"). None: off.
    Default: None."""
    goals_per_step: int
    """Relabelled goals per step, with hindsight="future" or "episode" (section 4.5: k). Default: 4."""
    save_replay: bool
    """Store the replay buffer in checkpoints, incrementally; learning pauses meanwhile. A run resumed without it
    refills the buffer before it learns. Default: False."""
    replay_at: Literal["home", "gateways"]
    """With backend="ray", place of the replay buffer: home, or a shard at each gateway, which stores the steps of its
    nodes; batches are drawn from all shards. There is one gateway per `nodes_per_gateway` nodes, by default per 64.
    Default: "home"."""

class _PrioritizedReplay(TypedDict, total=False):
    prioritized: bool
    """Prioritized replay (arXiv:1511.05952): transitions with large errors are drawn more often. Default: False."""
    priority_alpha: float
    """Exponent of the priorities: 0, uniform; 1, proportional (arXiv:1511.05952). Default: 0.6."""
    priority_beta: float
    """Exponent of the importance weights at the start (arXiv:1511.05952). Default: 0.4."""
    priority_beta_final: float
    """Exponent of the importance weights at total_steps (arXiv:1511.05952). Default: 1.0."""

class _DQN(TypedDict, total=False):
    exploration: float
    """Probability of a random action at the start (doi:10.1038/nature14236). Default: 1.0."""
    exploration_final: float
    """Probability of a random action after exploration_steps. Default: 0.05."""
    exploration_steps: int
    """Steps over which the probability of a random action decays linearly. Default: 10000."""

class _ApeX(TypedDict, total=False):
    exploration: float
    """Probability of a random action in the first lane (section 4.1). Default: 0.4."""
    exploration_exponent: float
    """Lane i of N explores with probability exploration ** (1 + exploration_exponent * i / (N - 1)) (section 4.1).
    Nodes take these rates in turn, so that the lanes of each node cover the whole range. Default: 7.0."""

class _Control(TypedDict, total=False):
    learning_rate: float | str | Callable[[float], float]
    """Step size of the optimiser, or a function of progress in [0, 1]: "module:name" or "file.py:name", in Python also
    the function itself. Default: 0.0003."""
    actor_learning_rate: float | str | Callable[[float], float] | None
    """Step size of the policy's optimiser, or a function of progress; None: learning_rate. Default: None."""
    tau: float
    """Fraction by which target networks move towards the online networks per update. Default: 0.005."""
    noise_hold: int
    """Largest number of steps for which a lane keeps its exploration noise: n steps with probability proportional to
    n^-2 (arXiv:2604.04539: 16); 1: new noise in every step. Default: 1."""
    return_bound: float | None
    """Divide rewards by the standard deviation of the running discounted return, or by more, so that no such return or
    reward exceeds this bound (arXiv:2604.04539: 5); None: no scaling. Default: None."""
    reset_interval: int | None
    """Updates between resets of networks and optimisers to newly initialised ones; replay and normalisation are kept
    (arXiv:2205.07802: 200,000). None: never. Default: None."""

class _DDPG(TypedDict, total=False):
    exploration_noise: float
    """Standard deviation of the noise on actions in [-1, 1] (as in CleanRL). Default: 0.1."""

class _TD3(TypedDict, total=False):
    exploration_noise: float
    """Standard deviation of the noise on actions in [-1, 1] (section 6.1). Default: 0.1."""
    target_noise: float
    """Standard deviation of the noise that smooths the target policy (section 6.1). Default: 0.2."""
    target_noise_clip: float
    """Bound on the noise that smooths the target policy (section 6.1). Default: 0.5."""
    policy_delay: int
    """Critic updates per update of policy and targets (section 6.1). Default: 2."""

class _SoftCritic(TypedDict, total=False):
    network: Literal["mlp", "residual"]
    """Hidden layers of policy and critics over vectors: "mlp", layers of `hidden_sizes`; "residual", a residual block
    of two layers for each of `hidden_sizes`, which are equal (arXiv:2604.04539). Default: "mlp"."""
    normalization: Literal["batch", "layer", "rms"] | None
    """Normalisation of each hidden layer before its activation: "batch", which also normalises the input; "layer" or
    "rms", each row by itself; None: no normalisation. Default: None."""
    unit_weights: bool
    """Keep the weights of each hidden unit at norm 1, and scale and shift of each normalisation at the norm
    sqrt(units), after every update (arXiv:2604.04539). Default: False."""
    critic_hidden_sizes: Sequence[int] | None
    """Widths of the critics' hidden layers; None: hidden_sizes, or 256 after an image encoder or a custom one. Default:
    None."""
    distributional: Literal["none", "c51", "hl_gauss"]
    """Critics that give distributions of returns: "c51", whose target is the distribution of the critic with the
    smaller mean (arXiv:1707.06887); "hl_gauss", a normal distribution around the smaller mean (arXiv:2403.03950);
    "none": critics give values. Default: "none"."""
    num_atoms: int
    """Number of returns in a distribution. Default: 101."""
    v_min: float
    """Smallest return in a distribution. Default: -5.0."""
    v_max: float
    """Largest return in a distribution. Default: 5.0."""

class _SAC(TypedDict, total=False):
    alpha: float | None
    """Fixed temperature; None: learned. Default: None."""
    initial_alpha: float
    """Initial value of a learned temperature. Default: 1.0."""
    target_entropy: float | None
    """Target of a learned temperature: entropy of actions in [-1, 1]; None: minus their dimension (appendix D).
    Default: None."""
    target_std: float | None
    """Standard deviation of a normal distribution whose entropy, d/2 log(2 pi e std^2) in d dimensions, is the target
    (arXiv:2604.04539: 0.15); None: the target is target_entropy. Default: None."""
    policy_delay: int
    """Critic updates per update of policy and temperature. Default: 1."""
    log_std: Literal["squashed", "clipped"]
    """Bounds of the logarithm of the policy's standard deviation: "squashed", by tanh into [-5, 2]; "clipped", to [-20,
    2], as in the published code. Default: "squashed"."""

class APPOSettings(
    _Shared, _SharedExceptA3C, _SharedLearningRate, _Fresh, _DelayedReward, _SegmentDelayedReward, _Segment,
    _Asynchronous, _Adam, _Proximal, total=False
):
    num_epochs: int | None
    """Passes over each batch. None: 2 to 8, as many as keep policy lag within 32 updates (fewer with more lanes); 2
    with an image encoder. Default: None."""
    num_minibatches: int
    """Updates per pass; a batch has num_minibatches * batch_size steps. Default: 2."""
    advantage_estimator: Literal["gae", "vtrace"]
    """"gae": once per batch, from the learner's values; "vtrace": corrected for policy lag, recomputed in every update.
    Default: "gae"."""
    loss: Literal["clipped", "decoupled"]
    """"clipped": ratios to the policy that acted; "decoupled": to the policy at the batch's start, with an importance
    weight for the difference between the two (arXiv:2110.00641). Default: "clipped"."""
    rho_proximal: float
    """Decoupled loss: bound on a step's importance weight. Default: 2.0."""
    rho_bar: float
    """V-trace: bound on the probability ratio in the temporal difference. Default: 1.0."""
    c_bar: float
    """V-trace: bound on the probability ratio in the trace. Default: 1.0."""

class APPO(Face):
    """Trains with APPO, asynchronous PPO; settings are fields of `penstock.algorithms.appo.APPOConfig`.

    Other defaults: learning_rate_schedule="linear", learning_rate=None, entropy_coef=0.003, batch_size=256.
    """

    def __init__(self, env: _Env = ..., *, preset: _Preset = None, **settings: Unpack[APPOSettings]) -> None: ...

class PPOSettings(
    _Shared, _SharedExceptA3C, _Fresh, _DelayedReward, _SegmentDelayedReward, _Segment, _Adam, _Proximal, total=False
):
    learning_rate: float | str | Callable[[float], float]
    """Step size of the optimiser, or a function of progress in [0, 1]: "module:name" or "file.py:name", in Python also
    the function itself. Default: 0.0005."""
    num_epochs: int
    """Passes over each batch. Default: 10."""
    batch_size: int
    """Steps per update (one minibatch): a divisor of the steps in all lanes' segments; with memory, also a multiple of
    segment_length. Default: 256."""
    value_clip_range: float | None
    """Largest change of a value per batch; None: unlimited. Default: None."""
    batch_timeout: float | None
    """Longest wait for other lanes, in seconds after a batch's first segment. Late segments join a later batch, with a
    policy lag. None: every batch has all lanes. Default: None."""

class PPO(Face):
    """Trains with PPO, synchronous; settings are fields of `penstock.algorithms.ppo.PPOConfig`.

    Other defaults: num_envs_per_worker=8, learning_rate_schedule="linear", total_steps=500000, segment_length=128.
    """

    def __init__(self, env: _Env = ..., *, preset: _Preset = None, **settings: Unpack[PPOSettings]) -> None: ...

class A2CSettings(
    _Shared, _SharedExceptA3C, _Fresh, _DelayedReward, _SegmentDelayedReward, _Segment, _RMSProp, total=False
):
    learning_rate: float | str | Callable[[float], float]
    """Step size of the optimiser, or a function of progress in [0, 1]: "module:name" or "file.py:name", in Python also
    the function itself. Default: 0.004."""
    gae_lambda: float
    """Lambda of generalised advantage estimation; 1: n-step returns, as published. Default: 1.0."""

class A2C(Face):
    """Trains with A2C, synchronous; settings are fields of `penstock.algorithms.a2c.A2CConfig`.

    Other defaults: learning_rate_schedule="linear", total_steps=500000, segment_length=5, rmsprop_eps=0.0001.
    """

    def __init__(self, env: _Env = ..., *, preset: _Preset = None, **settings: Unpack[A2CSettings]) -> None: ...

class A3CSettings(_Shared, _Fresh, _Segment, _RMSProp, total=False):
    num_groups: Literal[1] | None
    """No effect: all lanes of a worker step together. Default: None."""
    inference: Literal["auto", "local"]
    """No effect: rollout workers always choose their own actions. Default: "auto"."""
    device: Literal["cpu"]
    """Always "cpu", where rollout workers learn. Default: "cpu"."""
    learning_rate: float | str | Callable[[float], float]
    """Step size of the optimiser, or a function of progress in [0, 1]: "module:name" or "file.py:name", in Python also
    the function itself. Default: 0.003."""
    gae_lambda: float
    """Lambda of generalised advantage estimation; 1: n-step returns, as published. Default: 1.0."""
    entropy_spread: float
    """Entropy bonuses differ between workers: evenly spaced in log scale from entropy_coef / entropy_spread to
    entropy_coef * entropy_spread. Default: 1.0."""
    reduction: Literal["sum", "mean"]
    """"sum": losses are summed over the steps of a segment, as published; "mean": averaged. Learning rate and gradient
    clipping must match. Default: "sum"."""

class A3C(Face):
    """Trains with A3C, learning in the workers; settings are fields of `penstock.algorithms.a3c.A3CConfig`.

    Other defaults: num_envs_per_worker=8, learning_rate_schedule="linear", total_steps=500000, max_grad_norm=40.0,
    segment_length=20.
    """

    def __init__(self, env: _Env = ..., *, preset: _Preset = None, **settings: Unpack[A3CSettings]) -> None: ...

class IMPALASettings(
    _Shared, _SharedExceptA3C, _SharedLearningRate, _Fresh, _DelayedReward, _SegmentDelayedReward, _Segment,
    _Asynchronous, _RMSProp, _Mixture, _IMPALA, total=False
): ...

class IMPALA(Face):
    """Trains with IMPALA, V-trace; settings are fields of `penstock.algorithms.impala.IMPALAConfig`.

    Other defaults: learning_rate_schedule="linear", learning_rate=None, max_grad_norm=40.0, segment_length=20,
    batch_size=320.
    """

    def __init__(self, env: _Env = ..., *, preset: _Preset = None, **settings: Unpack[IMPALASettings]) -> None: ...

class IMPACTSettings(
    _Shared, _SharedExceptA3C, _SharedLearningRate, _Fresh, _Segment, _Asynchronous, _Adam, total=False
):
    num_batches: int
    """Capacity of the circular buffer in batches (N); while it is full, a new batch waits for a place. Default: 4."""
    batch_uses: int
    """Number of updates from each batch (K); max_policy_lag masks steps by their policy lag at the first update.
    Default: 2."""
    target_period: int
    """Updates between copies of the network to the target network (published: N * K). Default: 8."""
    rho_target: float
    """Bound on mu / pi_target, the ratio that corrects the surrogate against the target network. Default: 2.0."""
    clip_range: float
    """The surrogate's ratio is clipped to [1 - clip_range, 1 + clip_range]. Default: 0.3."""
    gae_lambda: float
    """Lambda of V-trace's targets: weight of longer returns. Default: 0.95."""
    rho_bar: float
    """V-trace: bound on the ratio pi_target / mu in the temporal difference. Default: 1.0."""
    c_bar: float
    """V-trace: bound on the ratio pi_target / mu in the trace. Default: 1.0."""
    kl_coef: float
    """Weight of KL(pi_target || pi). Default: 0.0."""
    normalize_advantages: bool
    """Normalise advantages to mean 0 and standard deviation 1 in each update. Default: True."""

class IMPACT(Face):
    """Trains with IMPACT, which reuses batches; settings are fields of `penstock.algorithms.impact.IMPACTConfig`.

    Other defaults: learning_rate_schedule="linear", learning_rate=None, entropy_coef=0.003, batch_size=256.
    """

    def __init__(self, env: _Env = ..., *, preset: _Preset = None, **settings: Unpack[IMPACTSettings]) -> None: ...

class CLEARSettings(
    _Shared, _SharedExceptA3C, _SharedLearningRate, _Fresh, _DelayedReward, _SegmentDelayedReward, _Segment,
    _Asynchronous, _RMSProp, _Mixture, _IMPALA, total=False
):
    policy_cloning_coef: float
    """Weight of KL(mu || pi) on replayed steps, with mu the policy that acted. Default: 0.01."""
    value_cloning_coef: float
    """Weight of the squared difference to the value recorded while acting, on replayed steps. Default: 0.005."""

class CLEAR(Face):
    """Trains with CLEAR, against forgetting; settings are fields of `penstock.algorithms.clear.CLEARConfig`.

    Other defaults: learning_rate_schedule="linear", learning_rate=None, max_grad_norm=40.0, segment_length=20,
    batch_size=320, replay=('queue:1/2', 'reservoir:1/2,capacity=2000').
    """

    def __init__(self, env: _Env = ..., *, preset: _Preset = None, **settings: Unpack[CLEARSettings]) -> None: ...

class LASERSettings(
    _Shared, _SharedExceptA3C, _SharedLearningRate, _Fresh, _DelayedReward, _SegmentDelayedReward, _Segment,
    _Asynchronous, _RMSProp, _Mixture, _IMPALA, total=False
):
    trust_region: float
    """States with a larger KL(pi || implied policy), in nats, are masked out of the loss, and traces end there.
    Default: 0.3."""

class LASER(Face):
    """Trains with LASER, mostly on replayed data; settings are fields of `penstock.algorithms.laser.LASERConfig`.

    Other defaults: learning_rate_schedule="linear", learning_rate=None, max_grad_norm=40.0, segment_length=20,
    batch_size=320, replay=('queue:1/4', 'uniform:3/4,capacity=2000').
    """

    def __init__(self, env: _Env = ..., *, preset: _Preset = None, **settings: Unpack[LASERSettings]) -> None: ...

class PQNSettings(_Shared, _SharedExceptA3C, _Fresh, _DelayedReward, _SegmentDelayedReward, total=False):
    learning_rate: float | str | Callable[[float], float]
    """Step size of the optimiser, or a function of progress in [0, 1]: "module:name" or "file.py:name", in Python also
    the function itself. Default: 0.001."""
    layer_norm: bool
    """Layer normalisation before each activation of the encoder (section 3.3); custom encoders are left unchanged.
    Default: True."""
    normalize_returns: bool
    """Running normalisation of value targets (PopArt, arXiv:1602.07714); its statistics are part of the weights.
    Default: False."""
    batch_size: int
    """Steps per update (one minibatch): a divisor of the steps in all lanes' segments; with memory, also a multiple of
    segment_length. Default: 256."""
    num_epochs: int
    """Passes over each batch. Default: 4."""
    q_lambda: float
    """Lambda of the returns that action values regress on: 0, one step; 1, the rest of the segment. Default: 0.65."""
    exploration: float
    """Probability of a random action at the start. Default: 1.0."""
    exploration_final: float
    """Probability of a random action after exploration_steps. Default: 0.05."""
    exploration_steps: int
    """Steps over which the probability of a random action decays linearly. Default: 50000."""

class PQN(Face):
    """Trains with PQN, Q-learning without replay; settings are fields of `penstock.algorithms.pqn.PQNConfig`.

    Other defaults: hidden_sizes=(128, 128), activation="relu", learning_rate_schedule="linear", total_steps=500000,
    max_grad_norm=10.0, segment_length=64.
    """

    def __init__(self, env: _Env = ..., *, preset: _Preset = None, **settings: Unpack[PQNSettings]) -> None: ...

class DQNSettings(
    _Shared, _SharedExceptA3C, _DelayedReward, _QLearning, _Replay, _PrioritizedReplay, _DQN, total=False
): ...

class DQN(Face):
    """Trains with DQN and its extensions; settings are fields of `penstock.algorithms.dqn.DQNConfig`.

    Other defaults: num_envs_per_worker=1, hidden_sizes=(128, 128), activation="relu", normalize_observations=False,
    learning_rate_schedule="linear", max_grad_norm=1.0, normalize_returns=True, batch_size=128, buffer_size=100000,
    updates_per_step=0.5, n_step=3.
    """

    def __init__(self, env: _Env = ..., *, preset: _Preset = None, **settings: Unpack[DQNSettings]) -> None: ...

class RainbowSettings(
    _Shared, _SharedExceptA3C, _DelayedReward, _QLearning, _Replay, _PrioritizedReplay, _DQN, total=False
): ...

class Rainbow(Face):
    """Trains with Rainbow, six extensions of DQN; settings are fields of `penstock.algorithms.rainbow.RainbowConfig`.

    Other defaults: num_envs_per_worker=1, hidden_sizes=(128, 128), activation="relu", normalize_observations=False,
    learning_rate=0.001, double=True, dueling=True, distributional="c51", noisy=True, batch_size=64, buffer_size=100000,
    updates_per_step=0.5, n_step=3, prioritized=True, priority_alpha=0.5.
    """

    def __init__(self, env: _Env = ..., *, preset: _Preset = None, **settings: Unpack[RainbowSettings]) -> None: ...

class BTRSettings(
    _Shared, _SharedExceptA3C, _DelayedReward, _QLearning, _Replay, _PrioritizedReplay, _DQN, total=False
):
    exploration_share: float
    """Share of total_steps after which noisy layers alone explore (arXiv:2411.03820: half of the frames). Default:
    0.5."""

class BTR(Face):
    """Trains with BTR, Rainbow's successor; settings are fields of `penstock.algorithms.btr.BTRConfig`.

    Other defaults: num_envs_per_worker=8, hidden_sizes=(128, 128), activation="relu", normalize_observations=False,
    learning_rate=0.001, dueling=True, munchausen=True, distributional="iqn", num_quantiles=8, num_acting_quantiles=8,
    noisy=True, noisy_epsilon=True, batch_size=64, buffer_size=100000, updates_per_step=0.25, n_step=3,
    prioritized=True, priority_alpha=0.2, exploration_final=0.01.
    """

    def __init__(self, env: _Env = ..., *, preset: _Preset = None, **settings: Unpack[BTRSettings]) -> None: ...

class ApeXSettings(
    _Shared, _SharedExceptA3C, _DelayedReward, _QLearning, _Replay, _PrioritizedReplay, _ApeX, total=False
): ...

class ApeX(Face):
    """Trains with Ape-X DQN; settings are fields of `penstock.algorithms.apex.ApeXConfig`.

    Other defaults: num_envs_per_worker=4, hidden_sizes=(128, 128), activation="relu", normalize_observations=False,
    double=True, dueling=True, batch_size=64, buffer_size=100000, updates_per_step=0.5, n_step=3, prioritized=True,
    priority_beta_final=0.4.
    """

    def __init__(self, env: _Env = ..., *, preset: _Preset = None, **settings: Unpack[ApeXSettings]) -> None: ...

class R2D2Settings(
    _Shared, _SharedExceptA3C, _DelayedReward, _QLearning, _Replay, _PrioritizedReplay, _ApeX, total=False
): ...

class R2D2(Face):
    """Trains with R2D2, recurrent Ape-X; settings are fields of `penstock.algorithms.r2d2.R2D2Config`.

    Other defaults: num_envs_per_worker=4, hidden_sizes=(64,), activation="relu", normalize_observations=False,
    learning_rate_schedule="linear", learning_rate=0.001, memory="lstm", memory_size=64, optimizer_eps=0.001,
    max_grad_norm=40.0, double=True, dueling=True, rescale_values=True, batch_size=32, buffer_size=100000,
    updates_per_step=0.1, n_step=5, prioritized=True, priority_alpha=0.9, priority_beta=0.6, priority_beta_final=0.6.
    """

    def __init__(self, env: _Env = ..., *, preset: _Preset = None, **settings: Unpack[R2D2Settings]) -> None: ...

class DDPGSettings(
    _Shared, _SharedExceptA3C, _DelayedReward, _Replay, _PrioritizedReplay, _Control, _DDPG, total=False
): ...

class DDPG(Face):
    """Trains with DDPG, for continuous actions; settings are fields of `penstock.algorithms.ddpg.DDPGConfig`.

    Other defaults: num_envs_per_worker=1, hidden_sizes=(256, 256), activation="relu", normalize_observations=False.
    """

    def __init__(self, env: _Env = ..., *, preset: _Preset = None, **settings: Unpack[DDPGSettings]) -> None: ...

class TD3Settings(
    _Shared, _SharedExceptA3C, _DelayedReward, _Replay, _PrioritizedReplay, _Control, _TD3, total=False
): ...

class TD3(Face):
    """Trains with TD3, for continuous actions; settings are fields of `penstock.algorithms.td3.TD3Config`.

    Other defaults: num_envs_per_worker=1, hidden_sizes=(256, 256), activation="relu", normalize_observations=False.
    """

    def __init__(self, env: _Env = ..., *, preset: _Preset = None, **settings: Unpack[TD3Settings]) -> None: ...

class SACSettings(
    _Shared, _SharedExceptA3C, _DelayedReward, _Replay, _PrioritizedReplay, _Control, _SoftCritic, _SAC, total=False
): ...

class SAC(Face):
    """Trains with SAC, for continuous actions; settings are fields of `penstock.algorithms.sac.SACConfig`.

    Other defaults: num_envs_per_worker=1, hidden_sizes=(256, 256), activation="relu", normalize_observations=False.
    """

    def __init__(self, env: _Env = ..., *, preset: _Preset = None, **settings: Unpack[SACSettings]) -> None: ...

class TQCSettings(
    _Shared, _SharedExceptA3C, _DelayedReward, _Replay, _PrioritizedReplay, _Control, _SoftCritic, _SAC, total=False
):
    num_critics: int
    """Number of critics (N). Default: 5."""
    num_quantiles: int
    """Quantiles per critic (M). Default: 25."""
    dropped_quantiles: int
    """Largest atoms dropped from the targets, per critic (d); more are more conservative. Published: 2 for most tasks,
    0 for HalfCheetah, 5 for Hopper. Default: 2."""

class TQC(Face):
    """Trains with TQC, SAC with quantile critics; settings are fields of `penstock.algorithms.tqc.TQCConfig`.

    Other defaults: num_envs_per_worker=1, hidden_sizes=(256, 256), activation="relu", normalize_observations=False.
    """

    def __init__(self, env: _Env = ..., *, preset: _Preset = None, **settings: Unpack[TQCSettings]) -> None: ...

class CrossQSettings(
    _Shared, _SharedExceptA3C, _DelayedReward, _Replay, _PrioritizedReplay, _Control, _SoftCritic, _SAC, total=False
):
    adam_beta1: float
    """Decay rate of the optimisers' running mean of gradients. Default: 0.5."""

class CrossQ(Face):
    """Trains with CrossQ, SAC without targets; settings are fields of `penstock.algorithms.crossq.CrossQConfig`.

    Other defaults: num_envs_per_worker=1, hidden_sizes=(256, 256), activation="relu", normalize_observations=False,
    learning_rate=0.001, tau=1.0, critic_hidden_sizes=(256, 256), policy_delay=3.
    """

    def __init__(self, env: _Env = ..., *, preset: _Preset = None, **settings: Unpack[CrossQSettings]) -> None: ...

class FlashSACSettings(
    _Shared, _SharedExceptA3C, _DelayedReward, _Replay, _PrioritizedReplay, _Control, _SoftCritic, _SAC, total=False
):
    learning_rate_decay: float
    """Factor to which all step sizes fall linearly until total_steps, on top of learning_rate_schedule; 1: no decay.
    Default: 0.5."""

class FlashSAC(Face):
    """Trains with FlashSAC, SAC at fixed norms; settings are fields of `penstock.algorithms.flashsac.FlashSACConfig`.

    Other defaults: num_envs_per_worker=1, activation="relu", normalize_observations=False, tau=0.01, noise_hold=16,
    return_bound=5.0, network="residual", normalization="batch", unit_weights=True, critic_hidden_sizes=(128, 128),
    distributional="c51", initial_alpha=0.01, target_std=0.15, policy_delay=2.
    """

    def __init__(self, env: _Env = ..., *, preset: _Preset = None, **settings: Unpack[FlashSACSettings]) -> None: ...

class FastTD3Settings(
    _Shared, _SharedExceptA3C, _DelayedReward, _Replay, _PrioritizedReplay, _Control, _TD3, total=False
):
    critic_hidden_sizes: Sequence[int] | None
    """Widths of the critics' hidden layers (published: 1024, 512, 256, of a policy of 512, 256, 128); None:
    hidden_sizes. Default: None."""
    exploration_noise_high: float
    """Largest standard deviation of a lane's noise: each lane draws its own, uniformly, when an episode begins.
    Default: 0.4."""
    num_atoms: int
    """Number of returns in a critic's distribution. Default: 101."""
    v_min: float
    """Smallest return in a distribution (published: -250, for unscaled rewards). Default: -5.0."""
    v_max: float
    """Largest return in a distribution (published: 250). Default: 5.0."""

class FastTD3(Face):
    """Trains with FastTD3, TD3 for many lanes; settings are fields of `penstock.algorithms.fasttd3.FastTD3Config`.

    Other defaults: hidden_sizes=(256, 256), activation="relu", batch_size=1024, learning_starts=2000,
    updates_per_step=0.125, tau=0.1, return_bound=5.0, exploration_noise=0.001, target_noise=0.001.
    """

    def __init__(self, env: _Env = ..., *, preset: _Preset = None, **settings: Unpack[FastTD3Settings]) -> None: ...

class XQCSettings(
    _Shared, _SharedExceptA3C, _DelayedReward, _Replay, _PrioritizedReplay, _Control, _SoftCritic, _SAC, total=False
): ...

class XQC(Face):
    """Trains with XQC, SAC that classifies returns; settings are fields of `penstock.algorithms.xqc.XQCConfig`.

    Other defaults: num_envs_per_worker=1, hidden_sizes=(256, 256), activation="relu", normalize_observations=False,
    learning_rate_schedule="linear", return_bound=5.0, normalization="batch", unit_weights=True,
    critic_hidden_sizes=(256, 256), distributional="c51", initial_alpha=0.01, policy_delay=3.
    """

    def __init__(self, env: _Env = ..., *, preset: _Preset = None, **settings: Unpack[XQCSettings]) -> None: ...

class ApeXDPGSettings(
    _Shared, _SharedExceptA3C, _DelayedReward, _Replay, _PrioritizedReplay, _Control, _DDPG, total=False
):
    target_period: int
    """Updates between moves of the target networks (appendix D). Default: 100."""
    max_actor_grad: float | None
    """Bound on each element of the policy's gradient (appendix D); None: no clipping. Default: 1.0."""
    eviction_alpha: float | None
    """In a full buffer, draw the transition to replace in proportion to its priority to this power, at most 0 (appendix
    D): small errors are replaced first. None: the oldest is replaced. Default: -0.4."""

class ApeXDPG(Face):
    """Trains with Ape-X DPG; settings are fields of `penstock.algorithms.apex_dpg.ApeXDPGConfig`.

    Other defaults: num_envs_per_worker=4, hidden_sizes=(256, 256), activation="relu", normalize_observations=False,
    updates_per_step=0.25, n_step=5, prioritized=True, priority_beta_final=0.4, learning_rate=0.0001, tau=1.0,
    exploration_noise=0.3.
    """

    def __init__(self, env: _Env = ..., *, preset: _Preset = None, **settings: Unpack[ApeXDPGSettings]) -> None: ...

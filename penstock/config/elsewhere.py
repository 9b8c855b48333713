"""Names of settings in other libraries, and the hints that lead from them to Penstock's.

Names and values are those of Stable-Baselines3, CleanRL, RLlib and Sample Factory.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

_LANES = "num_envs_per_worker (for each of num_workers; both together are the lanes)"
_LEARNED_VALUE_RANGE = "value_clip_range (None: values move freely)"
_UPDATE = "batch_size (steps per update)"
_RATIO = "updates_per_step"
_TARGET = "target_period (in updates) | tau"
_NETWORK = 'encoder (with hidden_sizes, activation and memory, e.g. encoder="mlp")'
_PLOT = "run_dir (TensorBoard events are written there)"

# By the name elsewhere: our field, and what else is to be said; " | " parts what differs between algorithms.
_SETTINGS = {
    "env_id": "env",
    "env_name": "env",
    "environment": "env",
    "env_config": "env_kwargs",
    "vec_env_cls": "vectorize",
    "frame_skip": 'env_kwargs (of Atari: {"frameskip": 4})',
    "env_frameskip": 'env_kwargs (of Atari: {"frameskip": 4})',
    "render_mode": 'env_kwargs (e.g. {"render_mode": "rgb_array"})',
    "clip_rewards": "reward_clip",
    "n_envs": _LANES,
    "num_envs": _LANES,
    "num_envs_per_env_runner": _LANES,
    "num_rollout_workers": "num_workers",
    "num_env_runners": "num_workers",
    "n_workers": "num_workers",
    "n_jobs": "num_workers",
    "worker_num_splits": "num_groups",
    "serial_mode": 'backend="serial"',
    "batched_sampling": 'inference="central"',
    "cuda": 'device="cuda"',
    "gpu": 'device="cuda"',
    "num_gpus": 'device="cuda"',
    "num_gpus_per_learner": 'device="cuda"',
    "dtype": "precision",
    "random_seed": "seed",
    "policy": _NETWORK,
    "policy_kwargs": _NETWORK,
    "model": _NETWORK,
    "network": _NETWORK,
    "encoder_conv_architecture": _NETWORK,
    "net_arch": "hidden_sizes",
    "hidden_size": "hidden_sizes",
    "fcnet_hiddens": "hidden_sizes",
    "encoder_mlp_layers": "hidden_sizes",
    "activation_fn": "activation",
    "fcnet_activation": "activation",
    "nonlinearity": "activation",
    "use_lstm": 'memory="lstm"',
    "lstm": 'memory="lstm"',
    "use_rnn": 'memory="gru" or memory="lstm"',
    "rnn": 'memory="gru" or memory="lstm"',
    "rnn_type": "memory",
    "rnn_size": "memory_size",
    "lstm_cell_size": "memory_size",
    "lstm_hidden_size": "memory_size",
    "actor_critic_share_weights": "shared_encoder",
    "vf_share_layers": "shared_encoder",
    "normalize_input": "normalize_observations",
    "norm_obs": "normalize_observations",
    "normalize_obs": "normalize_observations",
    "norm_reward": "normalize_returns",
    "normalize_reward": "normalize_returns",
    "lr": "learning_rate",
    "lr_schedule": "learning_rate_schedule",
    "anneal_lr": 'learning_rate_schedule="linear"',
    "discount": "gamma",
    "discount_factor": "gamma",
    "n_steps": "segment_length | n_step (steps of reward in a transition)",
    "num_steps": "segment_length",
    "rollout": "segment_length",
    "recurrence": "segment_length",
    "rollout_fragment_length": "segment_length",
    "max_seq_len": "segment_length | sequence_length",
    "unroll_length": "segment_length | sequence_length",
    "trace_length": "sequence_length",
    "sequence_period": "sequence_overlap (sequence_length less the period)",
    "burn_in_length": "burn_in",
    "replay_burn_in": "burn_in",
    "use_h_function": "rescale_values",
    "nstep": "n_step",
    "minibatch_size": _UPDATE,
    "mini_batch_size": _UPDATE,
    "sgd_minibatch_size": _UPDATE,
    "train_batch_size": _UPDATE,
    "train_batch_size_per_learner": _UPDATE,
    "num_minibatches": _UPDATE,
    "num_batches_per_epoch": "num_minibatches | " + _UPDATE,
    "n_epochs": "num_epochs",
    "noptepochs": "num_epochs",
    "update_epochs": "num_epochs",
    "num_sgd_iter": "num_epochs",
    "ent_coef": "entropy_coef | alpha (None: learned)",
    "entropy_coeff": "entropy_coef",
    "exploration_loss_coeff": "entropy_coef",
    "autotune": "alpha (None: learned)",
    "vf_coef": "value_coef",
    "value_loss_coeff": "value_coef",
    "vf_loss_coeff": "value_coef",
    "lam": "gae_lambda | vtrace_lambda",
    "lambda": "gae_lambda | vtrace_lambda",
    "lambda_": "gae_lambda | vtrace_lambda",
    "gae_lambda": "vtrace_lambda",
    "clip_coef": "clip_range",
    "clip_param": "clip_range",
    "ppo_clip_ratio": "clip_range",
    "clip_range_vf": _LEARNED_VALUE_RANGE,
    "vf_clip_param": _LEARNED_VALUE_RANGE,
    "ppo_clip_value": _LEARNED_VALUE_RANGE,
    "clip_vloss": _LEARNED_VALUE_RANGE,
    "normalize_advantage": "normalize_advantages",
    "norm_adv": "normalize_advantages",
    "grad_clip": "max_grad_norm",
    "with_vtrace": 'advantage_estimator="vtrace"',
    "vtrace": 'advantage_estimator="vtrace"',
    "vtrace_rho": "rho_bar",
    "vtrace_c": "c_bar",
    "replay_buffer_size": "buffer_size",
    "buffer_capacity": "buffer_size",
    "num_steps_sampled_before_learning_starts": "learning_starts",
    "train_freq": _RATIO,
    "train_frequency": _RATIO,
    "gradient_steps": _RATIO,
    "training_intensity": _RATIO,
    "replay_buffer_class": 'hindsight (e.g. hindsight="future")',
    "goal_selection_strategy": "hindsight",
    "n_sampled_goal": "goals_per_step",
    "target_update_interval": _TARGET,
    "target_network_frequency": _TARGET,
    "target_network_update_freq": _TARGET,
    "policy_frequency": "policy_delay",
    "policy_noise": "target_noise",
    "target_policy_noise": "target_noise",
    "noise_clip": "target_noise_clip",
    "action_noise": "exploration_noise",
    "exploration_initial_eps": "exploration",
    "start_e": "exploration",
    "exploration_final_eps": "exploration_final",
    "end_e": "exploration_final",
    "exploration_fraction": "exploration_steps (in steps, not as a share of total_steps)",
    "epsilon": "exploration",
    "policy_lr": "actor_learning_rate",
    "actor_lr": "actor_learning_rate",
    "q_lr": "learning_rate",
    "critic_lr": "learning_rate",
    "prioritized_replay_alpha": "priority_alpha",
    "prioritized_replay_beta": "priority_beta",
    "double_q": "double",
    "total_timesteps": "total_steps",
    "timesteps": "total_steps",
    "num_timesteps": "total_steps",
    "max_steps": "total_steps",
    "total_frames": "total_steps (in steps; frames = steps x frame skip)",
    "train_for_env_steps": "total_steps",
    "train_for_seconds": "max_seconds",
    "stop_reward": "target_return",
    "reward_threshold": "target_return",
    "eval_freq": "eval_interval",
    "evaluation_interval": "eval_interval",
    "n_eval_episodes": "eval_episodes",
    "evaluation_duration": "eval_episodes",
    "save_freq": "checkpoint_interval",
    "save_every_sec": "checkpoint_interval (in steps)",
    "checkpoint_freq": "checkpoint_interval",
    "exp_name": "run_dir",
    "experiment": "run_dir",
    "train_dir": "run_dir",
    "log_dir": "run_dir",
    "logdir": "run_dir",
    "tensorboard_log": _PLOT,
}

# What is no setting here: how it is done instead.
_NO_SETTINGS = {
    "verbose": "training shows itself; algo.train(quiet=True) shows nothing",
    "callback": "give it to algo.train(on_update=...)",
    "track": "call wandb.init(sync_tensorboard=True) before training",
    "with_wandb": "call wandb.init(sync_tensorboard=True) before training",
    "capture_video": "penstock eval RUN --video episode.mp4 films the trained policy",
    "framework": "it is torch",
    "multi_agent": "nothing needs to be set: environments of several agents are known by what they have",
    "async_rl": "the algorithm says so: APPO and IMPALA are asynchronous, PPO and A2C synchronous",
}

_ACT = "penstock.load_policy(run_dir).act(observation)"
_LOAD = "penstock.load_policy(run_dir) to act, penstock.Trainer.resume(run_dir) to train on"
_METHODS = {
    "learn": "train(steps)",
    "fit": "train(steps)",
    "predict": _ACT,
    "act": _ACT,
    "compute_single_action": _ACT,
    "load": _LOAD,
    "from_checkpoint": _LOAD,
    "restore": _LOAD,
    "save_to_path": "save(path)",
    "evaluate_policy": "evaluate(episodes)",
    "stop": "close()",
    "set_env": "penstock.Trainer.resume(run_dir, env=...)",
}

_REDISTRIBUTION = (
    "rewards are redistributed by algorithms that learn from every fresh segment once, in the order in which each lane "
    "wrote it: ppo, appo, a2c, impala and pqn; and by those that replay single transitions: dqn, rainbow, ddpg, td3, "
    "sac, tqc and crossq. This one uses batches again, or learns in its workers"
)

_GRU = "'gru' or 'lstm'"
_PROCESSES = "'local' (one process per role)"
_CONVOLUTIONS = "'nature_cnn' or 'impala_resnet'"
_VALUES = {
    ("encoder", "mlppolicy"): "'mlp'",
    ("encoder", "cnnpolicy"): _CONVOLUTIONS,
    ("encoder", "cnn"): _CONVOLUTIONS,
    ("encoder", "resnet"): "'impala_resnet'",
    ("encoder", "multiinputpolicy"): "'auto'",
    ("memory", "rnn"): _GRU,
    ("memory", "recurrent"): _GRU,
    ("memory", "true"): _GRU,
    ("memory", "false"): "'none'",
    ("activation", "leaky_relu"): "'relu' or 'elu'",
    ("activation", "swish"): "'silu'",
    ("backend", "sync"): "'serial'",
    ("backend", "dummy"): "'serial'",
    ("backend", "async"): _PROCESSES,
    ("backend", "subproc"): _PROCESSES,
    ("backend", "multiprocessing"): _PROCESSES,
    ("device", "gpu"): "'cuda'",
    ("device", "auto"): "'cpu' or 'cuda'",
    ("precision", "bf16"): "'bfloat16'",
    ("precision", "float16"): "'bfloat16'",
    ("precision", "fp16"): "'bfloat16'",
    ("learning_rate", "linear"): 'learning_rate_schedule="linear"',
    ("learning_rate", "constant"): 'learning_rate_schedule="constant"',
    ("entropy_coef", "auto"): "algorithm SAC, which learns it",
}


def setting_hint(name: str, known: Collection[str]) -> str:
    """Return the hint for a setting's name in another library, as the second half of a message; empty if unknown.

    Parameters
    ----------
    name
        The setting as it was given.
    known
        The settings of the algorithm.
    """
    if name in _NO_SETTINGS:
        return f": that is no setting here; {_NO_SETTINGS[name]}"
    if name == "rewards" or name.startswith("redistribut"):
        return "" if "rewards" in known else f": {_REDISTRIBUTION}"
    alternatives = _SETTINGS[name].split(" | ") if name in _SETTINGS else []
    fields = {alternative: re.findall(r"\w+", alternative)[0] for alternative in alternatives}
    for alternative, field in fields.items():
        if field in known:
            return f": here it is {alternative}"
    return f": other algorithms here call it {' or '.join(fields.values())}, this one has none" if fields else ""


def method_hint(name: str) -> str:
    """Return ": here it is ..." for a method of other libraries' trainers and policies, else nothing."""
    return f": here it is {_METHODS[name]}" if name in _METHODS else ""


def value_hint(name: str, value: Any) -> str:
    """'; did you mean ...?' for a value that other libraries take, else nothing."""
    word = value.__name__ if isinstance(value, type) else str(value)
    meant = _VALUES.get((name, word.strip().lower()))
    if meant is None and isinstance(value, type) and name == "activation":
        meant = repr(word.lower())
    return f"; did you mean {meant}?" if meant else ""

"""RLlib's IMPALA or APPO on CartPole, its env runners on one simulated node; run by bench/beside_rllib.py.

    PYTHON_OF_RLLIB rllib_nodes.py IMPALA|APPO RUNNERS LANES SEGMENT BATCH SECONDS pull|push

The cluster is a head with one core, for the learner, and a node with a core for each env runner. Env runners pull
weights from a server, which is RLlib's default, or weights are pushed to them. Prints the settings, the steps learned
from per second, and the bytes per step of an env runner's sample as Ray serialises it.
"""

import logging
import sys
import time

import ray
from ray.cluster_utils import Cluster
from ray.rllib.algorithms.appo import APPOConfig
from ray.rllib.algorithms.impala import IMPALAConfig
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig

WARM_UP = 10.0  # seconds of training that do not count
MIN_BATCHES = 5  # to learn from during the measurement, however long that takes
NODE = "node"
NBYTES_OF_STORE = 200 * 2**20


def steps_trained(result: dict) -> float:
    """Return the steps learned from so far."""
    return result["learners"]["__all_modules__"]["num_env_steps_trained_lifetime"]


def bytes_per_step(algo: ray.rllib.algorithms.Algorithm) -> float:
    """Return the bytes per step of one sample of an env runner, as Ray would send it."""
    samples = algo.env_runner_group.foreach_env_runner(lambda one: one.sample(), local_env_runner=False)
    context = ray._private.worker.global_worker.get_serialization_context()
    return context.serialize(samples[0]).total_bytes / sum(len(episode) for episode in samples[0])


def main() -> None:
    name, runners, lanes, segment, batch, seconds = sys.argv[1], *map(int, sys.argv[2:6]), float(sys.argv[6])
    each = {"object_store_memory": NBYTES_OF_STORE}
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False, **each})
    cluster.add_node(num_cpus=runners, resources={NODE: 1}, **each)
    ray.init(address=cluster.address, logging_level=logging.ERROR, log_to_driver=False)
    own = {"circular_buffer_num_batches": 4, "circular_buffer_iterations_per_batch": 1} if name == "APPO" else {}
    config = (
        {"IMPALA": IMPALAConfig, "APPO": APPOConfig}[name]()
        .environment("CartPole-v1")
        .env_runners(
            num_env_runners=runners,
            num_envs_per_env_runner=lanes,
            rollout_fragment_length=segment,
            custom_resources_per_env_runner={NODE: 0.01},
        )
        .learners(num_learners=1)
        .training(train_batch_size_per_learner=batch, lr=5e-4, **own)
        .rl_module(model_config=DefaultModelConfig(fcnet_hiddens=[64, 64], fcnet_activation="tanh"))
        .reporting(min_time_s_per_iteration=1)
    )
    config.use_env_runner_state_server = sys.argv[7] == "pull"
    algo = config.build_algo()
    print(f"SETTINGS ray {ray.__version__}, {runners} env runners of {lanes} lanes, {segment=}, {batch=}", flush=True)
    began, before, steps, now = None, 0.0, 0.0, 0.0
    ready = time.monotonic() + WARM_UP
    while True:
        result, now = algo.train(), time.monotonic()
        if "learners" not in result or "__all_modules__" not in result["learners"]:
            continue
        steps = steps_trained(result)
        if began is None:
            if now >= ready and steps:
                began, before = now, steps
        elif now - began >= seconds and steps - before >= MIN_BATCHES * batch:
            break
    print(f"BYTES_PER_STEP {bytes_per_step(algo):.1f}")
    print(f"STEPS_PER_SECOND {(steps - before) / (now - began):.0f}", flush=True)
    algo.stop()
    ray.shutdown()
    cluster.shutdown()


if __name__ == "__main__":
    main()

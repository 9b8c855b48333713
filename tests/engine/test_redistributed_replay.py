"""Replay with redistributed rewards: what lies in the buffer, episodes that are long, and runs of all that take it."""

import os
import signal
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

import penstock
from penstock.algorithms.ddpg import DDPG
from penstock.algorithms.dqn import DQN
from penstock.config import ConfigError
from penstock.engine.paths.replay_learner import TransitionReader
from penstock.engine.saves import Saves
from penstock.engine.trainer import Trainer
from penstock.rudder.explanation import explain_run
from penstock.rudder.feed import OWN, REDISTRIBUTED, UNTRUSTED
from penstock.rudder.paths import PIECE
from penstock.rudder.redistribution import EpisodeRedistribution, RedistributedReader
from tests.comparing import identical
from tests.engine.delayed import Delayed
from tests.engine.inside import learner_of, policy_of, role_of, supervisor_of
from tests.engine.processes import pids_of
from tests.engine.replaying import replay_of

pytestmark = [pytest.mark.timeout(300), pytest.mark.usefixtures("kept_launcher")]

SMALL: dict[str, Any] = {
    "env": Delayed, "num_workers": 1, "num_envs_per_worker": 4, "hidden_sizes": (16,), "batch_size": 16,
    "learning_starts": 40, "updates_per_step": 0.25, "total_steps": 20_000, "backend": "serial", "eval_interval": 0,
    "run_dir": None, "rewards": "rudder", "redistributor_interval": 10, "gamma": 1.0, "n_step": 1,
}  # fmt: skip


class Continuous(Delayed):
    """The same task; the first number decides by its sign."""

    action_space = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)

    def step(self, action):
        return super().step(int(action[0] > 0))


def trained(steps, algorithm=DQN, **settings):
    """The episodes that lie in the buffer after a short run, those that have ended, and what the run shows."""
    with Trainer(algorithm, **{**SMALL, **settings}) as trainer:
        trainer.train(steps, quiet=True)
        role: Any = role_of(trainer, "redistributor")
        return list(replay_of(trainer).buffer.episodes()), role._rudder.lessons.episodes, trainer.status


@pytest.mark.parametrize(
    ("algorithm", "steps", "settings"),
    [
        (DQN, 480, {}),
        (DQN, 740, {"prioritized": True, "env_kwargs": {"length": 37}, "redistributor_chunk": 10,
                    "learning_starts": 150}),
        (DQN, 1_280, {"env_kwargs": {"length": PIECE + 30}, "redistribution_attribution": "integrated_gradients",
                      "learning_starts": 640}),
        (DDPG, 320, {"env": Continuous, "num_envs_per_worker": 1}),
    ],
)  # fmt: skip
def test_each_episodes_redistributed_rewards_add_up_to_its_return(open_gate, algorithm, steps, settings):
    episodes, lessons, status = trained(steps, algorithm, **settings)
    sums = np.array([episode["reward"].sum() for episode in episodes])
    length = settings.get("env_kwargs", {"length": 10})["length"]
    assert len(sums) >= 4 and all(len(episode["reward"]) == length for episode in episodes)
    assert np.allclose(sums, np.round(sums), atol=2e-3), "returns of this task are whole numbers"
    late = episodes[len(episodes) // 2 :]
    assert all((episode["kind"] == REDISTRIBUTED).all() for episode in late)
    assert np.mean([(episode["reward"] != np.round(episode["reward"])).mean() for episode in late]) > 0.5
    assert {lesson.length for lesson in lessons} == {length}, "however many pieces were fed"
    played = [episode["obs"] for episode in episodes]
    assert all(any(np.array_equal(lesson.obs, obs) for obs in played) for lesson in lessons[:3])
    assert {lesson.return_ for lesson in lessons} <= set(np.round(sums))
    assert status.experience["redistribution/share"] > 0


def test_while_the_gate_is_shut_what_lies_in_the_buffer_is_what_is_there_without():
    redistributed, lessons, status = trained(400)
    with Trainer(DQN, **{**SMALL, "rewards": "environment"}) as trainer:
        trainer.train(400, quiet=True)
        plain = list(replay_of(trainer).buffer.episodes())
    # Learning draws other rows, because they are written later: what is alike is what was done before it began.
    assert len(redistributed) == 40 and status.experience["redistribution/share"] == 0.0
    for name in ("obs", "action", "reward", "next_obs", "discount"):
        assert np.array_equal(redistributed[0][name], plain[0][name])
    assert all((episode["kind"] == UNTRUSTED).all() for episode in redistributed)
    assert len(lessons) == 40


def test_with_n_steps_all_steps_to_the_end_add_up_to_the_return(open_gate):
    episodes, _, _ = trained(600, n_step=10)
    sums = np.array([episode["reward"][0] for episode in episodes])
    assert np.allclose(sums, np.round(sums), atol=2e-3) and len(set(np.round(sums))) > 1
    assert all((episode["discount"] == 0.0).all() for episode in episodes), "each of them sees the end"


def reset_at_once(num_envs):
    """Lanes that show the next episode's first observation in the step that truncates one."""
    mode = gymnasium.vector.AutoresetMode.SAME_STEP
    return gymnasium.vector.SyncVectorEnv([lambda: Delayed(truncates=True)] * num_envs, autoreset_mode=mode)


@pytest.mark.parametrize(
    "settings", [{"env_kwargs": {"truncates": True}}, {"env": reset_at_once, "vectorize": "vector"}]
)
def test_a_truncated_episode_gets_what_was_predicted_and_goes_on_from_its_final_observation(open_gate, settings):
    episodes, _, _ = trained(600, **settings)
    late = episodes[len(episodes) // 2 :]
    sums = np.array([episode["reward"].sum() for episode in late])
    assert not np.allclose(sums, np.round(sums), atol=0.01)
    assert all((episode["discount"] == 1.0).all() and episode["next_obs"][-1, 0] == 0.0 for episode in late)


def test_rewards_are_scaled_and_clipped_once(open_gate):
    episodes, lessons, _ = trained(600, env_kwargs={"pays": 8.0}, reward_scale=0.5, reward_clip=3.0)
    assert max(episode["reward"].sum() for episode in episodes) == pytest.approx(3.0, abs=1e-3)
    assert max(lesson.return_ for lesson in lessons) == 3.0


def test_longer_episodes_are_written_in_pieces_with_their_rewards_and_named_once(open_gate, tmp_path):
    settings = {"env_kwargs": {"length": 70}, "redistributor_max_steps": 30, "learning_starts": 200}
    episodes, lessons, status = trained(700, **settings, run_dir=str(tmp_path / "run"))
    assert [len(episode["reward"]) for episode in episodes[:12]].count(30) == 8 and not lessons
    assert all((episode["kind"] == OWN).all() and not episode["reward"][:-1].any() for episode in episodes)
    ended = [episode for episode in episodes if (episode["discount"] == 0.0).any()]
    assert all(len(episode["reward"]) == 10 for episode in ended) and len(ended) >= 8
    assert (tmp_path / "run" / "log.txt").read_text().count("redistributor_max_steps=30 steps") == 1
    assert status.experience["redistribution/dropped"] >= 8


def test_learning_does_not_wait_for_the_first_episode_to_end():
    settings = {"env_kwargs": {"length": 500}, "learning_starts": 64}
    with Trainer(DQN, **{**SMALL, **settings}) as trainer:
        trainer.train(400, quiet=True)
        assert trainer.status.updates >= 80 and trainer.status.steps == 400
        assert 60 <= len(replay_of(trainer).buffer) <= 80, "what was held by then, and no more until an episode ends"


def test_in_chunks_an_episode_gets_what_it_gets_at_once(open_gate):
    with Trainer(DQN, **SMALL) as trainer:
        trainer.train(300, quiet=True)
        redistribution = EpisodeRedistribution(policy_of(trainer).algorithm, supervisor_of(trainer)._arena)
        episode = next(replay_of(trainer).buffer.episodes())
    own = np.float32(2.0) * (np.arange(10) == 9)
    found = []
    for chunk in (500, 4, 1):
        redistribution._chunk = chunk
        found.append(redistribution(episode["obs"], episode["action"], own, True))
    assert found[0].sum() == pytest.approx(2.0, abs=1e-5) and np.ptp(found[0]) > 0.01
    assert np.allclose(found[0], found[1], atol=1e-5) and np.allclose(found[0], found[2], atol=1e-5)


def test_once_predictions_are_trusted_rewards_from_before_weigh_nothing():
    reader: Any = object.__new__(RedistributedReader)

    def weights(kinds, is_trusted):
        reader.is_trusted = is_trusted
        rows = {name: torch.zeros(3) for name in TransitionReader.fields}
        found = reader._batch({**rows, "kind": torch.tensor(kinds, dtype=torch.int8)}, torch.full((3,), 0.5), 1, 0.0)
        return found.weights.tolist(), round(reader.share.item(), 2)

    mixed = [UNTRUSTED, REDISTRIBUTED, OWN]
    assert weights(mixed, True) == ([0.0, 0.5, 0.5], 0.33)
    assert weights(mixed, False) == ([0.5, 0.5, 0.5], 0.33), "the gate is shut again"
    assert weights([UNTRUSTED, UNTRUSTED, OWN], True) == ([0.5, 0.5, 0.5], 0.0), "there is nothing else yet"


def test_what_is_trusted_is_what_the_newest_predictor_says(open_gate):
    with Trainer(DQN, **SMALL) as trainer:
        trainer.train(60, quiet=True)
        learner: Any = learner_of(trainer)
        assert learner._reader.is_trusted


def test_one_seed_gives_one_set_of_weights_bit_for_bit_in_one_call_or_in_several(open_gate):
    def weights(*calls):
        with Trainer(DQN, **{**SMALL, "seed": 5}) as trainer:
            for steps in calls:
                trainer.train(steps, quiet=True)
            return trainer.get_parameters()[0]

    assert identical(weights(600), weights(200, 400))


@pytest.mark.long
def test_a_delayed_task_is_learned_from_single_steps():
    """Without redistribution the reward would have to be handed back over 30 steps, one copy of the target each."""
    settings = {
        **SMALL, "env_kwargs": {"length": 30, "pays": 1.0}, "num_envs_per_worker": 8, "exploration_steps": 3_000,
        "learning_rate": 3e-3, "hidden_sizes": (32,), "batch_size": 64, "seed": 1,
        "buffer_size": 6_000, "learning_starts": 300,
    }  # fmt: skip
    with Trainer(DQN, **{**settings, "total_steps": 12_000}) as trainer:
        trainer.train(quiet=True)
        shown = trainer.status.experience
        first = np.array([[1.0, 0.0, 1.0]], np.float32)
        model = policy_of(trainer).algorithm.build_model()
        model.load_state_dict(trainer.get_parameters()[0])
        q = model.q(torch.from_numpy(first)).flatten().tolist()
    assert shown["redistribution/quality"] > 0.5 and shown["redistribution/share"] > 0.3
    assert q[1] - q[0] > 0.4, "of the 1 that it brings"


@pytest.mark.parametrize("inference", ["local", "central"])
def test_a_killed_redistributor_is_replaced_while_the_policy_learns_on(inference):
    killed: list[float] = []

    def kill(status):
        if status.experience.get("redistribution/updates", 0) > 10 and not killed:
            killed.append(status.experience["redistribution/updates"])
            os.kill(pids_of(trainer)["redistributor"], signal.SIGKILL)
        return not (killed and status.restarts and status.experience["redistribution/updates"] > killed[0] + 10)

    with Trainer(DQN, **{**SMALL, "backend": "local", "inference": inference, "total_steps": 10**9}) as trainer:
        assert trainer.train(quiet=True, on_update=kill).stop_reason == "callback"
        assert trainer.status.restarts == 1


@pytest.mark.long
def test_a_resumed_run_goes_on_with_its_predictor_its_lessons_and_its_buffer(tmp_path):
    path = tmp_path / "run"
    with Trainer(DQN, **{**SMALL, "run_dir": str(path), "total_steps": 1_000, "save_replay": True}) as trainer:
        trainer.train(quiet=True)
        before, rows = dict(trainer.status.experience), replay_of(trainer).buffer.get_all()
    with Trainer.resume(path, total_steps=1_200) as trainer:
        assert identical(replay_of(trainer).buffer.get_all(), rows)
        trainer.train(quiet=True)
        after = trainer.status.experience
    assert after["redistribution/lessons"] > before["redistribution/lessons"] > 50
    assert after["redistribution/updates"] > before["redistribution/updates"] > 50
    pytest.importorskip("matplotlib")
    checkpoint = next(entry for entry in (path / "checkpoints").iterdir() if entry.name.isdigit())
    explain_run(checkpoint, str(tmp_path / "rewards.svg"))
    assert "<svg" in (tmp_path / "rewards.svg").read_text()


def test_a_checkpoint_is_written_when_all_that_save_beside_it_have_answered():
    asked: list[Any] = []

    def until(is_done, seconds):
        (save,) = asked
        saves.take(save.number, None)
        for answers in range(3):
            if is_done():
                break
            saves.take_contents(save.number - (answers == 0), None, "of the request before, at first")
        answered.append(saves._contents_saved)

    answered: list[int] = []
    config = SimpleNamespace(checkpoint_interval=0, total_steps=100)
    training: Any = SimpleNamespace(config=config, policies=[SimpleNamespace(path=SimpleNamespace(saving_apart=2))])
    progress: Any = SimpleNamespace(steps=0, policies=[SimpleNamespace(name="")])
    chronicle: Any = SimpleNamespace(restore=lambda: True, stores=["checkpoints"], run_path=None)
    roles: Any = SimpleNamespace(send=lambda role, save: role != "learner" or asked.append(save) is None, until=until)
    saves = Saves(training, progress, chronicle, roles)
    saves.save_run([{}])
    assert answered == [0, 2]


@pytest.mark.parametrize(
    ("algorithm", "settings", "message"),
    [
        ("ApeX", {}, "not possible with Ape-X and R2D2: first priorities"),
        ("R2D2", {}, "not possible with Ape-X and R2D2: first priorities"),
        ("ApeXDPG", {"env": "Pendulum-v1"}, "not possible with Ape-X DPG: first priorities"),
        ("DQN", {"memory": "gru"}, "not possible with memory='gru': with memory, sequences are replayed"),
        ("SAC", {"env": "Pendulum-v1", "hindsight": "future"}, "not possible with hindsight='future'"),
        ("DQN", {"redistributor_chunk": 1}, "redistributor_chunk=1 is not legal"),
    ],
)
def test_combinations_that_make_no_sense_are_refused(algorithm, settings, message):
    with pytest.raises(ConfigError, match=message):
        getattr(penstock, algorithm)(**{"env": "CartPole-v1", "rewards": "rudder", **settings})


def test_an_algorithm_of_ones_own_with_first_priorities_or_another_data_path_is_refused():
    class Prioritizing(DQN):
        def initial_priorities(self):
            return abs

    class Elsewhere(DQN):
        data_path = "sequences"

    with pytest.raises(ConfigError, match="prioritizing finds first priorities when a step is taken"):
        Trainer(Prioritizing, **SMALL)
    with pytest.raises(ConfigError, match="rewards='rudder' is not possible with the data path of elsewhere"):
        Trainer(Elsewhere, **SMALL)

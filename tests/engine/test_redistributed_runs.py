"""Runs whose rewards are redistributed: every episode's sum, gaps, processes, death, resuming, and what is refused."""

import os
import signal
from collections import defaultdict
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import penstock
from penstock.algorithms.appo import APPO
from penstock.algorithms.ppo import PPO
from penstock.config import ConfigError
from penstock.engine.paths.segments import SegmentPath
from penstock.engine.trainer import Trainer
from penstock.rudder.learning import Episode
from penstock.rudder.paths import FeedingSegmentWriter
from penstock.rudder.predictor import TOLD, build_predictor
from penstock.rudder.redistribution import SegmentRedistribution
from penstock.rudder.redistributor import Redistributor, columns_of
from penstock.runs.episodes import read_episode
from penstock.runs.reading import RecordedRun
from penstock.studies.report import report_html
from tests.comparing import identical
from tests.engine.delayed import Delayed, DelayedPicture
from tests.engine.inside import learner_of, policy_of, role_of, supervisor_of
from tests.engine.processes import Watched, pids_of, roles_of

LONG = pytest.mark.long
pytestmark = [pytest.mark.timeout(300), pytest.mark.usefixtures("kept_launcher")]


SMALL: dict[str, Any] = {
    "env": Delayed, "num_workers": 1, "num_envs_per_worker": 4, "segment_length": 8, "batch_size": 32,
    "hidden_sizes": (16,), "total_steps": 20_000, "backend": "serial", "eval_interval": 0, "run_dir": None,
    "rewards": "rudder", "num_epochs": 2, "redistributor_interval": 5,
}  # fmt: skip


class Remembering(APPO):
    """Remembers the batches that it has learned from."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.batches = []

    def prepare(self, model, batch):
        self.batches.append(batch.segments(torch.arange(batch.num_segments)))
        super().prepare(model, batch)


def rows_by_lane(batches):
    """Of each lane, what the learner has seen of it row by row: first, terminated, truncated, valid, reward."""
    lanes = defaultdict(list)
    for batch in batches:
        for column, lane in enumerate(batch.lane.tolist()):
            names = ("terminated", "truncated", "valid", "reward")
            values = [batch.first[:-1, column], *(getattr(batch, name)[:, column] for name in names)]
            lanes[lane] += list(zip(*(each.tolist() for each in values), strict=True))
    return lanes


def returns_by_lane(batches, since=0):
    """Sums of the rewards of whole episodes, of each lane in order."""
    found = defaultdict(list)
    for lane, rows in rows_by_lane(batches).items():
        total = None
        for first, terminated, truncated, valid, reward in rows:
            if not valid:
                continue
            total = 0.0 if first else total
            if total is not None:
                total += reward
                if terminated or truncated:
                    found[lane].append(total)
                    total = None
    return found


def chosen_first(trainer, parameters, env=Delayed):
    """What the trained policy does first."""
    model = policy_of(trainer).algorithm.build_model()
    model.load_state_dict(parameters)
    first, _ = env().reset(seed=0)
    choice, _ = model.act(torch.from_numpy(first).unsqueeze(0), torch.tensor([True]), model.initial_state(1))
    return int(choice.mode())


def test_with_the_environments_rewards_nothing_of_a_run_changes():
    def weights(**settings):
        with penstock.PPO(**{**SMALL, "rewards": "environment", **settings}) as algo:
            algo.train(400, quiet=True)
            return algo.get_parameters()[0], set(algo.status.experience)

    (plain, shown), (other, _) = weights(), weights(redistributor_size=7)
    assert identical(plain, other) and not any(name.startswith("redistribution") for name in shown)


@LONG
@pytest.mark.parametrize("points", [0, 4])
@pytest.mark.parametrize(("length", "lanes"), [(10, 4), (37, 2), (3, 1)])
def test_each_episodes_redistributed_rewards_add_up_to_its_return(open_gate, length, lanes, points):
    """However many segments an episode spans, and although the predictor changes on the way."""
    kind = "integrated_gradients" if points else "difference"
    settings = {**SMALL, "env_kwargs": {"length": length, "pays": 2.0}, "num_envs_per_worker": lanes}
    with Trainer(
        Remembering, **settings, redistribution_attribution=kind, redistribution_points=max(1, points)
    ) as trainer:
        true: list[float] = []
        take_episodes = supervisor_of(trainer).progress.policies[0].take_episodes
        supervisor_of(trainer).progress.policies[0].take_episodes = lambda episodes, successes: (
            true.extend(r for r, _ in episodes), take_episodes(episodes, successes)
        )  # fmt: skip
        trainer.train(1_500, quiet=True)
        batches, shown = policy_of(trainer).algorithm.batches, trainer.status.experience
        found = returns_by_lane(batches)
        assert shown["redistribution/share"] == 1.0 and shown["redistribution/updates"] > 5
    sums = [total for totals in found.values() for total in totals]
    assert len(sums) > 20
    assert np.allclose(np.array(sums), np.round(sums), atol=2e-3), "returns of this task are whole numbers"
    assert np.mean([reward != round(reward) for row in rows_by_lane(batches).values() for *_, reward in row]) > 0.5
    assert np.mean(sums) == pytest.approx(np.mean(true), abs=0.5), "and reported returns are true"


def test_the_first_change_of_a_segment_is_from_the_last_observation_of_the_one_before(open_gate, monkeypatch):
    last, alike = dict[int, torch.Tensor](), list[bool]()
    redistribute = SegmentRedistribution._redistribute

    def watched(self, slots, lanes, reward, quality):
        for slot, lane in zip(slots.tolist(), lanes.tolist(), strict=True):
            row = int(self._columns["valid"][slot].nonzero()[-1])
            if lane in last:
                alike.append(torch.equal(self._before[lane], last[lane]))
            last[lane] = self._obs[slot, row].clone()
        return redistribute(self, slots, lanes, reward, quality)

    monkeypatch.setattr(SegmentRedistribution, "_redistribute", watched)
    with Trainer(Remembering, **SMALL) as trainer:
        trainer.train(500, quiet=True)
    assert len(alike) > 20 and all(alike) and len({tuple(obs.tolist()) for obs in last.values()}) > 1


def test_of_a_lane_that_waits_for_its_turn_the_last_observation_of_its_own_steps_is_remembered():
    with Trainer(Remembering, **SMALL) as trainer:
        trainer.train(200, quiet=True)
        role: Any = learner_of(trainer)
        redistribution = SegmentRedistribution(role._algorithm, role._arena, range(4))
        before, obs = redistribution._before.clone(), redistribution._obs[:4].clone()
        valid, slots = redistribution._columns["valid"], torch.arange(4)
        valid[:4] = True
        valid[0, 5:] = valid[1] = False
        redistribution._redistribute(slots, slots, torch.zeros(8, 4), 1.0)
        kept = redistribution._before.clone()
    assert torch.equal(kept[0], obs[0, 4]) and torch.equal(kept[2:], obs[2:, -1])
    assert torch.equal(kept[1], before[1]) and not torch.equal(kept[1], obs[1, -1])


def test_an_episode_keeps_its_rewards_while_the_gate_is_shut():
    with Trainer(Remembering, **SMALL) as trainer:
        trainer.train(300, quiet=True)
        rows = [row for rows in rows_by_lane(policy_of(trainer).algorithm.batches).values() for row in rows]
    assert all(reward == 0.0 for _, terminated, _, _, reward in rows if not terminated)
    assert trainer.status.experience["redistribution/share"] == 0.0


@LONG
def test_behind_a_fence_episodes_go_on_of_which_the_learner_has_thrown_a_segment_away(open_gate):
    with Trainer(Remembering, **{**SMALL, "env_kwargs": {"length": 37}, "num_envs_per_worker": 3}) as trainer:
        trainer.train(640, quiet=True)
        role: Any = learner_of(trainer)
        assert len(role._held) or len(role._arena.full), "there is one to be thrown away"
        trainer.set_parameters(trainer.get_parameters())
        policy_of(trainer).algorithm.batches.clear()
        trainer.train(1_500, quiet=True)
        lanes = rows_by_lane(policy_of(trainer).algorithm.batches)
        returns = returns_by_lane(policy_of(trainer).algorithm.batches)
        sums = [total for totals in returns.values() for total in totals]
    for rows in lanes.values():
        begins = next(n for n, row in enumerate(rows) if row[0])
        assert begins > 0 and all(row[-1] != round(row[-1]) for row in rows[: begins - 1])
    assert len(sums) > 10 and np.allclose(sums, np.round(sums), atol=2e-3)


def test_a_truncated_episode_gets_what_was_predicted_and_no_correction(open_gate):
    with Trainer(Remembering, **{**SMALL, "env_kwargs": {"truncates": True}}) as trainer:
        trainer.train(1_000, quiet=True)
        returns = returns_by_lane(policy_of(trainer).algorithm.batches)
        sums = [total for totals in returns.values() for total in totals]
    assert len(sums) > 20 and not np.allclose(sums, np.round(sums), atol=0.01)


@LONG
@pytest.mark.parametrize(
    ("algorithm", "settings"),
    [
        (penstock.PPO, {}),
        pytest.param(penstock.PPO, {"redistribution_value": "original"}, marks=LONG),
        pytest.param(
            penstock.PQN, {"exploration_steps": 3_000, "hidden_sizes": (32,), "learning_rate": 3e-3}, marks=LONG
        ),
    ],
)
def test_a_delayed_task_is_learned_in_serial(algorithm, settings):
    given = {**SMALL, "env_kwargs": {"length": 25, "pays": 1.0}, "segment_length": 16, "batch_size": 64}
    given["redistributor_interval"] = 8
    if algorithm is penstock.PPO:
        given |= {"learning_rate": 3e-3, "gae_lambda": 0.9, "num_epochs": 4}
    with algorithm(**{**given, **settings, "total_steps": 8_000, "seed": 1}) as algo:
        algo.train(quiet=True)
        choice, shown = chosen_first(algo, algo.get_parameters()[0]), algo.status.experience
    assert shown["redistribution/quality"] > 0.5 and choice == 1


@LONG
def test_a_delayed_task_in_pictures_is_learned_through_an_encoder_of_the_policys_family():
    given = {**SMALL, "env": DelayedPicture, "env_kwargs": {"length": 8, "pays": 2.0}, "segment_length": 16,
             "batch_size": 64, "learning_rate": 2e-3, "redistributor_interval": 6}  # fmt: skip
    with penstock.PPO(**{**given, "total_steps": 2_400, "seed": 1}) as algo:
        algo.train(quiet=True)
        choice, shown = chosen_first(algo, algo.get_parameters()[0], DelayedPicture), algo.status.experience
        algorithm = policy_of(algo).algorithm
    assert type(build_predictor(algorithm).encoder) is type(algorithm.build_model().encoder)
    assert shown["redistribution/quality"] > 0.5 and shown["redistribution/share"] == 1.0 and choice == 1


@LONG
def test_one_seed_gives_one_set_of_weights_bit_for_bit_in_one_call_or_in_several():
    def weights(*calls):
        with penstock.PPO(**{**SMALL, "seed": 5}) as algo:
            for steps in calls:
                algo.train(steps, quiet=True)
            return algo.get_parameters()[0]

    one = weights(800)
    assert identical(one, weights(800)) and identical(one, weights(224, 288, 288))


@pytest.mark.parametrize(
    "settings", [{}, {"inference": "central"}, {"num_workers": 2, "num_groups": 2}, {"algorithm": PPO}]
)
def test_in_a_serial_run_the_redistributor_has_learned_from_a_segment_before_the_segment_is_redistributed(
    monkeypatch, settings
):
    """No update is due then; and before the next step, the learner makes all updates that are due."""
    updates, taken, redistribute = list[float](), list[int](), SegmentRedistribution.__call__
    record = FeedingSegmentWriter.record

    def watched(self, slots):
        redistribute(self, slots)
        role = role_of(trainer, "redistributor")
        has_read = role._feed._read
        assert len(has_read) and set(has_read.tolist()) == set(role._feed._buffer.live()[1].tolist())
        updates.append(float(self._predictor.told[TOLD.index("updates")]))
        assert updates[-1] == role._rudder.updates

    def watched_record(self):
        taken.append(len(self.arena.full))
        record(self)

    monkeypatch.setattr(SegmentRedistribution, "__call__", watched)
    monkeypatch.setattr(FeedingSegmentWriter, "record", watched_record)
    with Trainer(**{"algorithm": APPO, **SMALL, **settings}) as trainer:
        trainer.train(960, quiet=True)
    assert len(set(updates)) > 5
    assert max(taken) < 32 // 8, "segments of a batch"


@pytest.mark.parametrize("inference", ["local", "central"])
def test_a_killed_redistributor_is_replaced_and_goes_on_with_what_it_had_published(inference):
    settings = {**SMALL, "backend": "local", "inference": inference, "total_steps": 10**9}
    killed: list[float] = []

    def kill(status):
        if status.experience.get("redistribution/updates", 0) > 30 and not killed:
            killed.append(status.experience["redistribution/updates"])
            os.kill(pids_of(trainer)["redistributor"], signal.SIGKILL)
        return not (killed and status.restarts and status.experience["redistribution/updates"] > killed[0] + 30)

    with Trainer(PPO, **settings) as trainer:
        assert trainer.train(quiet=True, on_update=kill).stop_reason == "callback"
        assert trainer.status.restarts == 1
        processes = Watched(roles_of(trainer))
    assert processes.left_after(10.0) == []


@LONG
def test_a_resumed_run_goes_on_with_its_predictor_and_its_lessons(tmp_path):
    path = tmp_path / "run"
    settings = {**SMALL, "env_kwargs": {"length": 4, "pays": 1.0}, "run_dir": str(path), "total_steps": 2_400}
    with penstock.PPO(**settings) as algo:
        algo.train(quiet=True)
        before = dict(algo.status.experience)
    with Trainer.resume(path, total_steps=2_600) as trainer:
        trainer.train(quiet=True)
        after = trainer.status.experience
    assert before["redistribution/quality"] > 0.5 and after["redistribution/updates"] > before["redistribution/updates"]
    assert after["redistribution/lessons"] >= before["redistribution/lessons"] > 50
    assert after["redistribution/error"] == pytest.approx(before["redistribution/error"], abs=0.1)


@pytest.mark.parametrize("settings", [{}, {"redistribution_attribution": "integrated_gradients"}])
def test_the_steps_of_a_recent_episode_are_written_with_both_kinds_of_rewards(tmp_path, monkeypatch, settings):
    monkeypatch.setattr("penstock.rudder.redistributor.CHART_INTERVAL", 0.0)
    path = tmp_path / "run"
    own = {"env_kwargs": {"length": 9}, "run_dir": str(path), "total_steps": 300, "redistributor_chunk": 4, **settings}
    with penstock.PPO(**{**SMALL, **own}) as algo:
        algo.train(quiet=True)
    columns = read_episode(path, 1000)
    given, redistributed, predicted, received = (np.array(columns[name]) for name in (
        "reward/given", "reward/redistributed", "return/predicted", "return/received so far"
    ))  # fmt: skip
    assert len(given) == 9 and not given[:-1].any(), "all is paid at the end"
    np.testing.assert_allclose(redistributed.sum(), given.sum(), atol=1e-4)
    change = np.diff(predicted, prepend=0.0)
    np.testing.assert_allclose(redistributed, change + (given.sum() - predicted[-1]) / 9, atol=1e-4)
    np.testing.assert_allclose(received, given.cumsum())
    assert np.ptp(redistributed) > 0.0
    page = report_html([RecordedRun.open(path)]).decode()
    assert "Rewards of a recent episode" in page and "received so far" in page


def test_the_steps_of_an_episode_are_the_same_in_chunks():
    with penstock.PPO(**SMALL) as algo:
        predictor = build_predictor(policy_of(algo).algorithm)
    random = np.random.default_rng(0)
    obs, action = random.uniform(-1, 1, (9, 3)).astype(np.float32), random.integers(0, 2, 9)
    episode = Episode(obs, action, 2.0, reward=np.arange(9, dtype=np.float32))
    torch.nn.init.normal_(predictor.output.weight)
    whole, chunks = (
        columns_of(predictor, episode, SimpleNamespace(redistributor_chunk=size, points_of_attribution=0))
        for size in (100, 4)
    )
    for name, column in whole.items():
        np.testing.assert_allclose(chunks[name], column, rtol=1e-5, atol=1e-6)


def test_a_redistributor_whose_save_is_damaged_begins_anew_and_says_so(tmp_path):
    path = tmp_path / "run"
    with penstock.PPO(**{**SMALL, "run_dir": str(path), "total_steps": 600}) as algo:
        algo.train(quiet=True)
    (path / "redistributor" / "state.pt").write_bytes(b"nothing")
    with Trainer.resume(path, total_steps=700) as trainer:
        trainer.train(quiet=True)
        assert trainer.status.experience["redistribution/updates"] < 10
    assert "the redistributor starts from scratch" in (path / "log.txt").read_text()


def test_endless_episodes_are_named_once_and_keep_their_rewards(tmp_path):
    settings = {**SMALL, "env_kwargs": {"endless": True}, "redistributor_max_steps": 50, "run_dir": tmp_path / "run"}
    with penstock.PPO(**settings) as algo:
        algo.train(600, quiet=True)
        shown = algo.status.experience
    log = (tmp_path / "run" / "log.txt").read_text()
    assert log.count("redistributor_max_steps=50 steps: such episodes are left out") == 1
    assert shown["redistribution/quality"] == 0.0 and shown["redistribution/dropped"] == 4


@LONG
@pytest.mark.parametrize(
    ("algorithm", "settings", "count"),
    [
        ("PPO", {"env_kwargs": {"truncates": True}}, 1),
        ("PPO", {"env_kwargs": {"truncates": True}, "redistribution_value": "original"}, 0),
        ("PPO", {}, 0),
        ("DQN", {"env_kwargs": {"truncates": True}}, 1),
        ("DQN", {}, 0),
    ],
)
def test_truncations_that_cut_returns_are_named_once(tmp_path, algorithm, settings, count):
    only_ppo = ("segment_length", "batch_size", "num_epochs")
    given = {name: value for name, value in SMALL.items() if algorithm == "PPO" or name not in only_ppo}
    with getattr(penstock, algorithm)(**{**given, **settings, "run_dir": tmp_path / "run"}) as algo:
        algo.train(1_300, quiet=True)
    log = tmp_path / "run" / "log.txt"
    assert (log.read_text() if log.exists() else "").count("100% of the last 100 episodes were truncated") == count


def test_returns_that_are_all_equal_are_named_once(tmp_path):
    settings = {**SMALL, "env_kwargs": {"length": 3, "pays": 0.0}, "run_dir": tmp_path / "run"}
    with penstock.PPO(**settings) as algo:
        algo.train(1_500, quiet=True)
        assert algo.status.experience["redistribution/share"] == 0.0
    assert (tmp_path / "run" / "log.txt").read_text().count("have returned 0. Until one differs") == 1


def test_where_memory_holds_few_episodes_it_learns_from_these_and_says_so_once(tmp_path, monkeypatch):
    monkeypatch.setattr("penstock.rudder.learning.LESSONS_NBYTES", 700)  # each has 10 steps of 12 + 8 bytes
    with penstock.PPO(**{**SMALL, "run_dir": tmp_path / "run"}) as algo:
        algo.train(1_000, quiet=True)
        shown = algo.status.experience
    assert shown["redistribution/lessons"] == 3 and shown["redistribution/updates"] > 100
    assert (tmp_path / "run" / "log.txt").read_text().count("keeps only 3 of the redistributor_batch_size=8") == 1


@pytest.mark.parametrize(("chunk", "count"), [(9, 1), (10, 0)])
def test_episodes_that_are_learned_from_in_chunks_are_named_once(tmp_path, chunk, count):
    with penstock.PPO(**{**SMALL, "redistributor_chunk": chunk, "run_dir": tmp_path / "run"}) as algo:
        algo.train(500, quiet=True)
    log = tmp_path / "run" / "log.txt"
    said = f"an episode of 10 steps in chunks of redistributor_chunk={chunk} steps that overlap by half"
    assert (log.read_text() if log.exists() else "").count(said) == count


def test_rewards_are_learned_from_as_they_are_scaled_and_clipped(open_gate):
    settings = {**SMALL, "env_kwargs": {"length": 10, "pays": 8.0}, "reward_scale": 0.5, "reward_clip": 3.0}
    with Trainer(Remembering, **settings) as trainer:
        trainer.train(1_000, quiet=True)
        role: Any = role_of(trainer, "redistributor")
        lessons = [episode.return_ for episode in role._rudder.lessons.episodes]
        returns = returns_by_lane(policy_of(trainer).algorithm.batches)
        sums = [total for totals in returns.values() for total in totals]
    assert isinstance(role, Redistributor) and max(lessons) == 3.0 and min(lessons) >= -3.0
    assert max(sums) == pytest.approx(3.0, abs=1e-3)


def test_while_the_gate_is_shut_rewards_are_scaled_and_clipped_as_well():
    settings = {**SMALL, "env_kwargs": {"length": 10, "pays": 8.0}, "reward_scale": 0.5, "reward_clip": 3.0}
    with Trainer(Remembering, **settings) as trainer:
        trainer.train(200, quiet=True)
        rows = [row for rows in rows_by_lane(policy_of(trainer).algorithm.batches).values() for row in rows]
    paid = {reward for _, terminated, _, _, reward in rows if terminated}
    assert max(paid) == 3.0 and min(paid) >= -3.0 and all(2.0 * reward == round(2.0 * reward) for reward in paid)


def test_with_original_values_redistributed_rewards_lie_beside_those_of_the_environment(open_gate):
    settings = {**SMALL, "redistribution_value": "original", "redistribution_trace": 0.0}
    with Trainer(Remembering, **settings) as trainer:
        trainer.train(800, quiet=True)
        batches = policy_of(trainer).algorithm.batches
        assert trainer.status.experience["redistribution/share"] == 1.0
    for batch in batches:
        assert bool(batch.altered) and (batch.reward[~batch.terminated] == 0.0).all()
        assert (batch.altered["redistributed_quality"][batch.valid] == torch.tensor(0.9)).all()
        batch.reward = batch.altered["redistributed_reward"]
    sums = [total for totals in returns_by_lane(batches).values() for total in totals]
    assert len(sums) > 20 and np.allclose(sums, np.round(sums), atol=2e-3)
    assert any(row[-1] != round(row[-1]) for rows in rows_by_lane(batches).values() for row in rows)


class Summing(APPO):
    """Fails on an episode whose rewards do not add up to a whole number, as this task's returns do."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.totals: dict[int, float] = {}

    def prepare(self, model, batch):
        for column, lane in enumerate(batch.lane.tolist()):
            for row in batch.valid[:, column].nonzero()[:, 0].tolist():
                if batch.first[row, column]:
                    self.totals[lane] = 0.0
                if lane in self.totals:
                    self.totals[lane] += float(batch.reward[row, column])
                    if batch.terminated[row, column]:
                        total = self.totals.pop(lane)
                        assert abs(total - round(total)) < 2e-3, f"an episode's rewards add up to {total}"
        super().prepare(model, batch)


@LONG
@pytest.mark.parametrize("inference", ["local", "central"])
def test_a_worker_that_is_killed_in_the_middle_of_an_episode_is_replaced_by_one_that_redistributes(inference):
    settings = {**SMALL, "backend": "local", "inference": inference, "total_steps": 10**9, "max_policy_lag": 10**6,
                "env_kwargs": {"length": 37}, "redistribution_max_error": 2.0}  # fmt: skip
    killed: list[int] = []

    def kill(status):
        if status.experience.get("redistribution/share", 0.0) == 1.0 and not killed:
            killed.append(status.steps)
            os.kill(pids_of(trainer)["rollout-0"], signal.SIGKILL)
        is_redistributed = status.experience.get("redistribution/share", 0.0) == 1.0
        return not (killed and status.restarts and status.steps > killed[0] + 2_000 and is_redistributed)

    with Trainer(Summing, **settings) as trainer:
        assert trainer.train(quiet=True, on_update=kill).stop_reason == "callback"
        processes = Watched(roles_of(trainer))
    assert processes.left_after(10.0) == []


@pytest.mark.parametrize("algorithm", ["A3C", "IMPACT"])
def test_algorithms_that_cannot_take_redistributed_rewards_name_those_that_can(algorithm):
    with pytest.raises(ConfigError, match=r"unknown setting 'rewards': rewards are redistributed by .* ppo, appo, a2c"):
        getattr(penstock, algorithm)("CartPole-v1", rewards="rudder")


@pytest.mark.parametrize(
    ("algorithm", "settings", "message"),
    [
        ("LASER", {}, "this replays segments .uniform.: use rewards='environment', or ppo, appo"),
        ("CLEAR", {}, "this replays segments"),
        ("CLEAR", {"replay": ["queue:1"]}, "not possible with the data path of clear, which does not redistribute"),
        ("IMPALA", {"replay": ["queue:1/2", "uniform:1/2"]}, "this replays segments"),
        ("PQN", {"redistribution_value": "original"}, 'must be "redistributed": values are all that PQN learns'),
    ],
)
def test_combinations_that_make_no_sense_are_refused(algorithm, settings, message):
    with pytest.raises(ConfigError, match=message):
        getattr(penstock, algorithm)("CartPole-v1", rewards="rudder", **settings)


def test_an_algorithm_of_ones_own_with_another_data_path_is_refused():
    class Elsewhere(APPO):
        data_path = type("Path", (SegmentPath,), {})

    message = "rewards='rudder' is not possible with the data path of elsewhere, which does not redistribute"
    with pytest.raises(ConfigError, match=message):
        Trainer(Elsewhere, **SMALL)
    with Trainer(Elsewhere, **{**SMALL, "rewards": "environment"}):
        pass

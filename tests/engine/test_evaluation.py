"""Scoring a policy: fair to long episodes, free of exploration, and the same for the same seed."""

import json
import math
from types import SimpleNamespace
from typing import ClassVar

import gymnasium
import numpy as np
import pytest
import torch

from penstock.algorithms.ppo import PPO
from penstock.config import ConfigError
from penstock.engine.evaluations import Evaluations
from penstock.engine.messages import Candidate, Evaluate, Evaluated, Scored, Stop
from penstock.engine.roles.evaluator import Evaluator, Scores
from penstock.engine.trainer import Trainer
from penstock.engine.watching.clock import WALL
from penstock.engine.watching.progress import PolicyProgress
from penstock.envs.making import lane_seed, make_group
from penstock.play.evaluation import Evaluation
from penstock.play.player import MAX_LANES, EpisodePlayer, lanes_for
from penstock.play.scoring import EVALUATION_LANES, SCORING_LANES, evaluate_models
from penstock.runs.checkpoint import load_checkpoint
from penstock.runs.store import CheckpointStore
from tests.engine.collecting import FIRST_VERSION, Collecting


class LaneBound(gymnasium.Env):
    """Episodes of one step in half of the lanes and of thirty in the others, by seed; the return is the length."""

    observation_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        if seed is not None:
            self.length = self.length_of(seed)
        self.count = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.count += 1
        return np.zeros(1, np.float32), 1.0, self.count == self.length, False, {}

    @staticmethod
    def length_of(seed):
        return 30 if seed % 2 else 1


class Looking(LaneBound):
    """Notes in each step how much wall time the evaluator has booked."""

    gauges: ClassVar = None
    booked: ClassVar = None

    def step(self, action):
        if self.gauges is not None:
            self.booked.append(float(self.gauges[WALL][0]))
        return super().step(action)


class Fading(gymnasium.Env):
    """Its first episode returns 10, all others 1."""

    observation_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)
    episode = 0

    def reset(self, *, seed=None, options=None):
        self.episode += 1
        return np.zeros(1, np.float32), {}

    def step(self, action):
        return np.zeros(1, np.float32), 10.0 if self.episode == 1 else 1.0, True, False, {}


def a_policy(**settings):
    """A run whose algorithm, model and environment are scored; it never collects anything."""
    return Collecting(PPO, **settings)


def score(run, episodes, **settings):
    (evaluation,) = evaluate_models([run.model], run.env, episodes=episodes, **settings)
    return evaluation


@pytest.mark.parametrize("episodes", [20, 40])
def test_every_lane_plays_the_same_quota_so_that_short_episodes_are_not_favoured(episodes):
    run = a_policy(env=LaneBound)
    evaluation = score(run, episodes, seed=5)
    seeds = [lane_seed(5, SCORING_LANES + lane, 0) for lane in range(20)]
    lengths = [LaneBound.length_of(seed) for seed in seeds]
    assert 1 in lengths and 30 in lengths
    assert sorted(evaluation.lengths) == sorted(lengths * (episodes // 20))
    assert evaluation.mean_return == evaluation.mean_length == np.mean(lengths)


@pytest.mark.parametrize(("episodes", "lanes"), [(1, 1), (20, 20), (25, 25), (26, 13), (100, 25), (101, 1), (27, 9)])
def test_the_number_of_lanes_is_the_largest_that_divides_the_episodes(episodes, lanes):
    assert lanes_for(episodes) == lanes


def test_the_same_seed_gives_the_same_episodes_and_another_others():
    run = a_policy()
    one = score(run, 6, seed=1)
    assert one == score(run, 6, seed=1) and one.returns != score(run, 6, seed=2).returns
    sampled = score(run, 6, seed=1, deterministic=False)
    assert sampled == score(run, 6, seed=1, deterministic=False)


def test_deterministic_means_the_most_probable_action_and_otherwise_actions_are_sampled():
    run = a_policy()
    with torch.no_grad():
        run.model.policy_head.weight.zero_()
        run.model.policy_head.bias[:] = torch.tensor([0.1, 0.0])  # hardly prefers the left
    always_left = score(run, 10, seed=0)
    assert max(always_left.lengths) <= 11, "pushed to one side alone, the pole falls at once"
    assert np.mean(score(run, 10, seed=0, deterministic=False).lengths) > 15


@pytest.mark.parametrize("memory", ["none", "gru"])
def test_an_evaluation_is_what_playing_by_hand_gives(memory):
    run = a_policy(memory=memory)
    evaluation = score(run, 3, seed=7)
    for lane in range(3):
        env = gymnasium.make("CartPole-v1")
        obs, _ = env.reset(seed=lane_seed(7, SCORING_LANES + lane, 0))
        state, first, total, is_over = run.model.initial_state(1), True, 0.0, False
        with torch.no_grad():
            while not is_over:
                policy, state = run.model.act(torch.from_numpy(obs)[None], torch.tensor([first]), state)
                obs, reward, terminated, truncated, _ = env.step(int(policy.mode()))
                total, first, is_over = total + float(reward), False, terminated or truncated
        assert total == evaluation.returns[lane]


class Noting(LaneBound):
    """Notes the seeds of all its kind."""

    seeds: ClassVar[list[int]] = []

    def reset(self, *, seed=None, options=None):
        if seed is not None:
            self.seeds.append(seed)
        return super().reset(seed=seed, options=options)


def test_training_evaluation_and_scoring_never_play_the_same_episode():
    Noting.seeds.clear()
    run = a_policy(env=Noting, eval_episodes=MAX_LANES, num_envs_per_worker=24)
    evaluator = an_evaluator(run)
    evaluate(evaluator, run)
    score(run, MAX_LANES, seed=0)
    lanes = {0: 24, EVALUATION_LANES: MAX_LANES, SCORING_LANES: MAX_LANES}
    expected = [lane_seed(0, first + lane, 0) for first, count in lanes.items() for lane in range(count)]
    probed, *played = Noting.seeds
    assert played == expected and len({probed, *played}) == 1 + 24 + 2 * MAX_LANES
    evaluator.close()
    run.close()


def test_a_player_begins_anew_each_time_and_counts_nothing_left_over():
    run = a_policy(env=LaneBound)
    group = make_group(run.env, 4, seed=0, first_lane=EVALUATION_LANES)
    player = EpisodePlayer([run.model], group, deterministic=True, seed=0)
    (first,), again = player.play(4), [player.play(4)[0].lengths for _ in range(2)]
    assert {1, 30} == set(first.lengths), "lanes with short episodes had to go on until the others were done"
    assert again[0] == again[1]
    group.close()


def vectorized(num_envs):
    """The same for each lane of a vector environment, of which none can be reset alone."""
    return gymnasium.vector.SyncVectorEnv([EveryThirdIsEndless] * num_envs)


class EndsIfEven(LaneBound):
    """Episodes of three steps in half of the lanes; those of the others never end."""

    @staticmethod
    def length_of(seed):
        return 3 if seed % 2 else -1


class EveryThirdIsEndless(LaneBound):
    """Each third episode of a lane never ends, the others last three steps."""

    episode = -1

    def reset(self, *, seed=None, options=None):
        self.episode += 1
        answer = super().reset(seed=seed, options=options)
        self.length = -1 if self.episode % 3 == 1 else 3
        return answer


@pytest.mark.parametrize("vectorize", ["make", "vector"])
def test_in_place_of_episodes_that_do_not_end_others_are_played_and_all_are_told_apart(vectorize):
    run = a_policy(env={"make": EveryThirdIsEndless, "vector": vectorized}[vectorize], vectorize=vectorize)
    evaluation = score(run, 100, max_steps=20)  # 25 lanes, four whole episodes each
    assert (evaluation.requested, evaluation.finished, evaluation.unfinished) == (100, 100, 50)
    assert evaluation.episodes == 150 and evaluation.lengths == (3,) * 100 + (20,) * 50
    assert evaluation.returns == evaluation.lengths, "of those given up, what they had returned by then"


def test_an_evaluation_ends_when_as_many_episodes_were_given_up_as_it_was_asked_for():
    run = a_policy(env=EndsIfEven)
    evaluation = score(run, 50, seed=5, max_steps=20)  # 25 lanes, two episodes each
    endless = sum(EndsIfEven.length_of(lane_seed(5, SCORING_LANES + lane, 0)) < 0 for lane in range(25))
    assert 0 < endless < 25
    assert (evaluation.requested, evaluation.finished) == (50, 2 * (25 - endless))
    assert evaluation.unfinished == endless * math.ceil(50 / endless)


def test_at_the_deadline_all_that_is_under_way_is_given_up_after_a_step_at_least():
    run = a_policy(env=EndsIfEven)
    group = make_group(run.env, 4, seed=0, first_lane=EVALUATION_LANES)
    (evaluation,) = EpisodePlayer([run.model], group, deterministic=True, seed=0).play(4, deadline=0.0)
    assert (evaluation.lengths, evaluation.unfinished) == ((1, 1, 1, 1), 4)
    group.close()


@pytest.mark.parametrize("ends_by", ["steps", "time"])
def test_episodes_that_were_given_up_reach_no_target_and_those_that_time_broke_off_are_no_measure(ends_by, tmp_path):
    run = a_policy(env=EndsIfEven, eval_episodes=20, eval_max_steps=50, target_return=0.5)
    evaluator, store = an_evaluator(run), CheckpointStore(tmp_path)
    evaluation, _ = evaluate(evaluator, run, store, deadline=0.0 if ends_by == "time" else math.inf)
    evaluated = run.reports[-1]
    assert evaluation.unfinished and evaluation.mean_return > 0.5
    assert not evaluated.has_reached_target
    assert evaluated.policies[0].is_best == store.has_best() == (ends_by == "steps")
    evaluator.close()


def test_returns_are_true_whatever_the_learner_sees_of_rewards():
    run = a_policy(env=LaneBound, reward_scale=0.01, reward_clip=0.001)
    assert set(score(run, 10).returns) == {1.0, 30.0}


def test_nothing_to_play_is_refused():
    with pytest.raises(ConfigError, match="episodes=0 is not legal: episodes must be more than 0"):
        score(a_policy(), 0)
    with pytest.raises(ConfigError, match="seed=-1 is not legal: seed must be 0 or more"):
        score(a_policy(), 1, seed=-1)


def test_an_evaluation_sums_up_its_episodes():
    evaluation = Evaluation((1.0, 3.0), (10, 20), steps=5)
    assert (evaluation.episodes, evaluation.mean_return, evaluation.std_return, evaluation.mean_length) == (2, 2, 1, 15)


def an_evaluator(run):
    """An evaluator of the run's weights."""
    return Evaluator([run.algorithm], run.env, run.arena, run.reports.append)


def evaluate(evaluator, run, store=None, best_return=None, deadline=math.inf):
    assert not evaluator.poll(), "it plays only when asked to"
    evaluator.handle(Evaluate(3, deadline, (Candidate(store, best_return, {"env": "x"}),)))
    assert evaluator.poll() and not evaluator.poll()
    evaluated = run.reports[-1]
    assert evaluated.number == 3 and 0.0 < evaluated.seconds < 60.0
    (scored,) = evaluated.policies
    return scored.evaluation, scored.error


def test_the_evaluator_plays_the_newest_weights_and_says_how_many_steps_are_behind_them():
    run = a_policy(eval_episodes=4)
    evaluator = an_evaluator(run)
    first, _ = evaluate(evaluator, run)
    assert first.steps == 0 and first.episodes == 4
    with torch.no_grad():
        run.model.policy_head.weight.zero_()
        run.model.policy_head.bias[:] = torch.tensor([1.0, 0.0])
    run.weights.publish(FIRST_VERSION + 1, 640)
    second, _ = evaluate(evaluator, run)
    assert second.steps == 640 and max(second.lengths) <= 11
    evaluator.close()


def test_weights_are_saved_as_best_unless_others_scored_better(tmp_path):
    run = a_policy(env=LaneBound, eval_episodes=4)
    evaluator, store = an_evaluator(run), CheckpointStore(tmp_path)
    mean = evaluate(evaluator, run)[0].mean_return
    evaluate(evaluator, run, store, best_return=mean + 0.5)
    assert not store.has_best()
    _, error = evaluate(evaluator, run, store, best_return=mean)  # of equals the later
    best = load_checkpoint(store.best_path)
    assert error is None and best.meta["mean_return"] == mean and best.meta["version"] == FIRST_VERSION
    assert best.meta["env"] == "x" and best.state is None
    assert all(torch.equal(best.weights[name], x) for name, x in run.model.state_dict().items())
    evaluator.close()


def test_best_weights_that_cannot_be_written_are_reported_and_the_score_counts(tmp_path):
    run = a_policy(env=LaneBound, eval_episodes=2)
    evaluator = an_evaluator(run)
    (tmp_path / "file").write_text("")
    evaluation, error = evaluate(evaluator, run, CheckpointStore(tmp_path / "file"))
    assert evaluation.episodes == 2 and isinstance(error, OSError)
    evaluator.close()


def test_a_target_reached_by_luck_is_played_for_again():
    run = a_policy(env=Fading, eval_episodes=2, target_return=5.0)
    evaluator = an_evaluator(run)
    assert evaluate(evaluator, run)[0].returns == (1.0, 1.0)
    evaluator.close()
    run = a_policy(env=Fading, eval_episodes=2, target_return=50.0)
    evaluator = an_evaluator(run)
    assert evaluate(evaluator, run)[0].returns == (10.0, 10.0), "below the target once is enough"
    evaluator.close()


def test_weights_that_reached_the_target_twice_are_the_best_whatever_others_scored_once(tmp_path):
    run = a_policy(env=Fading, eval_episodes=2, target_return=1.0)
    evaluator, store = an_evaluator(run), CheckpointStore(tmp_path)
    assert evaluate(evaluator, run, store, best_return=10.0)[0].returns == (1.0, 1.0)
    assert load_checkpoint(store.best_path).meta["mean_return"] == 1.0
    evaluator.close()


@pytest.mark.parametrize(
    ("reached", "is_population", "expected"),
    [
        ((True, False), False, False), ((True, False), True, True), ((True, None), False, True),
        ((True, True), False, True), ((None, None), True, False),
    ],
)  # fmt: skip
def test_a_target_is_reached_by_all_policies_that_have_one_and_by_any_one_of_a_population(
    reached, is_population, expected
):
    scores = object.__new__(Scores)
    scores.policies = [SimpleNamespace(reaches_target=lambda evaluation, found=found: found) for found in reached]
    scores._is_population = is_population
    assert scores._reach_target((None, None)) is expected


def test_an_answer_about_weights_that_were_replaced_meanwhile_counts_for_nothing():
    policy, shown = PolicyProgress(), []
    progress = SimpleNamespace(steps=0, policies=[policy])
    evaluations = Evaluations(PPO.Config(env="CartPole-v1"), progress, SimpleNamespace(evaluated=shown.append), None)
    evaluations.requested = 1
    evaluations.forget()
    evaluations.take(Evaluated(1, (Scored(Evaluation((1.0,), (1,)), is_best=True),), 0.5, has_reached_target=True))
    assert policy.evaluation is policy.best_return is None
    assert not shown and not evaluations.has_reached_target
    evaluations.requested = 2
    evaluations.take(Evaluated(2, (Scored(Evaluation((3.0,), (1,)), is_best=True),), 0.5))
    assert policy.best_return == 3.0 and len(shown) == 1


def test_the_time_of_an_evaluation_is_booked_while_it_goes_on(monkeypatch):
    run = a_policy(env=Looking, eval_episodes=2)
    evaluator = an_evaluator(run)
    booked = []
    monkeypatch.setattr(Looking, "booked", booked)
    monkeypatch.setattr(Looking, "gauges", run.arena.gauges_of("evaluator"))
    evaluate(evaluator, run)
    assert len(booked) >= 30 and len(set(booked)) > len(booked) // 4 and booked == sorted(booked)
    evaluator.close()


def test_an_unknown_command_is_named():
    evaluator = an_evaluator(a_policy())
    with pytest.raises(ValueError, match="the evaluator takes no command Stop"):
        evaluator.handle(Stop())
    evaluator.close()


class Lucky(gymnasium.Env):
    """One step; the return is the action, so that a policy that samples returns something in between."""

    observation_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action):
        return np.zeros(1, np.float32), float(action), True, False, {}


SHORT_RUN = {
    "env": Lucky, "num_workers": 1, "num_envs_per_worker": 4, "segment_length": 4, "hidden_sizes": (8,),
    "batch_size": 16, "num_epochs": 1, "total_steps": 160, "backend": "serial", "eval_episodes": 40,
    "learning_rate": 1e-9,
}  # fmt: skip


def episodes_of(path, **settings):
    with Trainer(PPO, **{**SHORT_RUN, **settings}, run_dir=str(path)) as trainer:
        trainer.train(quiet=True)
    return [json.loads(line) for line in (path / "evaluations.jsonl").read_text().splitlines()]


def test_every_episode_of_every_evaluation_is_written_down(tmp_path):
    episodes = episodes_of(tmp_path / "run", eval_interval=0.25, eval_exploration=True)
    steps = sorted({episode["steps"] for episode in episodes})
    assert len(episodes) == 40 * len(steps) and len(steps) == 4 and steps[-1] == 160
    names = {"steps", "seconds", "time", "version", "requested", "return", "length", "is_finished"}
    assert all(episode.keys() == names and episode["is_finished"] for episode in episodes)
    assert {episode["requested"] for episode in episodes} == {40}
    assert all(episode["length"] == 1 and episode["version"] == episode["steps"] / 16 for episode in episodes)
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    of_last = [episode["return"] for episode in episodes if episode["steps"] == 160]
    last = next(line for line in reversed(lines) if "evaluation/mean_return" in line)
    logged = [last[f"evaluation/return/{name}"] for name in ("min", "q75", "max")]
    assert logged == [*np.quantile(of_last, [0.0, 0.75, 1.0])]
    assert last["evaluation/length/min"] == 1.0 > logged[0]


@pytest.mark.parametrize("explores", [False, True])
def test_evaluations_explore_if_they_are_asked_to(explores, tmp_path):
    returns = [e["return"] for e in episodes_of(tmp_path / "run", eval_interval=80, eval_exploration=explores)]
    assert (0.2 < np.mean(returns) < 0.8) == explores


def test_evaluations_follow_each_other_where_they_are_continuous(tmp_path):
    steps = {episode["steps"] for episode in episodes_of(tmp_path / "run", eval_interval="continuous")}
    assert steps == {16 * batch for batch in range(1, 11)}


@pytest.mark.parametrize("value", [2.5, -1, "always", float("nan")])
def test_an_interval_that_means_nothing_is_refused(value):
    with pytest.raises(ConfigError, match="eval_interval"):
        Trainer(PPO, **{**SHORT_RUN, "eval_interval": value}, run_dir=None)

"""Running statistics of wrappers: found, shared, merged as if one wrapper had seen everything, and frozen."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv
from gymnasium.wrappers import NormalizeObservation, NormalizeReward, TimeLimit
from gymnasium.wrappers import vector as vector_wrappers

from penstock.envs.failures import EnvironmentFailure
from penstock.envs.making import make_env, make_group, probe
from penstock.envs.spec import EnvSpec
from penstock.envs.statistics import Moments, RunningMoments, RunningStatistics, merge, statistics_of
from penstock.experience.statistics import RunStatistics, SharedStatistics, WorkerStatistics
from penstock.ipc import Arena, WeightsBlock


class Wild(gymnasium.Env):
    """Observations of two scales; notes what it has shown."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self):
        self.shown = []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self._show(), {}

    def step(self, action):
        return self._show(), float(self.np_random.normal(5.0)), False, False, {}

    def _show(self):
        self.shown.append(np.array([1e4, -1e-3] * self.np_random.normal(3.0, size=2), np.float32))
        return self.shown[-1]


class Own(gymnasium.Wrapper):
    """A wrapper with running statistics that nobody knows."""

    class Running:
        def __init__(self):
            self.mean, self.var, self.count = 0.0, 1.0, 0

        def update(self, value):
            self.mean += value

    def __init__(self, env):
        super().__init__(env)
        self.seen = self.Running()


def wrapped():
    return NormalizeReward(NormalizeObservation(TimeLimit(Wild(), 7)))


def flat(values):
    """Moments of values [N, ...] as they lie in memory, with nothing before."""
    values = np.asarray(values, np.float64)
    deviations = ((values - values.mean(axis=0)) ** 2).sum(axis=0)
    return np.concatenate([[len(values)], np.ravel(values.mean(axis=0)), np.ravel(deviations)])


def test_merged_moments_are_those_of_all_values_at_once():
    random = np.random.default_rng(1)
    values = random.normal(1e4, 3.0, (60, 3))
    merged = np.zeros(7)
    for part in np.split(values, [1, 1, 20, 21]):
        if len(part):
            merge(merged, flat(part))
    merge(merged, np.zeros(7))
    assert np.allclose(merged, flat(values), rtol=1e-12)


def test_moments_follow_gymnasiums_own():
    from gymnasium.wrappers.utils import RunningMeanStd

    theirs = RunningMeanStd(shape=(3,))
    ours = RunningMoments(Moments("a", theirs.count, theirs.mean, theirs.var))
    for values in np.split(np.random.default_rng(1).normal(5.0, 2.0, (40, 3)), [1, 2, 11]):
        theirs.update(values)
        ours.update(values)
        assert np.allclose(ours.mean, theirs.mean) and np.allclose(ours.var, theirs.var)
        assert ours.count == pytest.approx(theirs.count)
    ours.is_frozen = True
    ours.update(values)
    assert np.allclose(ours.mean, theirs.mean)


def test_all_environments_of_a_group_normalize_by_what_all_have_seen():
    lanes = make_env(wrapped, 3)
    group = make_group(EnvSpec.resolve(wrapped), 3)
    assert [moments.start.name for moments in group.statistics.moments] == [
        "NormalizeReward.return_rms", "NormalizeObservation.obs_rms",
    ]  # fmt: skip
    group.reset()
    for _ in range(20):
        group.step([np.zeros(3, np.int64)])
    shown = [value for env in group.lanes[0]._envs for value in env.unwrapped.shown]
    of_observations = group.statistics.moments[1]
    assert np.allclose(of_observations.own, flat(shown)) and len(shown) > 60
    assert len({id(env.get_wrapper_attr("obs_rms")) for env in group.lanes[0]._envs}) == 1
    lanes.close()
    group.close()


@pytest.mark.parametrize(
    "make",
    [
        lambda num_envs: SyncVectorEnv([wrapped] * num_envs),
        lambda num_envs: vector_wrappers.NormalizeReward(
            vector_wrappers.NormalizeObservation(SyncVectorEnv([Wild] * num_envs))
        ),
    ],
    ids=["inside", "around"],
)
def test_vector_environments_have_theirs_saved_frozen_and_shared_alike(make):
    spec = EnvSpec.resolve(make, vectorize="vector")
    group, other = make_group(spec, 2), make_group(spec, 2)
    other.statistics.share(group.statistics)
    for each in (group, other):
        each.reset()
        each.step([np.zeros(2, np.int64)])
    saved = tuple(moments.now() for moments in group.statistics.moments)
    assert saved[1].count == pytest.approx(8.0, abs=1e-3) and saved[0].count == pytest.approx(4.0, abs=1e-3)
    assert [each.to_json() for each in statistics_of({"statistics": [each.to_json() for each in saved]})] == [
        each.to_json() for each in saved
    ]
    spec = EnvSpec(**{**vars(spec), "statistics": saved})
    frozen = make_group(spec, 2)
    frozen.reset()
    frozen.step([np.zeros(2, np.int64)])
    assert [moments.now().to_json() for moments in frozen.statistics.moments] == [each.to_json() for each in saved]
    for each in (group, other, frozen):
        each.close()


def test_a_frozen_wrapper_is_switched_off_and_observations_are_what_the_saved_moments_make_of_them():
    env, mean, var = NormalizeObservation(Wild()), np.array([3e4, -3e-3]), np.array([1e8, 1e-6])
    RunningStatistics([env]).freeze([Moments("NormalizeObservation.obs_rms", 100.0, mean, var)])
    observation, _ = env.reset(seed=1)
    assert not env.update_running_mean
    assert np.allclose(observation, (env.unwrapped.shown[0] - mean) / np.sqrt(var + env.epsilon), rtol=1e-5)


def test_the_statistics_of_other_wrappers_are_refused_and_missing_ones_are_warned_of():
    spec = EnvSpec.resolve(wrapped)
    other = (Moments("NormalizeObservation.obs_rms", 1.0, np.zeros(3), np.ones(3)),)
    with pytest.raises(EnvironmentFailure, match=r"obs_rms \[3\], and this environment has .*obs_rms \[2\]: wrap it"):
        make_group(EnvSpec(**{**vars(spec), "statistics": other}), 1)
    with pytest.warns(UserWarning, match="running statistics of NormalizeReward.* were not saved"):
        make_group(EnvSpec(**{**vars(spec), "statistics": ()}), 1).close()
    with pytest.raises(EnvironmentFailure, match=r"obs_rms \[3\], and this environment has none"):
        make_group(EnvSpec(**{**vars(EnvSpec.resolve(Wild)), "statistics": other}), 1)
    make_group(EnvSpec(**{**vars(EnvSpec.resolve(Wild)), "statistics": ()}), 1).close()


def test_environments_with_other_wrappers_than_their_neighbours_are_refused():
    made = iter([NormalizeObservation(Wild()), Wild()])
    with pytest.raises(ValueError, match="the same running statistics in all environments"):
        RunningStatistics(list(made))


def test_a_wrapper_of_stable_baselines_is_known_by_its_name_with_a_dict_of_moments():
    class Running:
        def __init__(self):
            self.mean, self.var, self.count = np.zeros(2), np.ones(2), 1e-4

    class VecNormalize:
        def __init__(self, venv):
            self.venv, self.training = venv, True
            self.obs_rms, self.ret_rms = {"eye": Running(), "arm": Running()}, Running()

    VecNormalize.__module__ = "stable_baselines3.common.vec_env.vec_normalize"
    wrapper = VecNormalize(None)
    statistics = RunningStatistics([wrapper])
    assert [moments.start.name for moments in statistics.moments] == [
        "VecNormalize.obs_rms.eye", "VecNormalize.obs_rms.arm", "VecNormalize.ret_rms",
    ]  # fmt: skip
    wrapper.obs_rms["arm"].update(np.ones((4, 2)))
    assert statistics.moments[1].own[0] == 4.0
    statistics.freeze([moments.now() for moments in statistics.moments])
    assert not wrapper.training


@pytest.mark.timeout(60)
def test_statistics_that_cannot_be_shared_are_found_when_the_environment_is_looked_at():
    assert probe(EnvSpec.resolve(lambda: Own(wrapped()))).unshared == ("Own.seen",)
    assert probe(EnvSpec.resolve("CartPole-v1")).unshared == () == probe(EnvSpec.resolve(wrapped)).unshared
    hidden = EnvSpec.resolve(lambda num_envs: AsyncVectorEnv([wrapped] * num_envs), vectorize="vector")
    assert probe(hidden).unshared == tuple(
        f"{name} in the processes of AsyncVectorEnv" for name in ("obs_rms", "return_rms")
    )


def test_the_statistics_of_a_run_are_those_of_all_workers_and_of_what_was_before_whoever_dies():
    def board(workers=2):
        nbytes = WeightsBlock.nbytes(8 * 5)
        arena = Arena.create(nbytes * (workers + 1))
        return SharedStatistics([WeightsBlock.create(arena, nbytes * i, 40) for i in range(workers + 1)], [2])

    def worker(shared, number):
        statistics, end = RunningStatistics([NormalizeObservation(Wild())]), WorkerStatistics(shared, number)
        end.take_in(statistics)
        return statistics.moments[0], end

    random = np.random.default_rng(2)
    before, first, second, third = (random.normal(size, 2.0, (size, 2)) for size in (30, 5, 9, 4))
    shared = board()
    found = [Moments("NormalizeObservation.obs_rms", 1e-4, np.zeros(2), np.ones(2))]
    saved = Moments("NormalizeObservation.obs_rms", 30.0, before.mean(axis=0), before.var(axis=0))
    run = RunStatistics(found, shared)
    assert run.begin([saved]) is None
    (here, end), (there, other_end) = worker(shared, 0), worker(shared, 1)
    here.update(first)
    there.update(second)
    end.exchange()
    other_end.exchange()
    end.exchange()
    expected = flat(np.concatenate([before, first, second]))
    for moments in (here.now(), there.now(), run.now()[0]):
        assert np.allclose(moments.flat(), expected)
    there.update(random.normal(size=(3, 2)))  # seen by a worker that dies before it shows them
    there, other_end = worker(shared, 1)
    assert np.allclose(there.now().flat(), expected)
    there.update(third)
    other_end.exchange()
    expected = flat(np.concatenate([before, first, second, third]))
    assert np.allclose(run.now()[0].flat(), expected) and np.allclose(there.now().flat(), expected)



def test_a_run_that_goes_on_with_other_wrappers_says_that_statistics_begin_anew():
    found = [Moments("NormalizeObservation.obs_rms", 1e-4, np.zeros(2), np.ones(2))]
    begin_anew = "warning: running statistics begin anew: the environment has those of"
    assert RunStatistics().begin(found) == (
        f"{begin_anew} none, and the checkpoint holds those of NormalizeObservation.obs_rms"
    )
    assert RunStatistics(found).begin([]) == (
        f"{begin_anew} NormalizeObservation.obs_rms, and the checkpoint holds those of none"
    )
    assert RunStatistics(found).begin(None) is RunStatistics(found).begin(found) is RunStatistics().begin([]) is None

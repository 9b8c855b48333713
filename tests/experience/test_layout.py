"""The layout of a run's arena follows from a few numbers, and gives every region a place of its own."""

import itertools
import pickle
import subprocess
import sys

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.envs.spaces import ActionSpec, ObservationSpec
from penstock.experience.layout import ALIGNMENT, Column, policy_worker_name
from tests.experience.writing import LOGITS, run_shape
from tests.nn.plain import CHOICE

TORQUE = ActionSpec((2, 2), "float32", low=(-1.0,) * 4, high=(1.0,) * 4)


@settings(max_examples=60)
@given(
    num_workers=st.integers(1, 5),
    num_groups=st.integers(1, 3),
    group_size=st.integers(1, 5),
    segment_length=st.integers(1, 40),
    slots_per_lane=st.integers(1, 4),
    state_size=st.integers(0, 5),
    weights_nbytes=st.integers(8, 1000),
    observation=st.sampled_from(
        [ObservationSpec((), "int64", 3), ObservationSpec((5,), "uint8"), ObservationSpec((2, 3), "bool")]
    ),
    action=st.sampled_from([CHOICE, TORQUE]),
    records=st.sampled_from([(), (LOGITS,), (LOGITS, Column("value", (), "float32"))]),
)
def test_regions_never_overlap_and_each_begins_a_cache_line(num_groups, group_size, **numbers):
    shape = run_shape(num_groups=num_groups, num_envs_per_worker=num_groups * group_size, **numbers)
    regions = list(shape.regions().values())
    for region in regions:
        assert region.offset % ALIGNMENT == 0 and region.nbytes > 0
    for one, two in itertools.pairwise(regions):
        assert one.offset + one.nbytes <= two.offset
    assert shape.nbytes() >= regions[-1].offset + regions[-1].nbytes
    assert {column.name for column in shape.step_columns()} <= set(shape.regions())


def test_every_step_column_has_t_plus_1_rows_for_each_slot():
    shape = run_shape(segment_length=6, num_envs_per_worker=5, action=TORQUE, records=(LOGITS,))
    regions = shape.regions()
    for column in shape.step_columns():
        assert regions[column.name].shape == (5 * 7, *column.shape)
    assert regions["action"].shape == (35, 4) and regions["action"].dtype == "float32"
    assert regions["logits"].shape == (35, 2)
    assert regions["noise"].shape == (1, 5, 4)


def test_a_discrete_action_is_one_integer():
    regions = run_shape().regions()
    assert regions["action"].shape == (10,) and regions["action"].dtype == "int64"


def test_several_choices_are_a_vector_of_integers_and_beside_numbers_of_floats():
    choices = ActionSpec((2,), "int64", nvec=(3, 4), starts=(0, 0))
    both = ActionSpec((), "object", low=TORQUE.low, high=TORQUE.high, parts=((None, choices), (None, TORQUE)))
    for action, size, dtype in ((choices, 2, "int64"), (both, 6, "float32")):
        regions = run_shape(action=action).regions()
        assert regions["action"].shape == (10, size) and regions["action"].dtype == dtype
        assert regions["noise"].shape[-1] == size


def test_what_different_processes_count_lies_in_different_cache_lines():
    regions = run_shape(num_workers=3).regions()
    for name in ("control", "asked", "answered", "deaths", "deaths_passed"):
        assert regions[name].shape[1] * 8 == ALIGNMENT
    names = ("rollout-0", "rollout-2", "policy-0", "learner", "evaluator", "redistributor")
    assert [run_shape(num_workers=3).gauge_row(name) for name in names] == [0, 2, 3, 4, 5, 6]
    assert regions["gauges"].shape == (3 + 4, 32)  # the workers, policy worker, learner, evaluator and redistributor


def test_ranks_and_further_policy_workers_have_rows_and_bells_of_their_own_behind_the_single_roles():
    shape = run_shape(num_workers=2, num_learners=3, num_policy_workers=2)
    names = ("rollout-1", "policy-0", "redistributor", "rank-1", "rank-2", policy_worker_name(0, 1))
    assert [shape.gauge_row(name) for name in names] == [1, 2, 5, 6, 7, 8]
    regions = shape.regions()
    assert regions["gauges"].shape == (9, 32)
    assert regions["policy_bell_0"].offset != regions["policy_bell_1"].offset
    assert regions["deaths"].shape == regions["deaths_passed"].shape == (2, ALIGNMENT // 8)


def test_two_processes_lay_a_run_out_alike():
    shape = run_shape(num_workers=2, slots_per_lane=2, records=(LOGITS,), state_size=3)
    program = (
        "import pickle, sys; shape = pickle.loads(sys.stdin.buffer.read()); "
        "sys.stdout.buffer.write(pickle.dumps((shape.regions(), 'torch' in sys.modules)))"
    )
    answer = subprocess.run(
        [sys.executable, "-c", program], input=pickle.dumps(shape), capture_output=True, check=True, timeout=60
    )
    regions, has_torch = pickle.loads(answer.stdout)
    assert regions == shape.regions() and list(regions) == list(shape.regions())
    assert not has_torch


def test_the_numbers_of_lanes_slots_and_groups_follow_from_the_workers():
    shape = run_shape(num_workers=3, num_envs_per_worker=8, num_groups=2, slots_per_lane=2)
    assert shape.num_slots == 48
    assert (shape.num_lanes, shape.group_size, shape.all_groups, shape.rows_per_slot) == (24, 4, 6, 5)

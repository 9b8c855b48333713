"""Segments of seats: the same transitions for any length; nothing from before a fence."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.envs.game_group import Games
from penstock.envs.games import game_of
from tests.envs.playing import KINDS, AtOnce, InTurn, Masked, Part, parts, steps_at_once, steps_in_turn
from tests.experience.writing import Writing, written_steps

STEPS = 24


def seat_lanes(env):
    return Games([game_of(env)], [0], name="game").lanes[0]


def write(env, length):
    writing = Writing(seat_lanes(env), length)
    writing.play(STEPS)
    return writing


@settings(max_examples=40)
@given(st.lists(parts, min_size=1, max_size=3), st.integers(1, 5))
def test_segments_of_any_length_hold_the_course_of_each_agent(parts, length):
    writing = write(AtOnce(parts), length)
    for seat, segments in enumerate(writing.finished):
        written = written_steps(segments)
        assert written == [step for step, _ in zip(steps_at_once(seat, parts), written, strict=False)]


@settings(max_examples=40)
@given(st.integers(1, 3), st.integers(1, 8), st.data(), st.integers(1, 5))
def test_in_turn_segments_of_any_length_hold_the_same_transitions(num_agents, moves, data, length):
    ends = data.draw(st.lists(st.sampled_from(KINDS), min_size=num_agents, max_size=num_agents))
    found = write(InTurn(num_agents, moves, ends), length)
    for seat, segments in enumerate(found.finished):
        written = written_steps(segments)
        assert written == [step for step, _ in zip(steps_in_turn(seat, num_agents, moves, ends), written, strict=False)]


def test_little_is_lost_to_padding_where_agents_take_turns():
    finished = write(InTurn(2, 5, KINDS[:2]), 5).finished
    valid = sum(int(segment.valid.sum()) for segments in finished for segment in segments)
    assert valid >= STEPS - 2 * 5


@pytest.mark.parametrize("length", [2, 5])
def test_an_action_from_before_a_fence_is_not_learned_from_when_its_transition_is_complete(length):
    writing = Writing(seat_lanes(InTurn(2, 7, ["terminated"] * 2)), length)
    assert writing.writer.open()
    writing.step()  # the first agent has acted, and waits
    writing.fence()
    writing.play(12)
    first, second = (written_steps(segments) for segments in writing.finished)
    assert first[0][0] == [0, 0, 2] and second[0][0] == [1, 0, 1]


@pytest.mark.parametrize("length", [1, 2])
def test_nor_if_the_fence_comes_between_two_segments(length):
    writing = Writing(seat_lanes(InTurn(2, 7, ["terminated"] * 2)), length)
    assert writing.writer.open()
    while writing.writer.is_open:
        writing.step()
    writing.take_finished()
    (fenced,) = writing.lanes.pending.nonzero()[0].tolist()
    before = len(written_steps(writing.finished[fenced]))
    writing.fence()
    writing.play(12)
    pending = 2 * before + fenced
    assert written_steps(writing.finished[fenced])[before][0] == [fenced, 0, pending + 2]


def test_a_single_agent_that_waits_has_its_action_carried_too():
    (segments,) = write(Masked([Part(0, 9, "terminated")]), 1).finished
    steps = written_steps(segments)
    assert len({tuple(step[0]) for step in steps[:5]}) == 5
    assert [step[2] for step in steps[:5]] == [1.0 + 2.0, 3.0 + 4.0, 5.0 + 6.0, 7.0 + 8.0, 9.0]


def test_a_pending_action_keeps_what_was_recorded_with_it():
    writing = Writing(seat_lanes(InTurn(2, 50, ["terminated"] * 2)), 1)
    writing.play(6)
    kept = [segment for segments in writing.finished for segment in segments if segment.valid[0]]
    assert len(kept) >= 3
    assert all(segment.version[0] == 5 and segment.log_prob[0] == np.float32(-0.5) for segment in kept)

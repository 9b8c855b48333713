"""The view shows the numbers, wherever its output goes."""

import errno
import io
import json
import re
import subprocess
import sys
from types import ModuleType, SimpleNamespace

import pytest
from rich.console import Console

from penstock.runs.formatting import beside, clock, folded, number, spread
from penstock.runs.notebook import run_html
from penstock.runs.panels import panels, plain_line
from penstock.runs.status import MatchStatus, NodeStatus, OpponentStatus, PolicyStatus, RoleShare, Status
from penstock.runs.view import LiveView, PlainView, ViewConsole, open_view

ROLES = (
    RoleShare(name="rollout x2", activities={"env": 0.62, "inference": 0.25, "wait slots": 0.10}, busy=0.87),
    RoleShare(name="learner", activities={"learn": 0.35, "wait data": 0.65}, busy=0.35),
)


CORES = {"env": 0.52, "infer": 0.12, "learn": 0.14, "evaluate": 0.0, "copying": 0.04, "other": 0.03, "idle": 0.15}


def status(**changes) -> Status:
    values = {
        "algorithm": "appo", "env": "ALE/Pong-v5", "run_dir": "runs/ALE-Pong-v5-appo-20250101-120000",
        "steps": 96_256, "total_steps": 200_000, "seconds": 65.0, "steps_per_second": 1_732.0, "frame_skip": 4,
        "episodes": 1_204, "mean_return": 13.4, "mean_length": 812.0, "eval_return": 15.2,
        "best_return": 16.3, "target_return": 18.0, "updates": 471, "version": 471,
        "losses": {"policy_loss": -0.0123, "value_loss": 0.25},
        "experience": {"policy_lag/mean": 1.2, "policy_lag/max": 4, "masked_steps": 1_024, "kept/segments": 37},
        "skipped_updates": 2, "restarts": 3, "real_work": 0.78, "cores": CORES, "roles": ROLES,
        "limiting_role": "rollout x2", "limiting_reason": "busy 87%, mostly env", "metrics": {"rally": 7.5},
    }  # fmt: skip
    return Status(**{**values, **changes})


def course(returns) -> list[tuple[int, float, None]]:
    """History of returns in training, a hundred steps apart."""
    return [(100 * n, value, None) for n, value in enumerate(returns)]


def drawn(shown: Status, width: int, returns=()) -> str:
    console = Console(width=width, file=io.StringIO(), record=True)
    console.print(panels(shown, course(returns), width))
    return console.export_text()


def terminal(width: int = 100) -> Console:
    return Console(file=io.StringIO(), force_terminal=True, width=width, height=40, _environ={"TERM": "xterm"})


def test_success_is_shown_where_the_environment_tells_it():
    assert "success" not in drawn(status(), 100) + plain_line(status())
    assert "25%" in drawn(status(success_rate=0.25), 100)
    both = status(success_rate=0.25, eval_success_rate=0.5)
    assert "25%, 50% in evaluation" in drawn(both, 100) and "success 50%" in plain_line(both)


def test_opponents_are_shown_where_there_are_any():
    assert "rating" not in drawn(status(), 100) + plain_line(status())
    versions = (OpponentStatus(0, 0.0, 0.75, 30, 5, 10), OpponentStatus(4_096, 87.4, 0.5, 1_234, 0, 7))
    matches = (MatchStatus("random", "red", 9, 0, 1, 0.8), MatchStatus("random", "yellow", 0, 0, 0, 0.0))
    shown = status(rating=91.6, opponents=versions, eval_matches=matches)
    assert "wins against random red 90%, yellow" in plain_line(shown) and "rating 92" in plain_line(shown)
    rows = [line.split() for line in drawn(shown, 100).splitlines()]
    assert ["│", "4,096", "87", "0.50", "1,234", "0", "7", "│"] in rows and ["│", "now", "92", "│"] in rows


def test_past_versions_are_shown_for_each_policy():
    versions = (OpponentStatus(64, 3.0, 0.25, 1, 0, 4, "blue"),)
    red = PolicyStatus(name="red", steps=1, rating=-12.3, rating_error=3.0, opponents=versions)
    blue = PolicyStatus(name="blue", steps=1, rating=45.6, opponents=(OpponentStatus(0, 0.0, 0.5, policy="red"),))
    shown = status(policies=(red, blue))
    assert "rating red -12, blue 46" in plain_line(shown)
    rows = [line.split()[1:-1] for line in drawn(shown, 100).splitlines()]
    assert ["red", "1", "-12", "±", "3", "0"] in rows and ["blue", "1", "46", "0"] in rows
    assert ["red", "blue", "64", "3", "0.25", "1", "0", "4"] in rows and ["blue", "now", "46"] in rows


def test_steps_of_environments_are_shown_beside_those_of_several_agents():
    assert "environment" not in drawn(status(), 100) + plain_line(status())
    both = status(env_steps=32_001)
    assert "32,001 steps" in drawn(both, 100) and "32,001 environment steps" in plain_line(both)


@pytest.mark.parametrize("width", [60, 80, 100, 160])
def test_the_panels_tell_everything_at_every_width(width):
    text = drawn(status(), width)
    for words in (
        "appo on ALE/Pong-v5", "runs/ALE-Pong-v5-appo-20250101-120000", "96,256 of 200,000 steps", "1:05",
        "1,732", "6,928", "1,024 (1.1%)", "471", "1.2, max 4", "13.4", "1,204, 812.0 steps long",
        "kept segments", "37.0",
        "15.2, best 16.3, target 18.0", "policy loss", "-0.012", "rally", "7.5", "skipped updates", "restarts",
        "rollout x2", "env 62%", "inference 25%", "wait slots 10%", "learn 35%", "wait data 65%",
        "real work: 78%", "env 52%", "infer 12%", "learn 14%", "copying 4%", "other 3%", "idle 15%",
        "limited by: rollout x2  busy 87%, mostly env",
    ):  # fmt: skip
        assert words in text, words


@pytest.mark.parametrize("width", [60, 80, 100, 160])
def test_no_line_is_wider_than_the_terminal_and_the_borders_are_straight(width):
    lines = drawn(status(), width).splitlines()
    assert {len(line) for line in lines} == {width}
    assert all(line[0] in "╭│╰" and line[-1] in "╮│╯" for line in lines)


def test_the_panels_of_a_common_run_fit_a_terminal_of_24_lines():
    assert len(drawn(status(), 80).splitlines()) < 24


def test_each_source_of_replayed_segments_has_a_line():
    said = {"segments": 1_000, "share": 0.875, "age": 44.0, "uses": 6.95, "lost": 0}
    experience = {f"replay/uniform/{name}": value for name, value in said.items()}
    text = drawn(status(experience=experience | {"replay/prefetched": 2}), 100)
    for words in ("88% uniform", "1,000, age 44, x7.0", "replay prefetched"):
        assert words in text, words
    assert "replay uniform" not in text


def test_redistributed_rewards_are_told_in_three_lines():
    told = {"share": 0.75, "quality": 0.9, "error": 0.1, "completeness": 1.0, "main_loss": 0.02, "auxiliary_loss": 0.5,
            "lessons": 512, "dropped": 0, "updates": 1_200}  # fmt: skip

    def lines(**changes):
        shown = {f"redistribution/{name}": value for name, value in {**told, **changes}.items()}
        return drawn(status(experience=shown), 120)

    text = lines()
    for words in ("75% of rewards, quality 0.90", "error 0.100, loss 0.020 and 0.500", "512 episodes, 1,200 updates"):
        assert words in text
    assert "redistribution " not in text, "nothing of it twice"
    text = lines(completeness=0.93, dropped=4)
    assert "quality 0.90, complete to 93%" in text and "512 episodes, 4 dropped, 1,200 updates" in text


def test_a_bar_is_as_long_as_its_shares():
    (line,) = [line for line in drawn(status(), 120).splitlines() if "rollout x2 " in line and "limited" not in line]
    bar = line.split("rollout x2  ")[1][:40]
    assert (bar.count("█"), bar.count("▓"), bar.count("░"), bar.count(" ")) == (25, 10, 4, 1)


def test_a_run_that_has_only_begun_is_drawn_too():
    begun = Status(algorithm="ppo", env="CartPole-v1", steps=0, total_steps=1000, seconds=0.0)
    text = drawn(begun, 80)
    assert "0 of 1,000 steps" in text
    assert "restarts" not in text
    assert "real work" not in text
    assert "0 steps (0%)" in plain_line(begun)


def test_numbers_that_are_not_finite_and_a_tiny_terminal_do_not_end_the_run():
    assert drawn(status(mean_return=float("nan"), losses={"policy_loss": float("inf")}), 12)
    view = LiveView(terminal())
    for mean_return in (1.0, float("nan"), float("inf"), 2.0):
        view._remember(status(mean_return=mean_return, eval_return=None))
    assert [value for _, value, _ in view._history] == [1.0, 2.0]


def test_losses_beyond_what_is_shown_are_counted():
    text = drawn(status(losses={f"loss_{i}": 0.5 for i in range(9)}, metrics={}), 80)
    assert "loss 6" in text
    assert "loss 7" not in text
    assert "and 2 more" in text


def test_the_spark_line_rises_with_the_return():
    text = drawn(status(), 100, returns=[0.0, 1.0, 2.0, 3.0])
    assert "▁▃▆█" in text


def test_a_long_run_directory_is_cut_at_its_beginning():
    text = drawn(status(run_dir="/somewhere" * 20 + "/the-end"), 80)
    assert "/the-end" in text
    assert "…" in text


@pytest.mark.parametrize("limiting_role", ["rollout x2", ""])
def test_files_that_are_not_sent_yet_are_counted_with_the_reason(limiting_role):
    unsent = {"unsent_files": 3, "unsent_nbytes": 12_400_000, "limiting_role": limiting_role}
    assert "not sent yet" not in drawn(status(limiting_role=limiting_role, unsent_files=0), 100)
    assert "not sent yet: 3 files, 12.4 MB " in drawn(status(**unsent), 100)
    assert "not sent yet: 3 files, 12.4 MB: no route" in drawn(status(**unsent, upload_error="no route"), 100)
    assert "files not sent 3" in plain_line(status(**unsent, upload_error="no route"))


def test_the_plain_line_tells_the_same_in_one_line():
    line = plain_line(status())
    assert line == (
        "1:05  96,256 steps (48%)  1,732 steps/s  6,928 frames/s  return 13.4  eval 15.2 of 18.0  lag 1.2, max 4  "
        "masked 1,024  skipped updates 2  restarts 3  real work 78%  limited by rollout x2"
    )


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0, "0.0"), (487.31, "487.3"), (-21.0, "-21.0"), (12_345.6, "12,346"), (0.5, "0.500"), (4e-5, "4.0e-05")],
)
def test_numbers_keep_the_digits_that_matter(value, shown):
    assert number(value) == shown


@pytest.mark.parametrize(
    ("value", "limit", "shown"),
    [
        (475.2, 475.0, "475.2"), (475.0, 475.0, "475.0"), (474.98, 475.0, "474.98"), (474.9996, 475.0, "474.9996"),
        (475.04, 475.0, "475.04"), (0.955, 0.96, "0.955"), (0.94996, 0.95, "0.94996"), (float("nan"), 1.0, "nan"),
    ],
)  # fmt: skip
def test_a_number_beside_a_limit_shows_on_which_side_it_lies(value, limit, shown):
    assert beside(value, limit) == shown


@pytest.mark.parametrize(
    ("mean", "std", "shown"),
    [
        (500.0, 0.0, "500.0 +/- 0.0"), (200.0, 2.8e-14, "200.0 +/- 0.0"),
        (500.0, 1.25, "500.0 +/- 1.2"), (499.9, 0.03, "499.9 +/- 0.030"),
        (0.955, 0.0123, "0.955 +/- 0.012"), (12_345.6, 321.0, "12,346 +/- 321"), (4e-5, 0.5, "4.0e-05 +/- 0.500"),
        (float("nan"), float("nan"), "nan +/- nan"),
    ],
)  # fmt: skip
def test_a_mean_and_its_deviation_are_shown_in_the_same_digits(mean, std, shown):
    assert spread(mean, std) == shown


def test_an_evaluation_of_which_episodes_were_given_up_is_shown_as_a_part():
    assert "eval 15.2 (partial) of 18.0" in plain_line(status(eval_unfinished=3))


def test_numbers_that_are_none_are_shown_too():
    assert number(float("nan")) == "nan"
    assert number(float("-inf")) == "-inf"


@pytest.mark.parametrize(("seconds", "shown"), [(5.83, "5.8 s"), (65, "1:05"), (3723, "1:02:03")])
def test_time_spans_read_like_a_clock(seconds, shown):
    assert clock(seconds) == shown


def test_a_file_gets_plain_lines_and_a_terminal_live_panels():
    assert isinstance(open_view(Console(file=io.StringIO())), PlainView)
    assert isinstance(open_view(terminal()), LiveView)
    dumb = Console(file=io.StringIO(), force_terminal=True, _environ={"TERM": "dumb"})
    assert isinstance(open_view(dumb), PlainView)


@pytest.fixture
def clock_hand(monkeypatch):
    """Sets the views' clock."""
    hand = {"now": 1000.0}
    monkeypatch.setattr("penstock.runs.view.monotonic", lambda: hand["now"])
    return lambda now: hand.update(now=1000.0 + now)


def test_plain_output_is_a_line_every_two_seconds_without_control_characters(clock_hand):
    out = io.StringIO()
    with open_view(Console(file=out, width=40)) as view:
        for second in (0.0, 0.1, 1.9, 2.0, 3.9):
            clock_hand(second)
            view.update(status(steps=int(second * 10)))
        view.event("worker 1 was killed by signal 9: restarted [1 of 5]")
        view.close(status(steps=200_000))
        view.close(status(steps=200_000))
    first, second, event, last = out.getvalue().splitlines()
    assert "  0 steps (0%)" in first
    assert "  20 steps (0%)" in second
    assert event == "worker 1 was killed by signal 9: restarted [1 of 5]"
    assert "  200,000 steps (100%)" in last
    assert "\x1b" not in out.getvalue()
    assert "\r" not in out.getvalue()
    out.truncate(out.seek(0))
    with open_view(Console(file=out)) as view:
        view.update(status())
        view.close(status())
    assert len(out.getvalue().splitlines()) == 1, "the same line is printed once"


def test_live_output_redraws_at_most_four_times_a_second(clock_hand):
    console = terminal()
    with open_view(console) as view:
        for hundredth in range(100):
            clock_hand(hundredth / 100)
            view.update(status(steps=hundredth))
        output = console.file.getvalue()
    drawn_steps = [steps for steps in range(100) if f"m{steps}\x1b[0m\x1b[2m of 200,000 steps" in output]
    assert drawn_steps == [0, 25, 50, 75]


def test_live_output_tells_events_above_the_panels_and_ends_with_the_last_status():
    console = terminal()
    view = open_view(console)
    view.update(status(steps=5))
    view.event("checkpoint saved [bold]")
    view.close(status(steps=200_000))
    view.close()
    before, after = console.file.getvalue().split("checkpoint saved [bold]")
    assert "throughput" in before
    assert "throughput" in after
    assert "200,000\x1b[0m\x1b[2m of 200,000 steps" in after
    assert after.rindex("\x1b[?25h") > after.rfind("\x1b[?25l")


def test_the_cursor_waits_below_the_panels_where_an_echo_moves_none_of_them():
    console = terminal()
    view = open_view(console)
    view.update(status(steps=5))
    assert console.file.getvalue().endswith("\n"), "not behind the last border"
    view.close(status(steps=200_000))
    assert not console.file.getvalue().endswith("\n\n"), "no empty line remains"


def test_live_output_gives_the_cursor_back_when_the_run_fails():
    console = terminal()
    with pytest.raises(KeyboardInterrupt), open_view(console) as view:
        view.update(status())
        raise KeyboardInterrupt
    output = console.file.getvalue()
    assert output.rindex("\x1b[?25h") > output.rindex("\x1b[?25l")


class Going(io.StringIO):
    """An output whose other end is closed after a number of writes."""

    def __init__(self, writes: int, error: OSError) -> None:
        super().__init__()
        self._writes_left = writes
        self._error = error

    def write(self, text: str) -> int:
        self._writes_left -= 1
        if self._writes_left < 0:
            raise self._error
        return super().write(text)


GONE = [OSError(errno.EIO, "a terminal"), BrokenPipeError(errno.EPIPE, "a reader"), OSError(errno.ENOSPC, "a disk")]


@pytest.mark.parametrize("error", GONE, ids=str)
@pytest.mark.parametrize("writes", [0, 1, 4])
@pytest.mark.parametrize("is_terminal", [True, False])
def test_an_output_that_is_gone_ends_the_view_and_neither_the_run_nor_what_the_program_prints(
    is_terminal, writes, error, clock_hand
):
    before = sys.stdout
    console = ViewConsole(file=Going(writes, error), force_terminal=is_terminal, _environ={"TERM": "xterm"})
    with open_view(console) as view:
        for second in (0.0, 3.0, 6.0):
            clock_hand(second)
            view.update(status())
            view.event("still training")
        view.close(status())
    assert sys.stdout is before


def test_the_history_of_the_return_stays_small_and_reaches_back_to_the_start():
    view = LiveView(terminal())
    for i in range(10_000):
        view._remember(status(mean_return=float(i)))
    returns = [value for _, value, _ in view._history]
    assert len(returns) <= 256 and returns[0] == 0.0 and returns[-1] > 9_000 and returns == sorted(returns)


def test_every_node_has_a_line_and_one_that_is_gone_is_named():
    lags = {"policy_lag": 1.25, "policy_lag_max": 4.0}
    node = NodeStatus(name="node-0", host="amber", lanes=64, is_connected=True, steps_per_second=12_345.0, **lags)
    gone = NodeStatus(name="node-1", host="basalt", lanes=64, faults=2, stale=1, duplicates=3, missing=4)
    of_learner = NodeStatus(name="node-2", host="coral", learner=3, is_connected=True)
    shown = status(nodes=(node, gone, of_learner, NodeStatus(name="node-3", lanes=64)))
    console = Console(file=io.StringIO(), width=100)
    console.print(panels(shown, width=100))
    lines = console.file.getvalue().splitlines()
    first, second, third, fourth = (next(line for line in lines if f"node-{number}" in line) for number in range(4))
    assert first.split()[1:-1] == ["node-0", "amber", "connected", "64", "12,345", "1.2,", "max", "4", "0", "0", "0"]
    assert second.split()[1:-1] == ["node-1", "basalt", "lost", "64", "-", "-", "-", "2", "8"]
    assert third.split()[1:-1] == ["node-2", "coral", "connected", "rank", "3", "-", "-", "-", "0", "0"]
    assert fourth.split()[1:-1] == ["node-3", "-", "asked", "for", "64", "-", "-", "-", "0", "0"]
    assert "nodes 2 of 4" in plain_line(shown)
    assert "nodes" not in plain_line(status())


def test_gateways_are_rows_above_their_nodes_and_do_not_count_as_nodes():
    counts = {"steps_per_second": 90.0, "nodes": 2, "nodes_connected": 1}
    gateway = NodeStatus(name="gateway-0", host="amber", is_connected=True, **counts)
    nodes = (NodeStatus(name="node-0", host="amber", lanes=64, is_connected=True), NodeStatus(name="node-1", lanes=64))
    shown = status(gateways=(gateway,), nodes=nodes)
    console = Console(file=io.StringIO(), width=100)
    console.print(panels(shown, width=100))
    lines = console.file.getvalue().splitlines()
    rows = [line.split()[1:-1] for line in lines if "gateway-0" in line or "node-" in line]
    assert [row[0] for row in rows] == ["gateway-0", "node-0", "node-1"]
    assert rows[0][1:8] == ["amber", "connected", "1", "of", "2", "nodes", "90"]
    assert "nodes 1 of 2" in plain_line(shown)


def test_of_a_range_of_nodes_it_is_shown_how_many_are_there_and_which_have_left():
    left = NodeStatus(name="node-0", host="amber", lanes=64, has_left=True, steps=7)
    going = NodeStatus(name="node-1", host="basalt", lanes=64, is_connected=True, is_leaving=True)
    shown = status(nodes=(left, going, NodeStatus(name="node-2", host="coral", lanes=64)), nodes_requested="2 to 64")
    console = Console(file=io.StringIO(), width=100)
    console.print(panels(shown, width=100))
    text = console.file.getvalue()
    states = [line.split()[3] for line in text.splitlines() if "node-" in line]
    assert states == ["left", "leaving", "starting"]
    assert "nodes: 1 of 2 to 64" in text and "nodes 1 of 2 to 64" in plain_line(shown)


def of_policy(name, **more):
    experience = {"policy_lag/mean": 1.5, "policy_lag/max": 7.0, "replay/age/median": 12.0}
    return PolicyStatus(name=name, steps=600, updates=40, learning_rate=0.01, experience=experience, **more)


def test_every_policy_has_a_row_and_says_what_its_games_came_to():
    red = of_policy("red", mean_return=0.25, eval_return=0.5, eval_matches=(MatchStatus("others", "a", 3, 0, 1, 0.5),))
    blue = of_policy("blue", eval_matches=(MatchStatus("others", "b", 1, 0, 3, -0.5),))
    shown = status(policies=(red, blue))
    rows = [line.split() for line in drawn(shown, 100).splitlines()]
    assert ["│", "red", "600", "0.250", "0.500", "40", "1.5,", "max", "7", "12.0", "0.010", "│"] in rows
    assert ["│", "blue", "600", "-", "-", "40", "1.5,", "max", "7", "12.0", "0.010", "│"] in rows
    assert "wins against others" in drawn(shown, 100)
    assert "wins against others red 75%, blue 25%" in plain_line(shown)
    nobody_wins = tuple(of_policy(n, eval_matches=(MatchStatus("random", n, 0, 0, 0, 7.5),)) for n in ("red", "blue"))
    assert "return against random red 7.500, blue 7.500" in plain_line(status(policies=nobody_wins))
    assert "red" not in drawn(status(), 100), "a run of one policy has no rows of policies"


def crowded() -> Status:
    """A run of several policies with past versions, nodes and many roles."""
    versions = tuple(OpponentStatus(64 * n, 1.0, 0.5, policy="b") for n in range(9))
    policies = tuple(
        of_policy(
            name, tuned={"gamma": 0.97}, exploits=3, opponents=versions, losses={"entropy": 0.5},
            mean_return=value, eval_return=value + 1.8,
        )
        for name, value in zip("abcd", (13.4, 2.0, 3.0, 4.0), strict=True)
    )
    nodes = tuple(NodeStatus(name=f"node-{n}", host="amber", lanes=8, is_connected=True) for n in range(5))
    return status(policies=policies, nodes=nodes, roles=(*ROLES, RoleShare(name="evaluator", activities={}, busy=0.0)))


@pytest.mark.parametrize(("width", "height"), [(60, 14), (80, 23), (80, 50), (120, 30), (200, 49), (250, 59)])
@pytest.mark.parametrize("shown", [status(), crowded()], ids=["one", "crowded"])
def test_panels_fit_the_terminal_and_the_most_important_remain(shown, width, height):
    console = Console(width=width, file=io.StringIO())
    console.print(panels(shown, course([1.0, 2.0]), width, height))
    lines = console.file.getvalue().splitlines()
    assert len(lines) <= height and {len(line) for line in lines} == {width}
    text = "\n".join(lines)
    for words in ("96,256 of 200,000 steps", "limited by: rollout x2", "return", "13.4", "evaluation", "15.2"):
        assert words in text, words
    if height > 23:
        assert "learner" in text and "steps/s" in text


def test_a_legend_takes_no_second_line_in_a_small_terminal():
    evaluator = RoleShare(name="evaluator", activities={"wait for a request": 0.98}, busy=0.0)
    shown = status(roles=(RoleShare(name="rollout x2", activities={"env": 0.5}, busy=0.5), evaluator))
    for height in range(14, 24):
        console = Console(width=60, file=io.StringIO())
        console.print(panels(shown, course([1.0, 2.0]), 60, height))
        text = console.file.getvalue()
        assert len(text.splitlines()) <= height, height
    assert "wait for a request 98%" in text


@pytest.mark.parametrize("height", [9, 10, 13, 14])
def test_a_small_terminal_keeps_the_reason_whole_and_a_line_of_the_population(height):
    reason = "rollout workers wait 62% of their time for it"
    policies = tuple(of_policy(f"p{number}", mean_return=float(number), eval_return=15.2) for number in range(4))
    console = Console(width=60, file=io.StringIO())
    console.print(panels(status(limiting_reason=reason, policies=policies), course([1.0, 2.0]), 60, height, 2))
    text = console.file.getvalue()
    assert len(text.splitlines()) <= height and reason in text and "0.0 to 3.000 by p3" in text
    assert "return of p2" in text and ("15.2" in text or height < 10)
    assert height < 14 or ("p2" in text.partition("policies, 3 more hidden")[2])


def test_panels_side_by_side_are_as_wide_as_their_values_need():
    text = drawn(status(experience={"replay/rows": 1_234_567.0, "replay/fill": 0.45}, target_return=None), 80)
    assert "1,234,567 rows (45%)" in text and "1,204, 812.0 steps long" in text


def test_a_table_with_too_few_rows_shows_the_chosen_policy_and_lost_nodes():
    policies = tuple(of_policy(f"policy-{number}") for number in range(9))
    nodes = tuple(
        NodeStatus(name=f"node-{n}", host="amber", lanes=8, is_connected=n != 6, faults=int(n == 6)) for n in range(9)
    )
    console = Console(width=80, file=io.StringIO())
    console.print(panels(status(policies=policies, nodes=nodes, roles=()), (), 80, 22, 7))
    text = console.file.getvalue()
    assert "policy-7" in text and "policy-8" not in text and "policy-0" not in text
    assert "node-6" in text and "lost" in text and "node-8" not in text


def dots(line: str) -> set[int]:
    """Places of braille characters in a line."""
    return {place for place, letter in enumerate(line) if "\u2800" < letter <= "\u28ff"}


@pytest.mark.parametrize(("width", "height"), [(80, 30), (120, 39), (250, 59)])
def test_tall_terminals_have_a_chart_of_both_returns_over_steps(width, height):
    history = [(1_000 * n, -5.0 + n, None if n < 20 else 95.0) for n in range(41)]
    console = Console(width=width, file=io.StringIO())
    console.print(panels(status(), history, width, height))
    lines = console.file.getvalue().splitlines()
    begin = next(n for n, line in enumerate(lines) if "return over steps: evaluations, training (dotted)" in line)
    *chart, steps, _ = lines[begin + 1 :]
    assert "95.0" in chart[0] and "-5.000" in chart[-1] and re.search(r"steps 0 +20,000 +40,000", steps)
    assert chart[-1][min(dots(chart[-1]))] == "⡀", "the lowest dot of the first place"
    assert max(dots(chart[-1])) < width // 2, "training begins low and rises"
    assert width // 2 < min(dots(chart[0])) and max(dots(chart[0])) == width - 3, "evaluations begin in the middle"
    assert len(dots(chart[0])) == max(dots(chart[0])) - min(dots(chart[0])) + 1, "they are a solid line"
    trained = set().union(*map(dots, chart[1:]))
    assert 3 * len(trained) > width - 14 > len(trained)


def test_a_leap_of_the_chart_is_a_line():
    console = Console(width=100, file=io.StringIO())
    console.print(panels(status(), [(1_000 * n, None, float(n > 20)) for n in range(41)], 100, 39))
    *_, chart = console.file.getvalue().partition("return over steps")
    drawn_lines = [dots(line) for line in chart.splitlines() if dots(line)]
    assert len(drawn_lines) == chart.count("│") // 2 - 1 > 8 and {len(places) for places in drawn_lines[1:-1]} <= {1, 2}


@pytest.mark.parametrize(("width", "height"), [(60, 50), (80, 18)])
def test_a_small_terminal_has_no_chart(width, height):
    console = Console(width=width, file=io.StringIO())
    console.print(panels(status(), course([1.0, 2.0]), width, height))
    assert "over steps" not in console.file.getvalue()


def test_a_terminal_without_unicode_has_plain_lines():
    file = io.TextIOWrapper(io.BytesIO(), "latin-1")
    console = Console(file=file, force_terminal=True, _environ={"TERM": "xterm"})
    with open_view(console) as view:
        view.update(status())
    file.seek(0)
    assert isinstance(view, PlainView) and "96,256 steps (48%)" in file.read()


class Tty(io.StringIO):
    """Standard output that is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("environ", [{"TERM": "xterm-256color", "NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_no_color_means_no_colours_and_a_dumb_terminal_no_control_sequences(environ, monkeypatch):
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "stdout", Tty())
    with open_view() as view:
        view.update(crowded())
        view.event("restarted")
        view.close(status())
    text = sys.stdout.getvalue()
    looks = {int(code) for codes in re.findall(r"\x1b\[([0-9;]*)m", text) for code in codes.split(";") if code}
    assert "1,732" in text and looks <= {0, 1, 2}
    assert environ["TERM"] != "dumb" or "\x1b" not in text


def test_text_is_legible_on_white():
    console = Console(file=io.StringIO(), force_terminal=True, color_system="standard", width=100)
    console.print(panels(crowded(), (), 100))
    written = re.findall(r"\x1b\[([0-9;]*)m([^\x1b]*)", console.file.getvalue())
    words = {code for codes, text in written if re.search(r"\w", text) for code in codes.split(";")}
    assert not words & {"33", "37", "90", "93", "97"}, "no word is yellow, grey or white"


def test_labels_are_those_of_the_descriptions():
    text = drawn(status(experience={"constant_features": 0.25, "late_segments": 3.0, "own/number": 1.5}), 80)
    for label in ("const features ", "late segments", "own number"):
        assert label in text, label


def test_a_pane_says_how_many_of_its_rows_are_hidden():
    console = Console(width=80, file=io.StringIO())
    console.print(panels(crowded(), (), 80, 26))
    text = console.file.getvalue()
    hidden = re.search(r"nodes: .*, (\d) more hidden", text)
    assert hidden is not None and text.count("node-") == 5 - int(hidden[1])
    assert "past versions" not in text, "the least important pane is left out"


def test_policies_show_what_was_tuned_and_copied_and_losses_say_whose_they_are():
    rows = [line.split()[1:8] for line in drawn(crowded(), 80).splitlines()]
    assert ["policy", "steps", "return", "evaluation", "copies", "gamma", "updates"] in rows
    assert ["a", "600", "13.4", "15.2", "3", "0.970", "40"] in rows
    assert "entropy of a" in drawn(crowded(), 80) and "entropy of b" not in drawn(crowded(), 80)
    console = Console(width=80, file=io.StringIO())
    console.print(panels(crowded(), width=80, chosen=1))
    text = console.file.getvalue()
    places = [text.index(words) for words in ("return of b", "evaluation of b", "entropy of b", "episodes")]
    assert places == sorted(places), "losses of a policy follow its returns"
    assert "entropy of" not in drawn(status(losses={"entropy": 1.0}), 80)


def test_time_that_a_role_does_not_report_is_named():
    text = drawn(status(roles=(RoleShare(name="learner", activities={"learn": 0.2}, busy=0.2),)), 100)
    assert "learn 20%  other 80%" in text


def test_a_command_is_folded_before_its_flags_and_remains_the_same_command():
    command = "resume:   penstock resume runs/a-long-name --total-steps 24032 --max-seconds 100.5"
    lines = folded(command, 60).splitlines()
    assert lines == ["resume:   penstock resume runs/a-long-name \\", "    --total-steps 24032 --max-seconds 100.5"]
    words = [subprocess.check_output(["sh", "-c", f"printf '%s|' {each}"]) for each in (command, "\n".join(lines))]
    assert words[0] == words[1] and words[0].count(b"|") == 8, "a shell reads the same words"
    assert folded(command, 200) == command and folded("x" * 99, 60) == "x" * 99


class Shown:
    """Stand-in for IPython's display: what was shown, and what has taken its place since."""

    def __init__(self):
        self.pages = []

    def display(self, page, display_id):
        assert display_id
        self.pages.append([page])
        return SimpleNamespace(update=self.pages[-1].append)


def test_in_a_notebook_the_view_is_refreshed_in_place(monkeypatch):
    shown = Shown()
    monkeypatch.setitem(sys.modules, "IPython", ModuleType("IPython"))
    monkeypatch.setitem(sys.modules, "IPython.display", SimpleNamespace(HTML=str, display=shown.display))
    with open_view(ViewConsole(force_jupyter=True, file=io.StringIO())) as view:
        view.update(status(steps=1_000))
        view.close(status(steps=2_000))
    ((first, last),) = shown.pages
    assert first.startswith("<pre") and "1,000 of 200,000" in re.sub("<[^>]*>", "", first)
    assert last.startswith("<pre") and "2,000 of 200,000" in re.sub("<[^>]*>", "", last)


def test_a_quiet_training_shows_nothing_in_a_notebook():
    assert isinstance(open_view(ViewConsole(force_jupyter=True, quiet=True)), PlainView)


def test_a_run_shows_itself_with_its_curves(tmp_path):
    at = {"seconds": 1.0, "time": 1.0}
    lines = [{"steps": steps, **at, "episode/mean_return": steps / 2} for steps in (10, 20, 30)]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    page = run_html(status(env="<b>Walk</b>"), str(tmp_path))
    assert "&lt;b&gt;Walk" in page and "96,256 of 200,000" in page
    assert page.count("<polyline") == 1 and ">training<" in page and ">15" in page


def test_a_run_without_curves_shows_its_numbers_alone(tmp_path):
    assert "<svg" not in run_html(status(), str(tmp_path))
    assert "no directory" in run_html(status(), None)

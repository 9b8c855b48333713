"""Summary of rounds: medians, ratios, marks, and a Markdown table."""

from comparing.report import Measured, header, line, verdict

SLOW = Measured(
    "prioritized: add 1", 1_000_000, "us", {"penstock": [4.0, 90.0, 5.0], "cpprb": [17.5, 16.0, 18.0], "copy": [0.5]}, 4
)
FAST = Measured("writers: rows/s", 30_000, "/s", {"penstock": [600_000.0], "cpprb": [100_000.0]}, 5)
ALONE = Measured("uniform: sample 256", 500, "us", {"penstock": [12.34]}, 2)


def test_the_median_of_the_rounds_counts():
    assert SLOW.median("penstock") == 5.0
    assert SLOW.median("cpprb") == 17.5
    assert SLOW.median("torchrl") is None


def test_less_time_and_more_per_second_are_better():
    assert SLOW.ratio == 3.5
    assert FAST.ratio == 6.0


def test_a_mark_holds_misses_or_cannot_be_judged():
    assert (SLOW.met, FAST.met, ALONE.met) == (False, True, None)
    assert Measured("x", 1, "us", FAST.rounds).met is None


def test_the_distance_from_the_cost_of_copying_is_told():
    assert SLOW.copies == 10.0
    assert FAST.copies is None


def test_the_table_is_markdown_with_columns_that_stand_below_each_other():
    lines = [*header().splitlines(), line(SLOW), line(FAST), line(ALONE)]
    assert len({len(text) for text in lines}) == 1
    assert [cell.strip() for cell in lines[2].split("|")[1:-1]] == [
        "prioritized: add 1, us", "1M", "5.00", "17.5", "3.5x", "4x", "NO", "0.50", "10.0x", "-",
    ]  # fmt: skip
    assert [cell.strip() for cell in lines[3].split("|")[1:8]] == [
        "writers: rows/s", "30k", "600,000", "100,000", "6.0x", "5x", "yes",
    ]  # fmt: skip
    assert [cell.strip() for cell in lines[4].split("|")[2:8]] == ["500", "12.3", "-", "-", "2x", "-"]
    assert {position for position, sign in enumerate(lines[0]) if sign == "|"} == {
        position for position, sign in enumerate(lines[1]) if sign == "|"
    }


def test_the_verdict_counts_the_marks_and_names_the_missed():
    assert verdict([SLOW, FAST, ALONE]) == "1 of 2 marks hold\n  missed: prioritized: add 1 3.5x of 4x"


def test_everything_is_written_down():
    facts = SLOW.facts()
    assert facts["rounds"]["penstock"] == [4.0, 90.0, 5.0]
    assert (facts["medians"]["cpprb"], facts["ratio"], facts["met"], facts["copies"]) == (17.5, 3.5, False, 10.0)

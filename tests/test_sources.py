"""The sources of a mixed batch: their syntax, refusals, and proposals of legal ones."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.algorithms.impala import IMPALAConfig
from penstock.cli import main
from penstock.config import ConfigError, make_config
from penstock.config.sources import KINDS, parse_source, parse_sources


def impala(**settings):
    return make_config(IMPALAConfig, {"env": "CartPole-v1", "num_workers": 1, **settings})  # 16 segments in a batch


def refusal(*texts, batch=16):
    with pytest.raises(ConfigError) as refused:
        parse_sources(texts, batch)
    return str(refused.value)


def test_a_source_is_text_or_a_table():
    text = parse_source("elite:3/4, capacity=500, strategy=1, distance=kl, candidates=2")
    table = {"type": "elite", "share": 0.75, "capacity": 500, "strategy": 1, "distance": "kl", "candidates": 2.0}
    assert text == parse_source(table)
    assert (text.share, text.capacity, text.strategy, text.distance) == (Fraction(3, 4), 500, 1, "kl")
    assert parse_source(str(text)) == text, "what it is shown as can be read"
    config = impala(replay=["queue:1/4", {"type": "uniform", "share": "3/4", "capacity": 99}])
    assert config.replay == ("queue:1/4", "uniform:3/4,capacity=99")
    assert impala(replay="queue:1").replay == ("queue:1",)
    assert make_config(IMPALAConfig, config.to_json()) == config


@given(st.integers(2, 64), st.data())
def test_shares_of_whole_segments_are_taken_and_give_a_whole_batch(batch, data):
    fresh = data.draw(st.integers(1, batch - 1))
    sources = parse_sources([f"queue:{Fraction(fresh, batch)}", f"uniform:{Fraction(batch - fresh, batch)}"], batch)
    assert [source.share * batch for source in sources] == [fresh, batch - fresh]


@given(st.integers(2, 40), st.floats(0.01, 1.0), st.floats(0.01, 1.0))
def test_other_shares_are_refused_with_the_nearest_that_are_legal(batch, fresh, replayed):
    texts = [f"queue:{fresh!r}", f"uniform:{replayed!r}"]
    try:
        parse_sources(texts, batch)
    except ConfigError as refused:
        offered = str(refused).rpartition("shares are ")[2].split()
        legal = parse_sources(offered, batch)
        share = Fraction(repr(fresh)) / (Fraction(repr(fresh)) + Fraction(repr(replayed)))
        assert abs(legal[0].share - share) <= Fraction(1, batch)


def test_what_a_batch_cannot_be_a_mix_of_is_refused_by_name():
    told = refusal("queue:0.5", "uniform:0.4")
    assert "sum to 9/10 (queue:1/2 uniform:2/5): the nearest legal shares are queue:9/16 uniform:7/16" in told
    assert "not whole numbers of the 16 segments of a batch" in refusal("queue:0.3", "uniform:0.7")
    assert "use a larger batch_size" in refusal("queue:0.5", "uniform:0.5", batch=1)
    assert "no fresh segments (uniform:1)" in refusal("uniform:1")
    assert "'uniform' 2 times" in refusal("queue:0.5", "uniform:0.25", "uniform:0.25")
    assert "keeps capacity=7 segments, fewer than the 8 that each batch takes" in refusal(
        "queue:0.5", "uniform:0.5,capacity=7"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("queue", "write kind:share, such as uniform:0.5,capacity=1000"),
        ("unifrom:0.5", "no source 'unifrom'; did you mean 'uniform'"),
        ("uniform:0", "share '0': use a fraction above 0, at most 1"),
        ("uniform:half", "share 'half': use a fraction"),
        ("queue:1,capacity=3", "source 'queue' has no setting 'capacity' (none)"),
        ("uniform:0.5,capcity=3", "no setting 'capcity'; did you mean 'capacity'"),
        ("uniform:0.5,capacity=many", "uniform: capacity='many' is not legal"),
        ("uniform:0.5,min_size=2000", "has min_size=2000: it must be 1 or more, and at most capacity=1000"),
        ("elite:0.5,strategy=5", "elite: strategy=5 is not legal"),
        ("elite:0.5,distance=cosin", "did you mean 'cosine'"),
        ("attentive:0.5,candidates=0.5", "has candidates=0.5: it must be 1 or more"),
        ("attentive:0.5,strategy=1", "source 'attentive' has no setting 'strategy'"),
        ({"share": 0.5}, "a source needs a type"),
        ("elite:0.5,insertion=elite,candidates=1", "use more candidates, or insertion='oldest'"),
    ],
)
def test_a_source_that_cannot_be_read_says_what_would_be_legal(text, message):
    with pytest.raises(ConfigError) as refused:
        parse_source(text)
    assert message in str(refused.value)


def test_sources_that_would_fill_for_the_whole_run_are_refused():
    with pytest.raises(ConfigError, match="the sources of replay need 20000 steps to fill, but total_steps=15000"):
        impala(replay=["queue:1/2", "uniform:1/2,min_size=1000"], total_steps=15_000)


def test_every_kind_may_be_named():
    for kind in KINDS[1:]:
        assert impala(replay=["queue:1/2", f"{kind}:1/2"]).segments_from(parse_source(f"{kind}:1/2")) == 8


def test_the_command_line_reads_sources_and_names_what_is_wrong_with_them(capsys):
    assert main(["train", "impala", "--env", "CartPole-v1", "--replay", "queue:0.5", "elit:0.5"]) == 2
    assert "replay has no source 'elit'; did you mean 'elite'" in capsys.readouterr().err

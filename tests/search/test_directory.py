"""The directory of a search: one search, several processes."""

import subprocess

import pytest

from penstock.config import ConfigError
from penstock.search.directory import SearchDirectory

FACTS = {
    "algorithm": "appo", "flags": ["--env", "CartPole-v1"], "workers": 2, "seeds": 1,
    "config": {"env": "CartPole-v1", "gamma": 0.99, "hidden_sizes": (64, 64)},
    "space": {"learning_rate": {"low": 1e-5, "high": 1e-2, "log": True, "step": None}},
}  # fmt: skip


def test_a_search_is_found_again_with_what_was_decided_where_it_began(tmp_path):
    SearchDirectory.share(tmp_path / "s", FACTS)
    again = SearchDirectory.share(tmp_path / "s", {**FACTS, "workers": 1, "flags": ["--env=CartPole-v1"]})
    assert again.facts["workers"] == 2 and again.shared_flags == ["--num-workers", "2"]
    assert again.facts["flags"] == ["--env", "CartPole-v1"]
    assert SearchDirectory.open(tmp_path / "s").facts == again.facts


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"algorithm": "ppo"}, "algorithm is 'appo' there, but 'ppo' here"),
        ({"seeds": 3}, "seeds is 1 there, but 3 here"),
        ({"config": {**FACTS["config"], "gamma": 0.9}}, "gamma is 0.99 there, but 0.9 here"),
        ({"space": {}}, "space is {'learning_rate'"),
    ],
)
def test_another_search_in_the_same_place_is_refused(change, message, tmp_path):
    SearchDirectory.share(tmp_path / "s", FACTS)
    with pytest.raises(ConfigError) as caught:
        SearchDirectory.share(tmp_path / "s", {**FACTS, **change})
    assert message in str(caught.value) and "give another --dir" in str(caught.value)


def test_what_is_no_search_is_neither_taken_nor_changed(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ConfigError, match="is not empty, but holds no search"):
        SearchDirectory.share(tmp_path, FACTS)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]
    with pytest.raises(ConfigError, match="holds no search: give the --dir of one"):
        SearchDirectory.open(tmp_path)
    with pytest.raises(ConfigError, match="cannot be written"):
        SearchDirectory.share(tmp_path / "notes.txt" / "s", FACTS)


def test_a_trial_is_one_process_s_until_it_is_released(tmp_path):
    directory = SearchDirectory.share(tmp_path / "s", FACTS)
    hold = directory.take(3)
    assert hold is not None and directory.take(3) is None and directory.take(4) is not None
    assert not directory.is_ending(3)
    hold.release()
    assert not directory.is_ending(3) and directory.take(3) is not None


def test_a_trial_whose_training_outlives_its_search_is_about_to_end(tmp_path):
    directory = SearchDirectory.share(tmp_path / "s", FACTS)
    hold = directory.take(0)
    assert hold is not None
    with subprocess.Popen(["sleep", "600"], pass_fds=[hold.training]) as training:
        try:
            assert not directory.is_ending(0), "the search goes on"
            hold.release()
            assert directory.is_ending(0) and directory.take(0) is None
        finally:
            training.kill()
    assert not directory.is_ending(0) and directory.take(0) is not None

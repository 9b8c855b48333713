"""Many runs from Python: the same runs and numbers as the commands, as rows and on axes."""

import pytest

from penstock import studies
from penstock.studies import StudyError
from tests.studies.recorded import record


@pytest.fixture
def runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for seed in range(5):
        record(tmp_path / f"runs/ppo-{seed}", [(100, 1.0 + seed), (200, 11.0 + seed)], seed=seed, gamma=0.9)
    for seed in range(5):
        record(tmp_path / f"runs/dqn-{seed}", [(100, 3.0), (200, 5.0)], algorithm="dqn", seed=seed)


def test_a_row_of_a_run_has_its_state_its_score_and_its_settings(runs):
    rows = studies.run_table(where="algorithm=ppo")
    assert [row["seed"] for row in rows] == [0, 1, 2, 3, 4]
    assert (rows[0]["state"], rows[0]["eval_return"], rows[0]["gamma"]) == ("done", 11.0, 0.9)


def test_a_row_of_a_curve_is_one_point(runs):
    rows = studies.curve_table("runs", where="algorithm=ppo seed=2")
    points = [(row["steps"], row["evaluation/mean_return"], row["algorithm"]) for row in rows]
    assert points == [(100.0, 3.0, "ppo"), (200.0, 13.0, "ppo")]


@pytest.mark.parametrize(
    "places, by",
    [(["runs"], "algorithm"), ({"dqn": [f"runs/dqn-{seed}" for seed in range(5)], "ppo": ["runs/ppo-0"]}, "")],
)
def test_groups_are_those_given_or_made_by_a_setting(runs, places, by):
    found = studies.compare_runs(places, by=by, target=10)
    assert [row["group"] for row in found["scores"]] == ["dqn", "ppo"]
    assert found["scores"][0]["iqm"] == 5.0 and found["improvement"][0]["probability"] == 0.0
    assert [row["reached"] for row in found["targets"]] == [0, found["scores"][1]["n"]]


def test_one_group_cannot_be_compared(runs):
    with pytest.raises(StudyError, match="two groups are needed"):
        studies.compare_runs(["runs"])


def test_curves_are_drawn_on_axes_of_ones_own(runs):
    pyplot = pytest.importorskip("matplotlib.pyplot")
    figure, axes = pyplot.subplots()
    assert studies.plot_runs("runs", axes=axes) == {"CartPole-v1": axes}
    assert [line.get_label() for line in axes.get_lines()] == ["dqn (5)", "ppo (5)"]
    pyplot.close(figure)
    record("runs/other", [(100, 1.0)], env="Acrobot-v1")
    with pytest.raises(StudyError, match="1 axes are too few for the environments Acrobot-v1, CartPole-v1"):
        studies.plot_runs("runs", axes=[axes])


@pytest.mark.long
def test_runs_are_trained_as_by_the_command_and_skipped_the_second_time(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)

    def train():
        return studies.train_runs(
            "ppo", env="CartPole-v1", grid={"gamma": [0.9, 0.99]}, name="small", backend="serial", total_steps=128,
            num_workers=1, num_envs_per_worker=1, segment_length=64, batch_size=64, eval_interval=0,
        )  # fmt: skip

    assert [(row["state"], row["gamma"]) for row in train()] == [("done", 0.9), ("done", 0.99)]
    assert len(train()) == 2
    assert "2 runs, 2 are done already" in capfd.readouterr().out


def test_a_setting_that_is_not_legal_trains_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StudyError, match="give a list of values"):
        studies.train_runs("ppo", env="CartPole-v1", grid={"gamma": []})
    assert not (tmp_path / "runs").exists()

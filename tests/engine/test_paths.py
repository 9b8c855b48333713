"""Data paths: which one an algorithm has, what is refused, and one of one's own."""

import subprocess
import sys
import textwrap

import pytest

import penstock
from penstock.algorithms import ALGORITHMS, load_algorithm
from penstock.algorithms.impala import IMPALA
from penstock.bench import BenchError
from penstock.bench.data_paths import MeasuredMixture, measured_path
from penstock.cli import main
from penstock.config import ConfigError, make_config
from penstock.engine.groups.rank_learner import RANK_LEARNERS, SegmentRankLearner, require_rank_learner
from penstock.engine.nodes.transport import TRANSPORTS, StoredSegmentTransport, transport_class
from penstock.engine.paths import DATA_PATHS, DataPath, data_path, entry_of
from penstock.engine.paths.mixture import MixturePath
from penstock.engine.paths.segments import SegmentPath

SERIAL = {"env": "CartPole-v1", "backend": "serial", "num_workers": 1, "num_envs_per_worker": 4, "run_dir": None}


def with_path(path):
    return type("Own", (IMPALA,), {"data_path": path})


def test_every_algorithm_names_a_data_path_that_there_is():
    found = {name: load_algorithm(name).data_path for name in ALGORITHMS}
    by_a_setting = {"hindsight", "redistributed", "redistributed_replay"}
    assert set(found.values()) == set(DATA_PATHS) - by_a_setting
    assert [name for name, path in found.items() if path == "gradients"] == ["a3c"]
    for name in ALGORITHMS:
        assert issubclass(data_path(load_algorithm(name)), DataPath)


def test_a_data_path_may_be_given_by_its_class_or_by_its_place(tmp_path):
    own = type("OwnPath", (SegmentPath,), {})
    assert data_path(with_path(own)) is own
    assert data_path(with_path("penstock.engine.paths.segments:SegmentPath")) is SegmentPath


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("segmnts", "data_path='segmnts' is unknown; did you mean 'segments'"),
        (dict, "must be a subclass of penstock.engine.paths.DataPath, found the class dict"),
        (7, "must be a subclass of penstock.engine.paths.DataPath, found a int"),
    ],
)
def test_what_is_no_data_path_is_refused_by_name(path, message):
    with pytest.raises(ConfigError, match=message.replace("(", "\\(")):
        penstock.Trainer(with_path(path), **SERIAL)


def test_a_data_path_has_the_entries_of_its_nearest_base_class_until_it_has_its_own(monkeypatch):
    own = type("OwnPath", (type("Between", (MixturePath,), {}),), {})
    algorithm = with_path(own)
    assert measured_path(algorithm) is MeasuredMixture and transport_class(own) is StoredSegmentTransport
    assert entry_of(RANK_LEARNERS, own) is SegmentRankLearner
    monkeypatch.setitem(TRANSPORTS, own, "it stays where it is")
    assert transport_class(own) == "it stays where it is"


def test_nothing_but_a_run_is_promised_of_a_data_path_that_derives_from_no_other():
    algorithm = with_path(type("OwnPath", (DataPath,), {}))
    with pytest.raises(ConfigError, match="own cannot use num_learners=2: its learner cannot share its batches"):
        require_rank_learner(algorithm, make_config(IMPALA.Config, {**SERIAL, "backend": "local", "num_learners": 2}))
    assert "cannot be sent between machines" in transport_class(algorithm.data_path)
    with pytest.raises(BenchError, match=r"data path of own cannot be measured: add its class to .*MEASURED"):
        measured_path(algorithm).rehearsal(None, algorithm)


def test_no_data_path_needs_torch_to_be_there():
    """They travel to rollout workers, which have none where a policy worker chooses actions."""
    modules = [target.partition(":")[0] for target in DATA_PATHS.values()]
    script = f"import sys, {', '.join(modules)}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


OWN = textwrap.dedent(
    """
    from penstock.algorithms.impala import IMPALA
    from penstock.engine.paths.segments import SegmentPath
    from penstock.engine.paths.segment_learner import SegmentLearner

    class Twice(SegmentLearner):
        batches = 0

        def learn(self, batch):
            self.batches += 1
            super().learn(batch)
            return super().learn(batch)

        def experience(self):
            return {**super().experience(), "own/batches": self.batches}

    class TwicePath(SegmentPath):
        def learner(self, arena, algorithm, *others):
            return Twice(algorithm, arena, *others)

    class Own(IMPALA):
        data_path = TwicePath
    """
)


@pytest.mark.usefixtures("kept_launcher")
@pytest.mark.timeout(120)
def test_one_of_ones_own_runs_in_processes_and_its_numbers_are_shown_and_logged(tmp_path, monkeypatch):
    (tmp_path / "own.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    flags = "--env CartPole-v1 --num-workers 1 --total-steps 2000 --eval-interval 0 --inference central --run-dir run"
    assert main(["train", "own.py:Own", *flags.split()]) == 0
    logged = (tmp_path / "run" / "metrics.jsonl").read_text()
    assert '"own/batches"' in logged and '"policy_lag/mean"' in logged

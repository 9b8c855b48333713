"""Every example runs as a script, prints what it promises, and writes nothing beside itself."""

import re
from pathlib import Path

import pytest

from tests.scripts import run_script

EXAMPLES = Path(__file__).parents[1] / "examples"

SHORT_RUNS = {
    "custom_environment.py": (["2000"], r"after:  mean return +\S+, +\d+ steps to the pier"),
    "custom_network.py": (["2000"], r"trained for 2,048 steps\nit balanced the pole for \d+ steps"),
    "custom_data_path.py": (["3000"], r"mean return \S+ after \S+ steps \((steps|target)\), \d+ batches kept"),
    "custom_algorithm.py": (["30000"], r"mean return \S+ after \S+ steps \((steps|target)\)"),
    "hindsight.py": (["1500"], r"hindsight=None: success rate \S+\nhindsight=future: success rate \S+"),
    "memory.py": (["1000"], r"memory=none: mean return \S+\nmemory=gru: mean return \S+"),
    "custom_replay_algorithm.py": (["1500"], r"mean return \S+ after 1,5\d\d steps \(steps\)"),
    "apex_replay.py": (["100"], r"explorer 0 died after .*\n100 updates on [\d,]+ rows: mean return \d+\.\d"),
    "ray_trainable.py": (["2000", "1"], r"best: mean return \S+ with learning rate \S+"),
    "external_pbt.py": (["1000", "2"], r"round 1: .*\nround 2: .*"),
    "replayed_schedule.py": (["1500"], r"from step .* clip_range=\S+\nrepeated with another seed: mean return \S+"),
    "outside_loop.py": (["1000", "2"], r"round 1: .*\nround 2: .*"),
}

NEEDS = {"ray_trainable.py": "ray.tune"}
"""What is not installed for tests (plain ray has no tune); `tests/search/test_ray_trainable.py` has a stand-in."""


def test_no_example_is_forgotten_here():
    assert sorted(SHORT_RUNS) == sorted(path.name for path in EXAMPLES.glob("*.py"))


@pytest.mark.long
@pytest.mark.timeout(120)
@pytest.mark.usefixtures("kept_launcher")
@pytest.mark.parametrize("name", SHORT_RUNS)
def test_the_example_runs_and_ends_with_what_it_has_to_tell(name, tmp_path):
    if name in NEEDS:
        pytest.importorskip(NEEDS[name], exc_type=ImportError)
    arguments, last_words = SHORT_RUNS[name]
    printed = run_script(EXAMPLES / name, *arguments, folder=tmp_path)
    assert re.search(f"{last_words}\\s*$", printed), printed
    assert not list(tmp_path.iterdir())

"""The cores of a run are those that it may run on, as far as it gets their time."""

import pytest

from penstock.ipc import available_cores, whole_cores
from penstock.ipc.cores import cpu_quota


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({"cpu.max": "150000 100000\n"}, 1.5),
        ({"cpu.max": "max 100000\n"}, None),
        ({"cpu/cpu.cfs_quota_us": "50000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 0.5),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, None),
        ({}, None),
    ],
)
def test_the_quota_of_a_container_is_read_from_its_cgroup(tmp_path, files, cores):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert cpu_quota(tmp_path) == cores


@pytest.mark.parametrize(("quota", "available"), [(None, 4.0), (1.5, 1.5), (8.0, 4.0), (0.5, 0.5)])
def test_the_lesser_of_affinity_and_quota_is_what_a_run_has(monkeypatch, quota, available):
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0, 1, 2, 3})
    monkeypatch.setattr("penstock.ipc.cores.cpu_quota", lambda: quota)
    assert available_cores() == available
    assert whole_cores() == max(1, available // 1)

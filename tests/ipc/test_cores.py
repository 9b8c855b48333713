"""The cores of a run are those that it may run on, as far as it gets their time."""

import pytest

from penstock.ipc import available_cores, whole_cores
from penstock.ipc.limits import cpu_quota
from tests.ipc.machines import kernel


@pytest.mark.parametrize(
    ("membership", "files", "cores"),
    [
        ("0::/", {"cpu.max": "150000 100000"}, 1.5),
        ("0::/", {"cpu.max": "max 100000"}, None),
        ("4:cpu,cpuacct:/", {"cpu/cpu.cfs_quota_us": "50000", "cpu/cpu.cfs_period_us": "100000"}, 0.5),
        ("4:cpu,cpuacct:/", {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, None),
        ("0::/docker/0123", {"cpu.max": "150000 100000"}, 1.5),
        ("0::/", {}, None),
    ],
    ids=["version 2", "no limit", "version 1", "no limit of version 1", "a container's own as root", "no files"],
)
def test_the_quota_of_a_container_is_read_from_its_cgroup(tmp_path, membership, files, cores):
    assert cpu_quota(**kernel(tmp_path, membership, files)) == cores


@pytest.mark.parametrize(("outer", "inner"), [("200000 100000", "max 100000"), ("400000 100000", "100000 50000")])
def test_the_tightest_of_nested_quotas_counts(tmp_path, outer, inner):
    files = {"a/cpu.max": outer, "a/b/cpu.max": inner}
    assert cpu_quota(**kernel(tmp_path, "0::/a/b", files)) == 2.0


def test_without_proc_there_is_no_quota(tmp_path):
    assert cpu_quota(proc=tmp_path, cgroup=tmp_path) is None


@pytest.mark.parametrize(("quota", "available"), [(None, 4.0), (1.5, 1.5), (8.0, 4.0), (0.5, 0.5)])
def test_the_lesser_of_affinity_and_quota_is_what_a_run_has(monkeypatch, quota, available):
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0, 1, 2, 3})
    monkeypatch.setattr("penstock.ipc.limits.cpu_quota", lambda: quota)
    assert available_cores() == available
    assert whole_cores() == max(1, available // 1)

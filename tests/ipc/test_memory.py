"""Memory is asked for before it is taken, within the machine's and the containers' limits."""

from pathlib import Path

import pytest

from penstock.ipc import available_memory, require_memory
from tests.ipc.machines import GIB, kernel


def test_without_limits_all_that_the_machine_has_is_available(tmp_path: Path) -> None:
    files = {"memory.max": "max", "memory.current": GIB}
    assert available_memory(**kernel(tmp_path, "0::/", files)) == 8 * GIB


def test_a_version_2_limit_leaves_what_is_not_used(tmp_path: Path) -> None:
    files = {"a/memory.max": 3 * GIB, "a/memory.current": GIB}
    assert available_memory(**kernel(tmp_path, "0::/a", files)) == 2 * GIB


def test_file_cache_that_can_be_dropped_is_not_counted_as_used(tmp_path: Path) -> None:
    files = {
        "a/memory.max": 3 * GIB,
        "a/memory.current": 2 * GIB,
        "a/memory.stat": f"anon {GIB}\ninactive_file {GIB // 2}\nactive_file 0",
    }
    assert available_memory(**kernel(tmp_path, "0::/a", files)) == 3 * GIB // 2


def test_the_tightest_of_nested_limits_counts(tmp_path: Path) -> None:
    files = {
        "a/b/memory.max": "max",
        "a/b/memory.current": 0,
        "a/memory.max": 2 * GIB,
        "a/memory.current": 2 * GIB - 100,
    }
    assert available_memory(**kernel(tmp_path, "0::/a/b", files)) == 100


def test_a_version_1_limit_leaves_what_is_not_used(tmp_path: Path) -> None:
    files = {
        "memory/box/memory.limit_in_bytes": 4 * GIB,
        "memory/box/memory.usage_in_bytes": 3 * GIB,
        "memory/box/memory.stat": f"inactive_file 5\ntotal_inactive_file {GIB // 4}",
    }
    assert available_memory(**kernel(tmp_path, "4:memory:/box", files)) == GIB + GIB // 4


def test_a_container_sees_its_own_cgroup_as_the_root(tmp_path: Path) -> None:
    files = {"memory.max": GIB, "memory.current": GIB + 1}
    assert available_memory(**kernel(tmp_path, "0::/docker/0123", files)) == 0


def test_this_machine_has_memory() -> None:
    assert available_memory() > 2**20
    require_memory(1, "one byte")


def test_too_much_is_refused_with_the_arithmetic_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.ipc.limits.available_memory", lambda: 100 * 2**20)
    require_memory(100 * 2**20, "the arena")
    with pytest.raises(MemoryError) as caught:
        require_memory(150 * 2**20, "the arena (300 slots of 512.0 KiB)")
    message = str(caught.value)
    assert message.startswith("the arena (300 slots of 512.0 KiB) needs 150.0 MiB, but only 100.0 MiB are available")
    assert "50.0 MiB too little" in message

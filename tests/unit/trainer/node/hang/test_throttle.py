"""A CPU limit that throttles a rank is read from its cgroup, or from one above it, in both versions of cgroups."""

import pytest

from trainer.node.ending.rank_lives import Life
from trainer.node.hang import throttle

LIFE = Life(rank=1, local_rank=0, attempt=0, world=3, pid=14, began=90.0)


class Kernel:
    """/proc and /sys of one process, with a limit of a tenth of a CPU on the cgroup `limited`."""

    def __init__(self, root, version, limited, seen):
        self.folder = root / "sys/fs/cgroup" / ("cpu,cpuacct" if version == 1 else "") / limited
        (root / "proc/14").mkdir(parents=True)
        (root / "proc/14/cgroup").write_text(f"3:cpu,cpuacct:{seen}\n0::/\n" if version == 1 else f"0::{seen}\n")
        self.folder.mkdir(parents=True, exist_ok=True)
        if version == 1:
            (root / "sys/fs/cgroup/cpu").symlink_to("cpu,cpuacct")
            (self.folder / "cpu.cfs_quota_us").write_text("10000\n")
            (self.folder / "cpu.cfs_period_us").write_text("100000\n")
        else:
            (self.folder / "cpu.max").write_text("10000 100000\n")

    def counts(self, periods, held):
        (self.folder / "cpu.stat").write_text(f"nr_periods {periods}\nnr_throttled {held}\nthrottled_usec 7\n")


@pytest.fixture
def told(monkeypatch):
    """Return a function that returns the reports after looks at (periods, throttled periods, perhaps a new limit)."""

    def looks(kernel, root, counts):
        found, news = throttle.Throttle(root), []
        for at, (periods, held, *limit) in enumerate(counts):
            kernel.counts(periods, held)
            if limit:
                (kernel.folder / "cpu.max").write_text(*limit)
            monkeypatch.setattr(throttle.time, "monotonic", lambda at=at: 100.0 + 2 * at)
            news += [(rank, about["percent"], about["cpus"]) for rank, about in found.look([LIFE])]
        return news

    return looks


@pytest.mark.parametrize(("version", "limited", "seen"), [
    (1, "jobs", "/jobs"), (2, "jobs", "/jobs"), (2, "jobs", "/jobs/step-1"), (1, "", "/docker/3f"), (2, "", "/"),
])  # fmt: skip
def test_a_rank_is_reported_once_it_is_throttled_and_once_it_no_longer_is(tmp_path, told, version, limited, seen):
    kernel = Kernel(tmp_path, version, limited, seen)
    held = [(20 * n, 19 * n) for n in range(8)]
    free = [(140 + 20 * n, 133) for n in range(1, 9)]
    assert told(kernel, tmp_path, [*held, *free]) == [(1, 95, 0.1), (1, 0, 0.1)]


def test_a_rank_that_seldom_meets_its_limit_or_hardly_runs_is_not_reported(tmp_path, told):
    kernel = Kernel(tmp_path, 2, "jobs", "/jobs")
    assert told(kernel, tmp_path, [(20 * n, 4 * n) for n in range(12)]) == []
    assert told(kernel, tmp_path, [(2 * n, 2 * n) for n in range(8)]) == []


def test_throttling_is_measured_over_the_whole_time_up_to_the_last_look(tmp_path, told):
    kernel = Kernel(tmp_path, 2, "jobs", "/jobs")
    assert told(kernel, tmp_path, [(20 * n, max(0, 20 * (n - 3))) for n in range(6)]) == [(1, 40, 0.1)]


def test_a_limit_that_was_just_changed_is_judged_only_by_later_looks(tmp_path, told):
    kernel = Kernel(tmp_path, 2, "jobs", "/jobs")
    looks = [(20 * n, 19 * n) for n in range(5)]
    assert told(kernel, tmp_path, [*looks, (100, 95, "20000 100000")]) == []

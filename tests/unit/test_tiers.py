"""`make test` runs the same tests each day, and lists what it leaves to `make test-all`."""

from dataclasses import dataclass

from tests import tiers


@dataclass(frozen=True)
class Item:
    """The parts of a test that a tier looks at."""

    nodeid: str
    marks: tuple[str, ...] = ()

    def get_closest_marker(self, name):
        return name if name in self.marks else None


FIRST = [Item("tests/cluster/test_a.py::test_1"), Item("tests/dist/test_c.py::test_1[a]")]
MORE = [Item("tests/cluster/test_a.py::test_2"), Item("tests/dist/test_c.py::test_1[b]")]
PROMISE = Item("tests/cluster/test_a.py::test_claim", ("holds",))
SHORT = [Item("tests/unit/test_d.py::test_1"), Item("tests/unit/test_d.py::test_2")]


def test_in_long_files_the_first_test_and_each_promise_run_every_day():
    assert tiers.left_out([PROMISE, *FIRST, *MORE, *SHORT]) == MORE


def test_in_files_that_take_minutes_only_the_first_test_runs_or_none():
    first, promise = (Item(f"{tiers.FIRST_ALONE[0]}::test_{name}", ("holds",)) for name in ("1", "2"))
    heavy = Item(f"{tiers.HEAVY[0]}::test_1", ("holds",))
    assert tiers.left_out([first, promise, heavy]) == [promise, heavy]


def test_tests_that_are_left_out_are_reported():
    assert tiers.lines({}) == []
    first, row = tiers.lines({"tests/dist/test_c.py": 5})
    assert "make test-all" in first
    assert row == "tests/dist/test_c.py: 5"

"""The long tests take turns, and none is forgotten."""

from dataclasses import dataclass

from tests import draw

DAYS = [f"2026-12-{day}" for day in range(27, 32)] + [f"2027-01-0{day}" for day in range(1, 6)]


@dataclass(frozen=True)
class Item:
    """What a draw looks at of a test."""

    nodeid: str
    marks: tuple[str, ...] = ()

    def get_closest_marker(self, name):
        return name if name in self.marks else None


FILES = ("tests/cluster/test_a.py", "tests/cluster/test_b.py", "tests/dist/test_c.py")
LONG = [Item(f"{file}::test_{number}[a-{number}]") for file in FILES for number in range(9)]
OTHERS = [Item("tests/unit/test_d.py::test_1"), Item("tests/cluster/test_a.py::test_claim", ("holds",))]


def ran(day, items):
    return set(items) - set(draw.left_out(items, day))


def test_each_long_test_has_its_turn_on_one_of_the_days_and_the_others_run_every_day():
    turns = [ran(day, [*LONG, *OTHERS]) for day in DAYS]
    assert len(DAYS) == draw.SHARES
    for item in LONG:
        assert sum(item in turn for turn in turns) == 1
    assert all(set(OTHERS) <= turn for turn in turns)
    assert all(1 <= len(turn & set(LONG)) <= 3 for turn in turns)


def test_all_are_asked_for_by_name_and_what_waits_is_said():
    assert ran("all", LONG) == set(LONG)
    assert draw.lines(DAYS[0], {}) == []
    first, *rows = draw.lines(DAYS[0], {"tests/dist/test_c.py": 5})
    assert "5 long tests" in first
    assert "DRAW=all" in first
    assert rows == ["tests/dist/test_c.py: 5"]

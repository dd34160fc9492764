"""The list that `muster clean` prints: columns that fit a terminal, and each name as the user types it."""

import io

from rich.console import Console as RichConsole

from deploy.host.leftovers import Leftover
from deploy.hosts.act import clean
from deploy.report.console import THEME, Console


def test_a_list_has_columns_and_shows_the_beginning_of_a_folders_digest():
    out = RichConsole(file=io.StringIO(), theme=THEME, width=80)
    things = [Leftover("folders", "d3" * 32, 180, 25_000, True), Leftover("runs", "r1", None, None, False)]
    clean._show({"gpu-a": things, "gpu-b": []}, Console(out=out, err=out))
    assert out.file.getvalue().splitlines() == [
        "gpu-a   runs      r1              unknown age   unknown size",
        "gpu-a   folders   d3d3d3d3d3d3…   3 min 00 s    25 kB          in use",
        "gpu-a: 2 items, 25 kB",
        "gpu-b: nothing",
        "hint: to remove some of it, add to this command: --runs ID; it asks first",
    ]


def test_the_list_ends_with_the_options_that_remove_the_most_first():
    """After a full disk, it had listed what takes space without a word on how to remove it."""
    kinds = {"runs": 5e9, "images": 9e9, "caches": 1e9, "data": 2e9, "elsewhere": 7e9}
    things = [Leftover(kind, "x", 1, int(size), False) for kind, size in kinds.items()]
    out = RichConsole(file=io.StringIO(), theme=THEME, width=200)
    clean._show({"gpu-a": [*things, Leftover("packages", "x", 1, 10, True)]}, Console(out=out, err=out))
    adds = "--images (9.0 GB), --runs ID (5.0 GB), --data ID (2.0 GB), --caches (1.0 GB)"
    assert f"hint: to remove some of it, add to this command: {adds}; it asks first" in out.file.getvalue()

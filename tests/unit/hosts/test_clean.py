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
    ]

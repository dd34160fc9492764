"""Every mesh in the table of docs/how-to/which-mesh.md trains, with the same losses as the others."""

import re
import shlex

import pytest

from lab.waiting import losses
from tests.dist.conftest import HOME
from tests.dist.test_meshes import case, finish, start

OFFERED = re.findall(
    r"`torchrun --nproc-per-node 4 -m muster.trainer ([^`]+)`", (HOME / "docs/how-to/which-mesh.md").read_text()
)


def test_each_mesh_of_the_page_trains_with_the_losses_of_the_others(tmp_path):
    assert len(OFFERED) >= 5
    small = ("--batch", 4, "--log-every", 1, "--eval-every", 0)
    finish(start(4, *(case(tmp_path / words, *shlex.split(words), *small, stop_after=2) for words in OFFERED)))
    first, *others = [losses(tmp_path / words) for words in OFFERED]
    assert len(first) == 3
    assert all(other == pytest.approx(first, rel=1e-5) for other in others)

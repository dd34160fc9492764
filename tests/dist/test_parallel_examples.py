"""The examples of pipeline and context parallelism have the same losses as one process."""

import re
import subprocess
import sys

import pytest

from lab.ports import free_port
from tests.dist.conftest import HOME, environment


def started(name, world):
    command = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={world}"]
    command += [f"--master-port={free_port()}", str(HOME / "examples" / "parallel" / name)]
    return subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize(("name", "world"), [("pipeline.py", 3), ("context.py", 2)])
def test_an_example_has_the_losses_of_one_process(name, world):
    both = [started(name, count) for count in (1, world)]
    alone, together = (
        [float(loss) for loss in re.findall(r"loss (\S+)", run.communicate(timeout=90)[0])] for run in both
    )
    assert len(alone) == 3
    assert together == pytest.approx(alone, rel=1e-5)
    assert alone[2] < 0.95 * alone[0]

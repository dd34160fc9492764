"""Programs that run next to a node's agent, in a container that this or an older release of Muster started."""

import os
import subprocess

import pytest

from deploy.host import commands


@pytest.mark.long
@pytest.mark.parametrize("agent", ["trainer", "muster/trainer"])
def test_a_node_program_is_found_in_containers_of_this_and_of_older_releases(tmp_path, agent):
    for package in ("muster", agent, f"{agent}/node"):
        (tmp_path / package).mkdir(exist_ok=True)
        (tmp_path / package / "__init__.py").touch()
    older, words = agent == "trainer", ["one word", "-x"]
    program = tmp_path / agent / "node" / ("why.py" if older else "__main__.py")
    program.write_text("import sys; print(__name__, sys.argv[1:])")
    # A folder `trainer` in the host's login folder, or in a folder of the user's, must not be used.
    (tmp_path / "work/trainer").mkdir(parents=True)
    done = subprocess.run(
        commands.node_program("why", *words), cwd=tmp_path / "work", capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )  # fmt: skip
    assert done.stdout == f"__main__ {words if older else ['why', *words]}\n", done.stderr

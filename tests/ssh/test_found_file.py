"""A cluster.toml in a cloned folder and a real SSH server: Muster does not even connect before the user says yes."""

import os
import subprocess
import sys

import pytest

from deploy.core.errors import USAGE
from tests.hostile.conftest import CHECKOUT, PROGRAM
from tests.hostile.terminal import at_terminal


@pytest.mark.holds("folder-asks")
def test_a_host_in_a_found_cluster_toml_hears_nothing_before_a_yes(server, client, tmp_path):
    there, folder = server("LogLevel VERBOSE"), tmp_path / "clone"
    log = there.folder / "log"
    folder.mkdir()
    (folder / "cluster.toml").write_text(
        f'[[hosts]]\nname = "a"\naddress = "127.0.0.1"\nport = {there.port}\n[job]\nsecrets = ["HUSH"]\n'
    )
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT), "HUSH": "sesame-4711", "HOME": str(tmp_path / "home")}
    environment |= {"MUSTER_TEST_PEAK": str(tmp_path / "peak"), "XDG_CONFIG_HOME": str(tmp_path / "config")}
    line = [sys.executable, "-c", PROGRAM, "status"]
    refused = subprocess.run(line, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert refused.returncode == USAGE
    assert f"host a at 127.0.0.1:{there.port}" in refused.stderr
    assert "secret HUSH from this shell" in refused.stderr
    no = at_terminal(line, folder, environment, ["n"])
    assert (no.code, no.questions) == (USAGE, 1)
    assert log.read_text().count("Connection from") <= 1, "that of the fixture, which waits for the server"
    yes = at_terminal(line, folder, environment, ["y"])
    assert "Accepted publickey" in log.read_text()
    assert "secret HUSH from this shell" in yes.screen
    assert "sesame" not in refused.stderr + no.screen + yes.screen

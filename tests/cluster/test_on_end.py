"""--on-end and --max-hours on the rack, after the command that started the run has ended."""

import pytest

from lab import waiting
from tests.cluster.control import Control

COMMAND = 'echo "$MUSTER_END $MUSTER_EXIT_CODE $TOKEN" >>ended'


@pytest.fixture
def control(rack):
    made = Control(rack)
    yield made
    made.clean()


def told(control):
    """What the --on-end command wrote, on all hosts."""
    look = f"cd ~/.muster/runs/{control.run}/work && cat ended 2>/dev/null; true"
    return [line for host in control.hosts for line in control.rack.on(host, look).splitlines()]


def witnesses(control):
    look = f"docker ps --all --quiet --filter label=muster.end={control.run}"
    return [line for host in control.hosts for line in control.rack.on(host, look).split()]


@pytest.mark.holds("witness-leaves")
def test_the_first_live_host_runs_on_end_once_for_a_killed_run_with_its_secrets(control, tmp_path):
    (tmp_path / "train.py").write_text("import time\ntime.sleep(600)\n")
    control.environment["TOKEN"] = "secret-of-the-test"
    options = ("--secret", "TOKEN", "--on-end", COMMAND, "--separate", "--detach")
    done = control.deploy("--folder", str(tmp_path), "--script", "train.py", *options)
    assert done.returncode == 0, done.stderr
    first = control.hosts[0]
    assert len(witnesses(control)) == 2
    # The first host has no witness any more: the second one has to act.
    control.rack.on(first, f"docker ps -q --filter label=muster.end={control.run} | xargs docker kill")
    assert control.fab("stop", "--run", control.run, "--now").returncode == 0
    waiting.until(lambda: told(control), "the end")
    waiting.until(lambda: not witnesses(control), "the witness to leave")
    assert told(control) == ["killed 137 secret-of-the-test"]
    assert not control.rack.on(first, f"ls ~/.muster/runs/{control.run}/work | grep ended; true")


def test_a_run_stops_at_its_limit_and_says_so(control, tmp_path):
    (tmp_path / "train.py").write_text("import time\ntime.sleep(600)\n")
    options = ("--max-hours", "0.002", "--on-end", COMMAND, "--separate")
    done = control.deploy("--folder", str(tmp_path), "--script", "train.py", *options)
    assert done.returncode == 75, done.stderr
    assert control.outcome()["message"] == "train.py reached its limit of 0.002 h (--max-hours)"
    waiting.until(lambda: told(control), "the end")
    assert [line.strip() for line in told(control)] == ["max-hours 75"]

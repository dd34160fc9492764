"""`muster up` on a Mac that Linux imitates (tests/mac/machine.py): it trains, restarts, stops, and leaves nothing."""

import json
import os
import signal

import pytest

from lab.waiting import lines, until
from tests.mac import machine

pytestmark = pytest.mark.torch
SCRIPT = """
import os, signal, sys, time, torch
if sys.argv[1] == "deaf":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("on", sys.platform, flush=True)
torch.distributed.init_process_group("gloo")
for step in range(int(sys.argv[2])):
    torch.distributed.all_reduce(torch.ones(1))
    print("step", step, flush=True)
    if sys.argv[1] == "dies" and step == 3 and os.environ["RANK"] + os.environ["TORCHELASTIC_RESTART_COUNT"] == "10":
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0.1)
"""


@pytest.fixture(scope="module")
def mac():
    if os.getuid():
        pytest.skip("a Mac is played by root: it mounts and renames")
    with machine.started() as made:
        (made.home / "train.py").write_text(SCRIPT)
        yield made


def up(mac, run, words, *more):
    """Start `muster up` on two nodes, and wait until both ranks have made steps."""
    started = mac.start(mac.muster, "up", "--workers", 1, "--run", run, *more, "--script", f"train.py {words}")
    logs = [mac.home / "runs" / run / "logs" / f"rank-{rank}.log" for rank in (0, 1)]
    until(lambda: all(log.exists() and "step 2" in log.read_text() for log in logs), "steps of both ranks")
    return started


def test_two_nodes_finish_despite_a_killed_rank_and_each_command_shows_the_run(mac):
    assert len(machine.TEMPORARY) == len("/var/folders/zz/zyxvpxvq6csfxvn_n0000000000000/T/")
    _, err = (run := up(mac, "whole", "dies 12", "--restarts", 2)).communicate(timeout=120)
    assert run.returncode == 0, err
    folder = mac.home / "runs" / "whole"
    assert json.loads((folder / "outcome.json").read_text())["verdict"] == "done"
    log = (folder / "logs" / "rank-1.log").read_text()
    assert (log.count("on darwin"), log.count("step 2\n")) == (2, 2)
    measured = lines(folder / "telemetry" / "master.jsonl")
    assert measured
    assert not any("cpu_percent" in line for line in measured), "nobody can say it there"
    for command in ("status", "runs", "why --run whole", "logs --run whole", "fetch --run whole"):
        done = mac.run(mac.muster, *command.split())
        assert done.returncode == 0, f"{command}: {done.stderr}"
    assert "SIGKILL" in mac.run(mac.muster, "explain", "whole").stdout
    refused = mac.run(mac.muster, "preflight", "--backend", "processes")
    assert refused.returncode
    assert "Linux" in refused.stderr
    assert "Traceback" not in refused.stderr
    assert mac.left() == []


def test_ctrl_c_leaves_nothing(mac):
    run = up(mac, "stopped", "ends 9999")
    run.send_signal(signal.SIGINT)
    run.communicate(timeout=60)
    assert run.returncode == 75
    until(lambda: mac.left() == [], "the end of all", 30)


def test_a_killed_command_leaves_no_rank_that_ignores_sigterm(mac):
    run = up(mac, "deaf", "deaf 9999", "--grace", "1s")
    run.kill()
    until(lambda: mac.left() == [], "the end of all", 60)


def test_orphans_of_killed_agents_end_without_help_from_the_kernel(mac):
    run = up(mac, "agents", "ends 9999")
    doomed = [process for process in mac.left() if "agent" in process.cmdline()]
    assert len(doomed) == 2
    for process in (run, *doomed):
        process.kill()
    until(lambda: mac.left() == [], "the end of all", 60)

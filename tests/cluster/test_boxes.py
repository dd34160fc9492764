"""Rented boxes without an engine: the same runs, views and ends as on hosts with an engine, and no leftovers."""

import signal
import subprocess

import pytest

from lab.waiting import until
from tests.cluster import boxes as rented
from tests.cluster.control import FAB, QUIET
from tests.cluster.test_bootstrap import bare_image  # noqa: F401

TRAIN = """
import os, time, torch, torch.distributed as dist
dist.init_process_group("gloo")
x = torch.ones(1)
dist.all_reduce(x)
print("rank", dist.get_rank(), "sum", x.item(), flush=True)
with open("result.txt", "a") as file:
    file.write("done\\n")
if os.environ.get("FAIL_ONCE") and dist.get_rank() == 0 and not os.path.exists("failed"):
    open("failed", "w").close()
    raise SystemExit("fails once")
dist.barrier()
"""
# This script holds everything that could outlive it: a child in its own session, shared memory, a port.
FOREVER = """
import os, socket, subprocess, time, torch, torch.distributed as dist
dist.init_process_group("gloo")
subprocess.Popen(["sleep", "7777"], start_new_session=True, env={})
shared = torch.ones(1000).share_memory_()
torch.multiprocessing.set_sharing_strategy("file_system")
named = torch.ones(1000).share_memory_()
listens = socket.create_server(("127.0.0.1", 29529))
print("trains", "KEY" in os.environ, flush=True)
while True:
    dist.all_reduce(torch.ones(1))
    time.sleep(0.05)
"""


@pytest.fixture(scope="module")
def boxes(request, tmp_path_factory):
    image = request.getfixturevalue("bare_image")
    with rented.started(3, image, tmp_path_factory.mktemp("boxes")) as up:
        yield up


@pytest.fixture
def control(boxes, tmp_path):
    made = rented.control_of(boxes, tmp_path / "code", train=TRAIN, forever=FOREVER)
    made.environment["KEY"] = "sesame-4719"
    yield made
    rented.leave_nothing(made)


def deploy(control, script, *words, hosts=None):
    return control.fab(
        "deploy", "--run", control.run, "--folder", str(control.code), "--script", script, *words, hosts=hosts
    )


def begin(control, *words):
    done = deploy(control, "forever.py", "--detach", *words)
    assert done.returncode == 0, done.stderr
    logs = ("logs", "--run", control.run, "--grep", "trains")
    until(lambda: control.fab(*logs).stdout.count("trains") == 2, "both ranks to train", 240)


def test_two_boxes_train_as_one_run_and_the_results_come_home(control):
    done = deploy(control, "train.py")
    assert done.returncode == 0, done.stderr
    assert ": no container engine, so" in done.stderr
    assert "rank 0 sum 2.0" in done.stdout
    assert control.fab("fetch", "--run", control.run).returncode == 0
    assert (control.dir / "work/result.txt").read_text().count("done") >= 1
    # The second deploy makes and sends nothing again.
    control.fab("down", "--run", control.run)
    again = control.fab("deploy", "--run", f"{control.run}-2", "--folder", str(control.code), "--script", "train.py")
    assert again.returncode == 0, again.stderr
    assert "making the environment" not in again.stderr
    assert again.stderr.count("nothing sent") == 2
    control.fab("down", "--run", f"{control.run}-2")


def test_a_dry_run_shows_no_docker_command_for_boxes_without_an_engine(control):
    """Once, a dry run for boxes without Docker showed `docker run --cap-drop ...`, which nothing would run."""
    (control.code / "requirements.txt").write_text("numpy\n")
    control.fab("preflight", "--quick", hosts=["box-1", "box-2"])  # a dry run sends nothing, not even the probe
    planned = deploy(control, "train.py", "--dry-run", hosts=["box-1", "box-2"])
    assert planned.returncode == 0, planned.stderr
    assert "box-2: install the packages of requirements.txt" in planned.stdout
    assert f"box-2: start box-2 as muster-{control.run}" in planned.stdout
    assert "docker" not in planned.stdout.replace(str(control.code), "")  # its folder has the test's name


def test_each_command_that_looks_at_a_run_works(control):
    begin(control, "--secret", "KEY")
    assert control.run in control.fab("status").stdout
    assert "forever.py" in control.fab("why", "--run", control.run).stdout
    inside = control.fab("exec", "--run", control.run, "--", "sh", "-c", "echo at $(pwd) as $(id -un)")
    assert inside.stdout.count("/work as ops") == 2, inside.stderr
    assert "trains True" in control.fab("logs", "--run", control.run, "--rank", "1").stdout
    stopped = control.fab("stop", "--run", control.run)
    assert stopped.returncode in (0, 75), stopped.stderr
    attached = control.fab("attach", "--run", control.run)
    assert attached.returncode == 75, attached.stderr


def test_a_secret_is_only_in_memory(control, boxes):
    begin(control, "--secret", "KEY")
    for host in boxes.hosts[:2]:
        script = (
            "grep -rls 'sesame[-]4719' ~ /tmp /var/tmp /dev/shm; cat /proc/[0-9]*/cmdline | grep -ac 'sesame[-]4719'"
        )
        assert boxes.ssh(host, script).stdout.split() == ["0"]
        assert "0700" in boxes.on(host, "stat -c 0%a ~/.muster/bare")


def test_a_script_that_fails_is_started_again_as_often_as_asked(control):
    assert deploy(control, "train.py", "--env", "FAIL_ONCE=1").returncode == 1
    control.fab("down", "--run", control.run)
    again = control.fab("deploy", "--resume", control.run, "--restarts", "2")
    assert again.returncode == 0, again.stderr


CANNOT = {
    "--image": "pytorch/pytorch:latest",
    "--keep": "/data",
    "--mount": "/etc:/data:ro",
    "--secret-file": "token=/etc/hostname",
}


def test_an_option_that_needs_an_engine_is_refused_by_name_before_anything_is_sent(control, boxes):
    for option, value in CANNOT.items():
        refused = deploy(control, "train.py", option, value)
        assert (refused.returncode, option in refused.stderr) == (2, True), refused.stderr
        assert "has no container engine" in refused.stderr
        assert not boxes.on(boxes.hosts[0], f"ls -d ~/.muster/runs/{control.run} 2>/dev/null; true")


KEEPER = "pgrep -f 'import main.* keep '"
PHASES = {
    "the agent is killed": "pkill -9 -f '[m]uster.trainer.node agent'",
    "its keeper is killed": f"kill -9 $({KEEPER})",
    "all that keeps it is killed at once": f"kill -9 $({KEEPER}) $(pgrep -f '[m]uster.trainer.node agent')",
}


@pytest.mark.parametrize("phase", PHASES)
def test_nothing_outlives_a_run_whatever_is_killed(control, boxes, phase):
    begin(control)
    boxes.on("box-2", f"{PHASES[phase]}; true")
    attached = control.fab("attach", "--run", control.run)
    assert attached.returncode == 1, attached.stderr
    assert "box-2" in attached.stderr
    assert control.fab("down", "--run", control.run).returncode == 0


def test_attach_reports_that_a_restarted_pod_lost_its_run(control, boxes):
    begin(control)
    boxes.restart("box-2")
    attached = control.fab("attach", "--run", control.run)
    assert attached.returncode == 1, attached.stderr
    assert control.fab("down", "--run", control.run).returncode == 0


@pytest.mark.parametrize("after", [2, 5, 9])
def test_a_control_side_that_is_killed_leaves_a_run_or_nothing(control, boxes, after):
    line = [
        FAB,
        "deploy",
        "--hosts",
        "box-1,box-2",
        "--run",
        control.run,
        "--folder",
        control.code,
        "--script",
        "forever.py",
    ]
    deploys = control.background(line, **QUIET)
    try:
        deploys.wait(after)
    except subprocess.TimeoutExpired:
        deploys.send_signal(signal.SIGKILL)
    deploys.wait()
    until(lambda: control.fab("down", "--run", control.run).returncode == 0, "the lock to end", 60)


def test_a_lost_box_does_not_stop_the_others(control, boxes):
    words = ("--min-nodes", "2", "--max-hours", "1", "--detach")
    done = deploy(control, "forever.py", *words, hosts=boxes.hosts)
    assert done.returncode == 0, done.stderr
    logs = ("logs", "--run", control.run, "--grep", "trains")
    until(lambda: control.fab(*logs, hosts=boxes.hosts).stdout.count("trains") == 3, "all ranks to train", 240)
    boxes.on("box-3", f"kill -9 $({KEEPER}) $(pgrep -f '[m]uster.trainer.node agent'); true")
    two = boxes.hosts[:2]
    until(lambda: control.fab(*logs, hosts=two).stdout.count("trains") == 4, "the two to train on", 240)
    assert control.fab("down", "--run", control.run, hosts=boxes.hosts).returncode == 0

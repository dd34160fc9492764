"""The control side needs neither Linux, root nor Docker: it deploys without /proc, docker, and all tools but ssh.

A stand-in for macOS, WSL and BSD, which were not tried: a mount namespace with an empty /proc and no engine's socket, a
PATH with `sh` and `ssh` alone, and a Python without what only Linux has (bare/sitecustomize.py).
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from lab import waiting
from tests.cluster.control import FAB, HOME

HIDE = 'PATH=$1; mount -t tmpfs none /proc && mount --bind /dev/null "$2" && PATH=$3 && shift 3 && exec "$@"'


@pytest.fixture
def bare(control, tmp_path):
    """fab as `control` runs it, on a machine with nothing of Linux's own."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("sh", "ssh"):
        (tools / name).symlink_to(shutil.which(name))
    site = Path(__file__).with_name("bare")
    told = {"PYTHONPATH": str(site), "MUSTER_TEST_BARE": "1", "HOME": os.environ["HOME"]}
    told |= {"PATH": str(tools), "MUSTER_SSH_CONFIG": control.environment["MUSTER_SSH_CONFIG"]}
    unshare, shell = shutil.which("unshare"), shutil.which("sh")
    socket = Path("/var/run/docker.sock").resolve()

    def fab(task, *words, hosts=None):
        line = [sys.executable, FAB, *control.line(task, *words, hosts=hosts)[1:]]
        hidden = [unshare, "-m", shell, "-c", HIDE, "hide", os.environ["PATH"], socket, tools, *line]
        done = subprocess.run(hidden, cwd=HOME, env=told, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, f"{task}: {done.stderr}"
        return done

    return fab


@pytest.fixture
def image(control):
    """The trainer's image under a name that only the hosts know."""
    name = f"muster-{control.run}:1"
    for host in control.hosts:
        layers = control.rack.on(host, "docker", "images", "-q", "muster-muster-trainer-cpu")
        control.rack.on(host, "docker", "tag", layers.split()[0], name)
    yield name
    for host in control.hosts:
        control.rack.on(host, "docker", "rmi", name)


def test_a_laptop_without_linux_docker_or_tools_deploys_and_brings_the_results_home(bare, control, image):
    assert "ready" in bare("preflight", "--image", image).stdout
    bare(
        "deploy",
        "--run",
        control.run,
        "--image",
        image,
        "--folder",
        "examples",
        "--requirements",
        "no",
        "--script",
        "ddp.py --epochs 1",
    )
    assert control.outcome()["verdict"] == "done"
    assert "epoch 1" in bare("logs", "--run", control.run, "--rank", "0").stdout
    bare("fetch", "--run", control.run)
    assert (control.dir / "report.html").exists()
    bare("down", "--run", control.run)
    assert control.containers() == []


def test_such_a_laptop_works_beside_a_run_that_is_going_on(bare, control, image, tmp_path):
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "train.py").write_text("import os, time\nprint('has', os.environ['KEY'], flush=True)\ntime.sleep(600)\n")
    (folder / ".env").write_text("KEY=sesame-4719-key\n")
    words = ("--image", image, "--folder", str(folder), "--script", "train.py", "--detach")
    bare("deploy", "--run", control.run, *words, "--env-file", str(folder / ".env"), "--max-hours", "1")
    assert bare("exec", "--run", control.run, "--", "pwd").stdout.count("/muster/run/work") == 2
    waiting.until(lambda: "has ***" in bare("logs", "--run", control.run, "--grep", "has").stdout, "the script's line")
    assert control.run in bare("status").stdout
    assert control.run in bare("clean").stdout
    for task in ("why", "gpus", "runs"):
        bare(task)
    bare("stop", "--run", control.run, "--now")
    bare("down", "--run", control.run)
    assert control.containers() == []

"""The control side needs neither Linux, root nor Docker: it deploys without /proc, docker, or any tool but ssh.

It runs on a Mac that Linux imitates (tests/mac/machine.py), with only `sh` and `ssh`. WSL and the BSDs would be alike.
"""

import os

import pytest

from lab import waiting
from tests.cluster.control import FAB, HOME
from tests.mac import machine


@pytest.fixture
def bare(control):
    """fab as `control` runs it, on a machine without anything specific to Linux."""
    given = {"HOME": os.environ["HOME"], "MUSTER_SSH_CONFIG": control.environment["MUSTER_SSH_CONFIG"]}
    with machine.started(lo0=False, tools=("sh", "ssh")) as mac:

        def fab(task, *words, hosts=None):
            line = [mac.python, FAB, *control.line(task, *words, hosts=hosts)[1:]]
            done = mac.run(*line, cwd=HOME, env=given, seconds=300)
            assert done.returncode == 0, f"{task}: {done.stderr}"
            return done

        fab.home = mac.home
        yield fab


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


def test_a_laptop_without_linux_docker_or_tools_deploys_and_fetches_the_results(bare, control, image):
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


def test_such_a_laptop_can_look_at_and_stop_a_live_run(bare, control, image):
    folder = bare.home / "code"
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

"""Ctrl-C or kill -9 of a deploy to bare hosts, or a pod's restart, at any moment: nothing of the deploy stays."""

import signal
import subprocess
import time
from contextlib import suppress

import pytest

from deploy.core.errors import DETACHED
from lab.waiting import until
from tests.cluster import boxes as rented
from tests.cluster.test_bootstrap import bare_image  # noqa: F401
from tests.cluster.test_boxes import FOREVER

# Fractions of the time from the command to a rank's first line.
MOMENTS = [number / 12 for number in range(13)]
HOW = ("Ctrl-C", "kill -9", "restart")


@pytest.fixture(scope="module")
def boxes(request, tmp_path_factory):
    with rented.started(2, request.getfixturevalue("bare_image"), tmp_path_factory.mktemp("boxes")) as up:
        yield up


@pytest.fixture
def control(boxes, tmp_path):
    made = rented.control_of(boxes, tmp_path / "code", forever=FOREVER)
    yield made
    rented.leave_nothing(made)


def begin(control):
    words = ("--run", control.run, "--folder", str(control.code), "--script", "forever.py")
    file = (control.code.parent / "output").open("w")
    return control.background(control.line("deploy", *words), stdout=file, stderr=subprocess.STDOUT)


def trains(control):
    return "trains" in (control.code.parent / "output").read_text()


@pytest.fixture(scope="module")
def lasts(boxes, tmp_path_factory):
    """The seconds from the command to a rank's first line, once the environments are made."""
    for _ in range(2):
        control = rented.control_of(boxes, tmp_path_factory.mktemp("first") / "code", forever=FOREVER)
        began, deploy = time.monotonic(), begin(control)
        until(lambda control=control: trains(control), "the first line of a rank", 240)
        seconds = time.monotonic() - began
        deploy.send_signal(signal.SIGINT)
        deploy.wait(60)
        rented.leave_nothing(control)
    return seconds


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_deploy_that_ends_early_leaves_nothing_behind(control, boxes, lasts, moment, how):
    deploy = begin(control)
    with suppress(subprocess.TimeoutExpired):
        deploy.wait(moment * lasts)
    if how == "Ctrl-C":
        deploy.send_signal(signal.SIGINT)
        # When a run is followed, Ctrl-C ends only the view.
        if deploy.wait(90) == DETACHED:
            assert control.fab("stop", "--run", control.run).returncode == 0
    elif how == "kill -9":
        deploy.kill()
        deploy.wait()
        control.fab("down")
    else:
        boxes.restart("box-2")
        with suppress(subprocess.TimeoutExpired):
            deploy.wait(60)
        deploy.send_signal(signal.SIGINT)
        deploy.wait(90)
        control.fab("down")
    for host in boxes.hosts:
        until(lambda host=host: not boxes.left(host), f"{host} to have nothing: {boxes.left(host)}", 30)

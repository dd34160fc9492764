"""Rented boxes whose Python is missing, too old, or different on each: they get one, or are refused clearly."""

import time

import pytest

from tests.cluster import boxes as rented
from tests.cluster.test_bootstrap import bare_image, docker  # noqa: F401
from tests.cluster.test_boxes import TRAIN, deploy

GONE = "rm -rf /usr/bin/python3* /usr/lib/python3*"
OLD = r"""cd /usr/bin; printf '#!/bin/sh\n[ "$1" = -V ] && echo Python 3.8.18\nexit 1\n' >python3; chmod 755 python3"""
# The first box has no Python, the second an old one.
FIRST = f'{GONE}; [ "$(uname -n)" = box-1 ] || {{ {OLD}; }}'
LIST = "UV_PYTHON_DOWNLOADS_JSON_URL"


@pytest.fixture(scope="module")
def boxes(request, tmp_path_factory):
    image, folder = request.getfixturevalue("bare_image"), tmp_path_factory.mktemp("boxes")
    with rented.started(2, image, folder, first=FIRST) as up:
        for host in up.hosts:
            gateway = up.index.removeprefix("http://").partition(":")[0]
            docker("exec", up.container(host), "sh", "-c", f"echo {gateway} mirror.box >>/etc/hosts")
        yield up


@pytest.fixture
def control(boxes, tmp_path):
    made = rented.control_of(boxes, tmp_path / "code", train=TRAIN)
    yield made
    rented.leave_nothing(made)
    for host in boxes.hosts:
        boxes.on(host, "rm -rf ~/.muster/bin ~/.muster/python")


def of_uv(boxes, name=""):
    """The URL of the list of Pythons, at this machine's address or at a name that only the boxes know."""
    address = boxes.index.removesuffix("/simple")
    return f"{f'http://{name}:' + address.rpartition(':')[2] if name else address}/python/list.json"


def test_boxes_that_can_get_no_python_are_refused_soon_with_what_to_type(control, boxes):
    control.environment[LIST] = "http://192.0.2.1/list.json"
    started = time.monotonic()
    refused = deploy(control, "train.py")
    assert time.monotonic() - started < 20  # 6 on an idle machine
    assert refused.returncode == 1, refused.stderr
    assert "box-1: it has no container engine, and no Python; Python 3.12" in refused.stderr
    assert "box-2: it has no container engine, and only Python 3.8.18" in refused.stderr
    assert "apt-get install python3" in refused.stderr
    assert "Traceback" not in refused.stderr
    assert not boxes.on("box-1", "ls -A ~/.muster/python")


@pytest.mark.parametrize("name", ["", "mirror.box"])
def test_boxes_without_a_python_get_one_from_this_machine_or_download_it(control, boxes, name):
    control.environment[LIST] = of_uv(boxes, name)
    done = deploy(control, "train.py")
    assert done.returncode == 0, done.stderr
    assert "rank 0 sum 2.0" in done.stdout

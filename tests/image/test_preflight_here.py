"""`make preflight` without hosts: the verdict for `make up` on this machine; the check leaves nothing behind."""

import json
import signal
import subprocess

import pytest

from lab.waiting import until
from tests.checkout import FAB, HOME

LABEL = "label=muster.preflight=1"
READY, WARNED, STOPPED = 0, 1, 75


def left():
    """Containers and networks that any preflight has left on this machine."""
    lists = (["ps", "--all"], ["network", "ls"])
    lines = [["docker", *words, "--quiet", "--filter", LABEL] for words in lists]
    return [name for line in lines for name in subprocess.run(line, capture_output=True, check=True).stdout.split()]


def line(*options):
    return [FAB, "preflight", "--workers=1", "--json", *options]


@pytest.mark.parametrize(("backend", "names"), [("docker", ["master", "worker-1"]), ("processes", ["this-machine"])])
def test_a_healthy_machine_is_green_and_proved_on_either_backend(image, backend, names):
    done = subprocess.run(line(f"--backend={backend}"), cwd=HOME, capture_output=True, text=True, timeout=120)
    assert done.returncode == READY, done.stdout + done.stderr
    verdict = json.loads(done.stdout)
    assert (verdict["cause"], verdict["groups"]["proof"]) == ("", "ok")
    assert verdict["examined"] == names
    assert left() == []


def test_a_limit_of_this_shell_is_reported_for_the_process_backend():
    shell = ["sh", "-c", 'ulimit -n 120 && exec "$@"', "sh", *line("--backend=processes", "--quick", "--strict")]
    done = subprocess.run(shell, cwd=HOME, capture_output=True, text=True, timeout=60)
    causes = {finding["cause"] for finding in json.loads(done.stdout)["findings"]}
    causes -= {"leftovers"}  # from other runs on this machine
    assert (done.returncode, causes) == (WARNED, {"open-files"}), done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_preflight_leaves_no_container_or_network(image, number):
    started = subprocess.Popen(line("--backend=docker"), cwd=HOME, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    until(lambda: len(left()) > 1, "a network and a container")
    started.send_signal(number)
    _, errors = started.communicate(timeout=30)
    assert started.returncode == (STOPPED if number == signal.SIGINT else -number)
    assert (b"nothing is left" in errors) == (number == signal.SIGINT)
    until(lambda: left() == [], "all of it to be gone")

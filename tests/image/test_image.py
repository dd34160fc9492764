"""The image: its user, what it contains and what it does not, and that its health check is cheap."""

from __future__ import annotations

import json
import subprocess

import pytest


@pytest.fixture
def settings(image):
    shown = subprocess.run(["docker", "image", "inspect", image], capture_output=True, text=True, check=True).stdout
    return json.loads(shown)[0]["Config"]


def test_it_runs_as_an_ordinary_user(inside):
    assert inside("id", "-un").strip() == "muster"
    assert inside("id", "-u").strip() == "1000"


def test_any_uid_has_a_name_a_home_and_a_runs_folder(inside):
    script = (
        "import getpass, pathlib; print(getpass.getuser()); pathlib.Path('~/a').expanduser().touch();"
        "pathlib.Path('/muster/runs/a').touch()"
    )
    assert inside("python", "-c", script, options=("--user", "4242:4242")).strip() == "muster"


def test_its_labels_describe_it(settings):
    labels = {name: value for name, value in settings["Labels"].items() if name.startswith("org.opencontainers.image.")}
    assert labels["org.opencontainers.image.title"] == "muster-trainer"
    assert labels["org.opencontainers.image.licenses"] == "Apache-2.0"
    assert labels["org.opencontainers.image.version"]
    assert "cpu" in labels["org.opencontainers.image.description"]


def test_only_the_trainer_from_the_checkout_is_inside(inside):
    assert set(inside("ls", "-A", "/muster").split()) == {"muster", "runs", "node.sh"}
    names = inside(
        "sh", "-c", "find / -xdev \\( -name .git -o -name 'test_*.py' -path '/muster/*' \\) 2>/dev/null || true"
    )
    assert names == ""
    assert "agent.py" in inside("ls", "/muster/muster/trainer/node/agent").split()


def test_no_secrets_or_wheels_of_the_build_are_left(inside):
    # The build leaves the empty folders on which it mounted things.
    script = "find /run/secrets /build /etc/pip.conf /root/.config ! -type d 2>/dev/null || true"
    assert inside("sh", "-c", script, options=("--user", "0:0")).strip() == ""
    assert inside("sh", "-c", "find / -xdev -name '*.whl' -path '*torch*' 2>/dev/null || true") == ""


def test_the_bytecode_exists_before_the_first_start(inside):
    modules = "import json, muster.trainer.node.agent.agent as agent"
    script = f"import os; {modules}; print(*(os.path.isfile(each.__cached__) for each in (json, agent)))"
    assert inside("python", "-c", script).split() == ["True", "True"]


def test_the_health_check_needs_no_torch_and_little_cpu(inside, settings):
    assert settings["Healthcheck"]["Test"] == ["CMD", "python", "-P", "-m", "muster.trainer.node", "health"]
    script = (
        "import sys, time; begun = time.process_time(); import muster.trainer.node.beside.health;"
        "print(time.process_time() - begun, 'torch' in sys.modules)"
    )
    answers = [inside("python", "-c", script).split() for _ in range(3)]
    assert {torch for _, torch in answers} == {"False"}
    assert min(float(seconds) for seconds, _ in answers) < 0.1


def test_plain_docker_run_takes_the_trainers_arguments(image):
    done = subprocess.run(
        ["docker", "run", "--rm", image, "--no-such-option"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 2
    assert "--no-such-option" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_init_process_reaps_orphans(inside):
    # The child's parent ends immediately; an init process adopts and reaps the child, so that no zombie is left.
    zombie = "cat /proc/[0-9]*/stat | cut -d' ' -f3 | grep -q Z"
    script = f"cat /proc/1/comm; (sh -c 'true' &); for n in $(seq 100); do {zombie} || exec echo none; sleep 0.1; done"
    assert inside("tini", "--", "sh", "-c", script).split() == ["tini", "none"]

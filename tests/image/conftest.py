"""A real engine and the real image for the tests in this folder; without an engine the tests skip and say so."""

from __future__ import annotations

import os
import subprocess
import uuid
from pathlib import Path

import pytest

from deploy.engine import client

HOME = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def image(docker):
    """The tag of the cpu image, built as `make image` builds it."""
    subprocess.run([HOME / "images/build.sh"], check=True, timeout=600)
    return "muster-trainer:cpu"


@pytest.fixture
def run_id(docker):
    """A fresh run id; everything with its label is removed afterwards."""
    run_id = f"test-{uuid.uuid4().hex[:8]}"
    yield run_id
    client.down(run_id)


@pytest.fixture
def inside(image):
    """inside("id", "-u") runs a command in a fresh container and returns its output; fails if the command fails."""

    def run(*command, options=()):
        line = ["docker", "run", "--rm", *options, "--entrypoint", command[0], image, *command[1:]]
        done = subprocess.run(line, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


@pytest.fixture
def compose(docker, run_id, tmp_path):
    """Run `docker compose` on the repository's files, in a separate project folder and under a unique project name."""
    (tmp_path / "runs").mkdir()

    def run(*command, files=("docker-compose.yml",), **environment):
        line = ["docker", "compose", "--project-name", run_id, "--project-directory", str(tmp_path)]
        for file in files:
            line += ["--file", str(HOME / file)]
        # The caller's shell must not influence the run.
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("MUSTER_", "WORKERS"))}
        done = subprocess.run(
            [*line, *command], env=inherited | environment, capture_output=True, text=True, timeout=240
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    yield run
    run("down", "--timeout", "1")

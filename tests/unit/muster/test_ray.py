"""How a host starts Ray from the run's variables alone: addresses, ports and resources, without a rank's variables."""

import os
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from lab.ports import free_port
from lab.waiting import alive, until
from muster import ray

HOME = Path(__file__).resolve().parents[3]
HEAD = {
    "MUSTER_ROLE_HOST": "10.0.0.1",
    "MUSTER_ROLE_GPUS": "4",
    "MUSTER_ROLE_PORT": "29601",
    "MUSTER_HEAD_ADDRESSES": "10.0.0.1:29601",
    "MUSTER_ROLE_SECRET": "5e5a",
}
WORKER = {**HEAD, "MUSTER_ROLE_HOST": "10.0.0.2", "MUSTER_ROLE_GPUS": "0"}


def test_the_head_listens_at_its_planned_address_and_its_dashboard_on_loopback():
    words = ray.start_words("head", HEAD, 10 << 30, 16, 40123)
    assert {"--head", "--block", "--port=29601", "--node-ip-address=10.0.0.1"} <= {*words}
    assert {"--dashboard-host=127.0.0.1", "--ray-client-server-port=40123"} <= {*words}
    assert {"--num-cpus=16", "--num-gpus=4", f"--object-store-memory={8 << 30}"} <= {*words}


def test_a_worker_joins_the_head_from_its_own_address_with_the_gpus_that_it_was_given():
    words = ray.start_words("worker", WORKER, 10 << 30, 8)
    assert {"--address=10.0.0.1:29601", "--node-ip-address=10.0.0.2", "--num-gpus=0"} <= {*words}
    assert not [word for word in words if "dashboard-host" in word or word in ("--head", "--port=29601")]


@pytest.mark.parametrize("part", ["head", "worker"])
def test_no_other_port_is_fixed_so_two_clusters_can_share_a_host(part):
    words = ray.start_words(part, HEAD, 1 << 30, 1, 40123)
    numbers = {word.partition("=")[2] for word in words if "-port=" in word}
    assert numbers == ({"0", "29601", "40123"} if part == "head" else {"0"})


@pytest.mark.parametrize(("shared", "gives"), [(64 << 20, 80 << 20), (1 << 30, int(0.8 * (1 << 30)))])
def test_the_object_store_leaves_some_shared_memory_and_meets_rays_minimum(shared, gives):
    assert f"--object-store-memory={gives}" in ray.start_words("worker", WORKER, shared, 1)


def test_rays_own_processes_are_no_ranks_and_open_no_port_without_a_token():
    rank = {"RANK": "0", "PET_NNODES": "1", "MASTER_ADDR": "a", "OMP_NUM_THREADS": "8", "MUSTER_OUTCOME_DIR": "/x"}
    made = ray.ray_environment({**HEAD, **rank, "MUSTER_LIFE": "0-0-1", "HF_HOME": "/h"})
    assert not made.keys() & {*rank, "MUSTER_LIFE", "MUSTER_ROLE_SECRET"}
    assert (made["HF_HOME"], made["RAY_ADDRESS"], made["RAY_AUTH_MODE"]) == ("/h", "10.0.0.1:29601", "token")
    assert (made["AUTOSCALER_METRIC_PORT"], made["DASHBOARD_METRIC_PORT"]) == ("-1", "-1")


def test_the_driver_is_watched_like_a_script_but_has_no_variables_of_a_rank():
    made = ray.driver_environment({**HEAD, "RANK": "0", "WORLD_SIZE": "1", "MUSTER_OUTCOME_DIR": "/x"})
    assert "MUSTER_OUTCOME_DIR" in made
    assert not made.keys() & {"RANK", "WORLD_SIZE", "MUSTER_ROLE_SECRET"}


def started(tmp_path, *words, **variables):
    """Run the program as a role runs it, on a host that has a package named ray."""
    (tmp_path / "there").mkdir(exist_ok=True)
    (tmp_path / "there/ray.py").write_text("")
    path = os.pathsep.join([str(HOME), str(tmp_path / "there")])
    given = {"PATH": os.environ["PATH"], "PYTHONPATH": path, "HOME": str(tmp_path), **variables}
    command = [sys.executable, "-P", "-m", "muster.ray", *words]
    return subprocess.run(command, env=given, cwd=tmp_path, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize(
    ("words", "variables", "what"),
    [
        (["head"], {}, "MUSTER_HEAD_ADDRESSES is not set: there is no role head with a port"),
        (["worker", "train.py"], {}, "not `head [COMMAND]`, nor `worker`"),
        ([], {}, "not `head [COMMAND]`, nor `worker`"),
        (["head", "nosuch"], HEAD, "nosuch: this host has no such program"),
    ],
)
def test_a_call_that_cannot_work_is_refused_before_ray_starts(tmp_path, words, variables, what):
    done = started(tmp_path, *words, **variables)
    assert (done.returncode, done.stderr.splitlines()[0]) == (2, f"muster.ray: error: {what}")


RAY = {
    "__init__.py": """
from types import SimpleNamespace
def init(**_): raise ConnectionError("no answer")
""",
    "scripts/scripts.py": """
import os, pathlib, socket, sys, time
def main():
    pathlib.Path("head").write_text(str(os.getpid()))
    port = next(word for word in sys.argv if word.startswith("--port=")).partition("=")[2]
    with socket.create_server(("127.0.0.1", int(port))):
        time.sleep(60)
""",
}


def test_a_head_that_cannot_continue_ends_its_ray(tmp_path):
    for name, text in RAY.items():
        file = tmp_path / "there/ray" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    port = free_port()
    cluster = {"MUSTER_HEAD_ADDRESSES": f"127.0.0.1:{port}", "MUSTER_ROLE_PORT": str(port)}
    assert "no answer" in started(tmp_path, "head", **{**HEAD, **cluster}).stderr
    until(lambda: not alive(int((tmp_path / "head").read_text())), "the end of its Ray")


def test_a_home_that_cannot_hold_the_token_is_named(tmp_path, monkeypatch, capsys):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("HOME", str(tmp_path / "file"))
    with pytest.raises(SystemExit):
        ray._keep_token("5e5a")
    assert "cannot be stored there: [Errno 20] Not a directory" in capsys.readouterr().err
    monkeypatch.setenv("HOME", str(tmp_path / "new/home"))
    ray._keep_token("5e5a")
    assert (tmp_path / "new/home/.ray/auth_token").read_text() == "5e5a"


def test_without_the_ray_package_the_error_names_the_requirement_to_add(tmp_path):
    command = [sys.executable, "-P", "-m", "muster.ray", "head"]
    given = {"PATH": os.environ["PATH"], "PYTHONPATH": str(HOME), "HOME": str(tmp_path)}
    done = subprocess.run(command, env=given, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert "no package ray" in done.stderr
    assert "add a line ray[default] to the folder's requirements.txt" in done.stderr


def test_a_worker_that_cannot_reach_the_head_says_where_and_why(capsys):
    with pytest.raises(SystemExit):
        ray._until(lambda: ray.unreachable("127.0.0.1:1"), 0.0, "")
    assert "the head's port 127.0.0.1:1 cannot be reached from here (connection refused)" in capsys.readouterr().err


def test_only_this_user_can_read_the_token_and_no_link_redirects_it(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".ray").mkdir()
    (tmp_path / "elsewhere").write_text("kept")
    (tmp_path / ".ray/auth_token").symlink_to(tmp_path / "elsewhere")
    ray._keep_token("5e5a")
    token = tmp_path / ".ray/auth_token"
    assert (token.read_text(), stat.S_IMODE(token.lstat().st_mode)) == ("5e5a", 0o600)
    assert (tmp_path / "elsewhere").read_text() == "kept"


def test_nodes_that_share_a_home_can_write_the_token_together(tmp_path, monkeypatch):
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    token = tmp_path / ".ray/auth_token"
    for number in range(50):
        with ThreadPoolExecutor(8) as pool:
            assert list(pool.map(ray._keep_token, [str(number)] * 8)) == [None] * 8
        assert token.read_text() == str(number)

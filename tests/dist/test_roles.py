"""`muster up --role`: several programs in one run, as processes of this machine."""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from deploy.hosts.node import roles
from deploy.hosts.node.container import Meeting, Work
from deploy.job.inventory import Host
from deploy.job.options import Job, Options
from deploy.run import roles as plan
from lab import waiting
from lab.ports import free_port
from tests.dist.conftest import environment
from tests.hosts import FACTS

pytestmark = pytest.mark.torch
HOME = Path(__file__).resolve().parents[2]
FAB = Path(sys.executable).with_name("fab")
# A helper that does not end by itself, and ignores a request to stop.
DEAF = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(600)"
# The main role records when it has ended.
SHORT = "import time; time.sleep(1); open('ended', 'w').write(str(time.time()))"
SERVER = """
import os, socket
server = socket.create_server(("127.0.0.1", int(os.environ["MUSTER_ROLE_PORT"])))
print("pid", os.getpid(), flush=True)
while True:
    connection, _ = server.accept()
    connection.sendall(os.environ["MUSTER_ROLE_INDEX"].encode())
    connection.close()
"""


@pytest.fixture
def project(tmp_path):
    """up(*words): run `fab up` in a folder for scripts; after the test, no process of the run may be left."""
    environment = {**os.environ, "PYTHONPATH": str(HOME)}

    def command(*words):
        return [str(FAB), "--search-root", str(HOME), "up", "--backend", "processes", "--run", "r", *words]

    def up(*words):
        return subprocess.run(
            command(*words), cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=240
        )

    def start(*words):
        return subprocess.Popen(
            command(*words), cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    up.folder, up.run, up.start = tmp_path, tmp_path / "runs/r", start
    up.write = lambda name, text: (tmp_path / name).write_text(text)
    yield up
    left = [each for each in psutil.process_iter() if _is_of(each, tmp_path)]
    assert not left, "nothing of a run is left"


def _is_of(process, folder):
    try:
        return process.environ().get("MUSTER_RUN_DIR", "").startswith(str(folder))
    except psutil.Error:
        return False


def outcome(project):
    return json.loads((project.run / "outcome.json").read_text())


def test_the_example_trains_with_workers_and_a_server_and_a_killed_worker_comes_back(project):
    shutil.copytree(HOME / "examples/roles", project.folder, dirs_exist_ok=True)
    port = free_port()
    reward = f"reward=1,port={port},ready=http\\://localhost/health,restart=3:python reward.py"
    rollout = f"rollout=2,separate,port={port + 1000},ready=port,after=reward,restart=3:python rollout.py"
    run = project.start(
        "--role", reward, "--role", rollout, "--", "torchrun", "--nproc-per-node", "2", "trainer.py", "400"
    )
    log = project.run / "logs/rank-0.log"

    def trains():
        assert run.poll() is None, run.stdout.read()
        return log.exists() and "round 3" in log.read_text()

    waiting.until(trains, "the trainer trains", 120)
    # rank 0 and 1 train; 2 is the reward server, 3 and 4 are the workers
    began = [json.loads(line) for line in (project.run / "ranks/rank-3.jsonl").read_text().splitlines()]
    first = next(event for event in began if event["kind"] == "began")
    os.kill(first["pid"], 9)
    killed = time.time()

    def is_back():
        rows = [json.loads(line) for line in (project.run / "ranks/rank-3.jsonl").read_text().splitlines()]
        return any(row["kind"] == "role" and row["phase"] == "ready" and row["t"] > killed for row in rows)

    waiting.until(is_back, "the worker is back", 60)
    said, _ = run.communicate(timeout=200)
    assert run.returncode == 0, said
    assert "policy.pt" in said
    assert outcome(project)["verdict"] == "done"


def test_a_run_ends_with_its_main_role_although_a_helper_never_does(project):
    project.write("deaf.py", DEAF)
    project.write("short.py", SHORT)
    done = project("--role", "deaf=1,ready=line deaf:python deaf.py", "--", "python", "short.py")
    assert done.returncode == 0, done.stderr
    took = outcome(project)["t"] - float((project.run / "work/ended").read_text())
    # 5 s on an idle machine, but other tests may run at the same time.
    assert took < 20, f"{took:.1f} s"


def test_the_main_roles_exit_code_is_the_runs(project):
    project.write("deaf.py", DEAF)
    project.write("wrong.py", "raise ValueError('bad sample 7')")
    done = project("--role", "deaf=1,ready=line deaf:python deaf.py", "--", "python", "wrong.py")
    assert done.returncode == 1
    assert "bad sample 7" in done.stdout + done.stderr


def test_a_helper_that_fails_ends_the_run_and_is_named_with_its_error(project):
    project.write("helper.py", "import time; time.sleep(1); raise RuntimeError('no such model')")
    project.write("train.py", "import time; time.sleep(300)")
    done = project("--role", "helper=1:python helper.py", "--", "python", "train.py")
    assert done.returncode == 1
    assert "helper: helper.py ended with code 1: RuntimeError: no such model" in done.stdout + done.stderr
    assert (outcome(project)["node"], outcome(project)["rank"]) == ("helper", 1)


def test_a_role_that_is_never_ready_is_named_with_what_is_missing(project):
    project.write("helper.py", "import time; time.sleep(300)")
    project.write("train.py", "open('began', 'w')")
    port = free_port()
    helper = f"helper=1,port={port},ready=port,within=2s:python helper.py"
    done = project("--role", helper, "--", "python", "train.py")
    assert done.returncode == 1
    said = done.stdout + done.stderr
    assert f"helper is not ready after 2 s: nothing answers on port {port} (connection refused)" in said
    assert not (project.run / "work/began").exists()


def test_a_role_that_dies_before_it_is_ready_gets_no_new_time_for_each_restart(project):
    project.write("helper.py", "raise ValueError('bad config')")
    project.write("train.py", "import time; time.sleep(300)")
    helper = f"helper=1,port={free_port()},ready=port,within=12s,restart=9999:python helper.py"
    done = project("--role", helper, "--", "python", "train.py")
    assert done.returncode == 1
    wanted = r"it was started \d+ times, and ended with code 1: ValueError: bad config"
    assert re.search(f"error: helper is not ready after 12 s: {wanted}", done.stderr), done.stderr
    assert "helper ended with code 1: ValueError: bad config: it starts again (restart 1)" in done.stderr
    told = [line for line in done.stderr.splitlines() if "it starts again" in line]
    assert len(told) < 8, "a storm of restarts is no storm of lines"


def test_a_server_comes_back_although_its_orphan_holds_its_port(project):
    """Like an inference engine whose parent died: it holds the port, or the GPU."""
    project.write(
        "server.py",
        """
import os, socket, time
server = socket.create_server(("127.0.0.1", int(os.environ["MUSTER_ROLE_PORT"])))
if os.fork() == 0:
    while True:
        server.accept()[0].close()
time.sleep(2)
os._exit(5)
""",
    )
    project.write("train.py", "import time\ntime.sleep(10)")
    server = f"server=1,port={free_port()},ready=port,restart=9:python server.py"
    done = project("--role", server, "--", "python", "train.py")
    assert done.returncode == 0, done.stderr
    assert "server ended with code 5: it starts again (restart 2)" in done.stderr


def test_a_role_with_a_missing_program_is_named(project):
    project.write("train.py", "import time; time.sleep(300)")
    done = project("--role", "helper=1:qwen-serve --port 1", "--", "python", "train.py")
    assert done.returncode == 2
    assert "error: helper: no such program: qwen-serve" in done.stderr


def test_a_role_with_a_missing_script_is_named_before_anything_starts(project):
    project.write("train.py", "")
    done = project("--role", "helper=1:python nothere.py", "--", "python", "train.py")
    assert done.returncode == 2
    assert "error: role helper: nothere.py: no such file in" in done.stderr


def test_the_roles_of_a_cluster_toml_run_on_this_machine_too(project):
    project.write(
        "cluster.toml",
        """
hosts = ["gpu-a", "gpu-b"]
[[role]]
name = "server"
command = "python server.py"
hosts = ["gpu-b"]
[[role]]
name = "trainer"
command = "python train.py"
after = ["server"]
ends = true
""",
    )
    project.write("server.py", "import time; time.sleep(300)")
    project.write("train.py", "import os; print('hosts', os.environ['MUSTER_SERVER_HOSTS'])")
    done = project("--allow-folder")
    assert done.returncode == 0, done.stderr
    assert "hosts 127.0.0.1" in done.stdout


def test_a_port_of_another_process_does_not_make_a_role_ready(project):
    """Otherwise a trainer would send its weights to any process that listens there."""
    project.write("server.py", SERVER)
    project.write("train.py", "open('began', 'w')")
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        port = stranger.getsockname()[1]
        done = project("--role", f"server=1,port={port},ready=port:python server.py", "--", "python", "train.py")
    assert done.returncode != 0
    assert f"server: port {port} is taken" in done.stdout + done.stderr
    assert not (project.run / "work/began").exists()


def test_each_role_knows_where_the_others_are_and_none_has_the_runs_key(project):
    project.write("server.py", SERVER)
    project.write("train.py", "import json, os; json.dump(dict(os.environ), open('env', 'w'))")
    port = free_port()
    done = project("--role", f"server=2,separate,port={port},ready=port:python server.py", "--", "torchrun", "train.py")
    assert done.returncode == 0, done.stderr
    known = json.loads((project.run / "work/env").read_text())
    assert known["MUSTER_SERVER_HOSTS"] == "127.0.0.1,127.0.0.1"
    assert known["MUSTER_SERVER_ADDRESSES"] == f"127.0.0.1:{port},127.0.0.1:{port + 1}"
    assert known["MUSTER_SERVER_PORT"] == str(port)
    assert (known["MUSTER_ROLE"], known["RANK"], known["WORLD_SIZE"]) == ("main", "0", "1")
    assert "MUSTER_ROLES" not in known


@pytest.fixture
def on_hosts(tmp_path):
    """start(*roles): start agents as planned for real hosts, each with its own run folder; no command follows them."""
    started = {}

    def start(*texts):
        hosts = [Host(f"h{number}", f"127.0.0.{number}") for number in range(2, 2 + len(texts))]
        acted = plan.read(
            Options(role=texts, script="x", folder=str(tmp_path / "scripts")), [host.name for host in hosts]
        )
        addresses = [host.address for host in hosts]
        met = Meeting(addresses[0], free_port(), ("lo",) * len(hosts))
        work = Work("r", "image", ("x",), token=str(free_port()), share_key="k", roles=acted, observe=False)
        for node in roles.node_containers(hosts, [FACTS] * len(hosts), Job(), work, met, addresses):
            own = tmp_path / node.docker.labels["muster.role"]
            own.mkdir()
            given = {**node.environment, "MUSTER_RUN_DIR": str(own), "MUSTER_SENT": str(tmp_path / "scripts")}
            started[own.name] = subprocess.Popen(
                [sys.executable, *node.docker.command],
                cwd=own,
                env=environment(**{**given, "PYTHONPATH": str(HOME)}),
                start_new_session=True,
            )
        return started

    (tmp_path / "scripts").mkdir()
    start.write = lambda name, text: (tmp_path / "scripts" / name).write_text(text)
    yield start
    for process in started.values():
        process.kill()


def test_hosts_without_a_follower_restart_a_worker_and_end_the_run(on_hosts, tmp_path):
    on_hosts.write("server.py", SERVER)
    on_hosts.write("deaf.py", DEAF)
    on_hosts.write("short.py", "import os, time\nwhile not os.path.exists('end'): time.sleep(0.1)")
    port = free_port()
    server = f"server=h2,port={port},ready=port,restart=2:python server.py"
    agents = on_hosts(server, "deaf=h3,after=server:python deaf.py", "main=h4,ends,after=deaf:python short.py")

    def rows(role):
        files = list((tmp_path / role / "ranks").glob("*.jsonl"))
        return [json.loads(line) for file in files for line in file.read_text().splitlines()]

    def phase(role, name, since=0.0):
        return any(row["kind"] == "role" and row["phase"] == name and row["t"] > since for row in rows(role))

    waiting.until(lambda: phase("main", "ready"), "the main role runs", 120)
    os.kill(next(row["pid"] for row in rows("server") if row["kind"] == "began"), 9)
    killed = time.time()
    waiting.until(lambda: phase("server", "ready", killed), "the server is back", 60)
    (tmp_path / "main/work/end").touch()
    assert {role: agent.wait(60) for role, agent in agents.items()} == {"main": 0, "deaf": 0, "server": 0}


def test_hosts_without_a_follower_learn_soon_of_a_role_that_cannot_start(on_hosts):
    on_hosts.write("train.py", "import time; time.sleep(300)")
    agents = on_hosts("helper=h2:qwen-serve", "main=h3,ends,after=helper:python train.py")
    # Without that notice, an agent waits for a minute before it takes the other one for lost.
    assert agents["main"].wait(40) == 0
    assert agents["helper"].wait(40) == 2

"""Twenty random faults of a role: the error names the role and the cause, whatever the other roles do.

On hosts, the error also names the role's host ("server on gpu-a"): tests/cluster/test_ray.py.
"""

import os
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest

from lab.ports import free_port

pytestmark = pytest.mark.torch
HOME = Path(__file__).resolve().parents[2]
FAB = Path(sys.executable).with_name("fab")
URL = "http\\://localhost/health"
SLEEPS = "import time\ntime.sleep(600)\n"
SERVES = """
import os, socket, threading, time
{first}
server = socket.create_server(("{address}", int(os.environ["MUSTER_ROLE_PORT"]) + {more}))
while True:
    connection, _ = server.accept()
    {answer}
"""


def serves(first="", address="127.0.0.1", more=0, answer="connection.sendall(b'HTTP/1.0 200 OK\\r\\n\\r\\n')"):
    return SERVES.format(first=first, address=address, more=more, answer=answer)


# By name: the program, its readiness check, and a pattern for the error. PORT is the role's port, MORE is PORT + 7.
FAULTS = {
    "never ready: a port": (SLEEPS, "port", r"nothing answers on port PORT .*; its program listens on no port"),
    "never ready: a url": (
        serves(answer="connection.sendall(b'HTTP/1.0 503 no\\r\\n\\r\\n')"), URL, "answers 503, not 200",
    ),
    "never ready: a file": (SLEEPS, "file started", "there is no file started"),
    "never ready: a line": ("print('loading', flush=True)\n" + SLEEPS, "line loaded", "has not printed 'loaded'"),
    "wrong port": (serves(more=7), "port", r"nothing answers on port PORT .*; its program listens on 127.0.0.1:MORE"),
    "address of another": (serves(address="127.0.0.77"), "port", "its program listens on 127.0.0.77:PORT"),
    "address of nobody": (serves(address="192.0.2.200"), "port", "OSError: .*Cannot assign requested address"),
    "dies first": ("raise RuntimeError('no such model: qwen')", "port", "RuntimeError: no such model: qwen"),
    "dies without a word": ("import sys\nsys.exit(3)", "port", "server.py ended with code 3 without an exception"),
    "is killed": ("import os\nos.kill(os.getpid(), 9)", "port", "server.py was killed by SIGKILL"),
    "dies once it was ready": (
        serves(first="threading.Timer(2, lambda: os._exit(4)).start()"), "port", "server.py ended with code 4",
    ),
    "hangs": (serves(answer="time.sleep(600)"), URL, "does not answer .no answer in time"),
    "floods its output": ("while True: print('x' * 2000)", "port", "nothing answers on port PORT"),
    "floods who asks": (
        serves("flood = lambda c: [c.sendall(b'A' * 65536) for _ in iter(int, 1)]",
               answer="threading.Thread(target=flood, args=[connection]).start()"),
        URL, "answers no HTTP, not 200",
    ),
    "speaks no HTTP": (serves(answer="connection.sendall(b'SSH-2.0\\r\\n')"), URL, "answers no HTTP, not 200"),
    "lacks a package": ("import a_package_that_is_not_there", "port", "No module named 'a_package_that_is_not_there'"),
}  # fmt: skip


def drawn():
    """All faults once, and four of them again; each in the first role to start, or in one that starts after another."""
    draw = random.Random(40)
    names = [*FAULTS, *draw.sample(sorted(FAULTS), 20 - len(FAULTS))]
    return [(name, draw.choice(["first", "second"])) for name in names]


@pytest.mark.parametrize(("fault", "place"), drawn())
def test_the_error_names_the_role_and_the_cause(fault, place, tmp_path):
    program, ready, words = FAULTS[fault]
    port, other = free_port(), free_port()
    for name, text in (("server.py", program), ("good.py", serves()), ("train.py", SLEEPS)):
        (tmp_path / name).write_text(text)
    order = (",after=good", "") if place == "second" else ("", ",after=server")
    server = f"server=1,port={port},ready={ready},within=8s{order[0]}:python server.py"
    good = f"good=1,port={other},ready=port{order[1]}:python good.py"
    line = [FAB, "--search-root", HOME, "up", "--backend", "processes", "--role", server, "--role", good, "--"]
    environment = {**os.environ, "PYTHONPATH": str(HOME)}
    done = subprocess.run(
        [*line, "python", "train.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 1, done.stdout + done.stderr
    first = next(row for row in done.stderr.splitlines() if row.startswith("error: "))
    assert first.startswith(("error: server is not ready", "error: server: ")), first
    assert re.search(words.replace("PORT", str(port)).replace("MORE", str(port + 7)), first), first

"""The tutorial for two rented boxes, typed exactly as written, from the provider's `ssh` commands to the results."""

import json
import os
import pty
import re
import subprocess
import time

from tests.cluster import boxes as rented
from tests.cluster.control import FAB, HOME
from tests.cluster.test_bootstrap import bare_image, docker  # noqa: F401

PAGE = (HOME / "docs/tutorial/two-rented-boxes.md").read_text()
SHOWN, SETTINGS, *TYPED = re.findall(r"^```\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
SCRIPT = re.search(r"```python\n(.*?)```", (HOME / "docs/tutorial/laptop.md").read_text(), re.DOTALL)[1]
LIMIT_S = 240  # the script trains for one of the five minutes, and for longer if the processors are busy


def typed(line, folder, environment):
    """What a terminal shows for a line if each question is answered with yes; fails if the line fails."""
    ours, its = pty.openpty()
    process = subprocess.Popen(["sh", "-c", line], cwd=folder, env=environment, stdin=its, stdout=its, stderr=its)
    os.close(its)
    os.write(ours, 4 * b"yes\n")  # one question for each host
    shown = b""
    while True:
        try:
            piece = os.read(ours, 1 << 16)
        except OSError:  # the command has closed the terminal
            break
        shown += piece
    os.close(ours)
    words = shown.decode()
    assert process.wait() == 0, f"{line}: {words}"
    return words


def test_the_tutorial_goes_from_two_ssh_commands_to_results_at_home_in_five_minutes(bare_image, tmp_path):  # noqa: F811
    with rented.started(2, bare_image, tmp_path, user="root") as boxes:
        settings = SETTINGS
        for host, address, port in zip(
            boxes.hosts, *zip(*re.findall(r"root@(\S+) -p (\d+)", SHOWN), strict=True), strict=True
        ):
            mapped = docker("port", boxes.container(host), "22").rpartition(":")[2]
            settings = settings.replace(address, "127.0.0.1").replace(f"Port {port}", f"Port {mapped}")
        settings = settings.replace("~/.ssh/id_ed25519", str(tmp_path / "key"))
        (tmp_path / "new").write_text(f"{settings}    UserKnownHostsFile {tmp_path}/met\n")
        project = tmp_path / "project"
        project.mkdir()
        (project / "train.py").write_text(SCRIPT)
        path = f"{FAB.parent}:{os.environ['PATH']}"
        environment = {**os.environ, "PATH": path, "MUSTER_SSH_CONFIG": str(tmp_path / "new"), "TERM": "xterm"}
        environment |= {"UV_DEFAULT_INDEX": boxes.index}
        began = time.monotonic()
        for line in TYPED:
            at = time.monotonic()
            print(f"{line}{typed(line, project, environment)}\n{line.strip()}: {time.monotonic() - at:.1f} s")
        took = time.monotonic() - began
        (page,) = (project / "runs").glob("*-*/report.html")
        trained = json.loads(page.with_name("outcome.json").read_text())["seconds"]
        assert took - trained < LIMIT_S
        assert page.with_name("work").joinpath("last.pt").exists()
        assert [boxes.left(host) for host in boxes.hosts] == [[], []]

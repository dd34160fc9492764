"""If a command on a host does not end, the folder that the host waits for is named, and no other."""

import os
import subprocess

import pytest

from deploy.causes.finding import FAULT
from deploy.door import faults, hung
from deploy.preflight.checks import hosts as host_checks
from tests.started import started

# Starts, in its own namespace, an automounter that accepts calls and never answers; then runs the command.
DEAD = """
setsid python3 -c '
import ctypes, os, sys, time
way, back = os.pipe()
options = b"fd=%d,pgrp=%d,minproto=5,maxproto=5,indirect" % (back, os.getpgrp())
ctypes.CDLL(None).mount(b"auto", sys.argv[1].encode(), b"autofs", 0, options)
asks = os.getppid()
while os.getppid() == asks:
    time.sleep(0.1)
' "$1" </dev/null >/dev/null 2>&1 &
until grep -q "$1" /proc/mounts; do kill -0 $! || exit 9; sleep 0.1; done
shift
exec "$@"
"""
MOUNTS = ["mount autofs /net", "mount nfs4 /srv/data", "mount fuse.sshfs /home/u/far"]


def ask(argv, env):
    """The lines that a host with this environment answers."""
    with started([*argv, *hung.command()], stdout=subprocess.PIPE, env={**os.environ, **env}) as asked:
        lines = hung.read_answers(lambda wait_s: read(asked.stdout))
        if hung.parse(lines):
            asked.wait(20)  # the command ends what hangs
        asked.kill()
    return lines


def read(stream):
    line = stream.readline()
    if not line:
        raise faults.fault("lost", WHERE)
    return line.rstrip(b"\n")


WHERE = faults.FaultPlace("b", "10.0.0.2", 22, "u", "b")


def answered(*silent, more=()):
    """The lines of a host on which all folders except `silent` answer."""
    folders = ("/home/u", "/home/u/.muster", "/home/u/.muster/runs", "/net/tools/bin", "/usr/bin", *more)
    lines = [f"folder {number} {path}" for number, path in enumerate(folders)]
    answers = [f"answers {number}" for number, path in enumerate(folders) if path not in silent]
    return [*MOUNTS, *lines, "all", *answers]


def test_if_every_folder_answers_none_is_named(tmp_path):
    lines = ask([], {"HOME": str(tmp_path), "PATH": f"{tmp_path}/none:{os.environ['PATH']}"})
    assert f"folder 0 {tmp_path}" in lines
    assert hung.parse(lines) == []


@pytest.mark.long
def test_a_folder_behind_a_dead_automounter_is_named_in_time(tmp_path):
    net, home = tmp_path / "net", tmp_path / "home"
    net.mkdir()
    home.mkdir()
    (home / ".muster").symlink_to(net / "scratch")
    env = {"HOME": str(home), "PATH": f"{os.environ['PATH']}:{net}/tools"}
    lines = ask(["unshare", "--mount", "sh", "-c", DEAD, "sh", str(net)], env)
    if not lines:
        pytest.skip("nobody may mount an automounter here")
    own, tools = hung.parse(lines)
    assert own.words.startswith(f"{home}/.muster -> {net}/scratch (autofs on {net}) does not answer")
    assert own.fix.startswith(f"sudo umount -fl {net} ")
    assert tools.words.startswith(f"{net}/tools, which is in the PATH (autofs on {net}) does not answer")


@pytest.mark.parametrize(
    ("lines", "paths"),
    [
        (answered(), []),
        (answered("/net/tools/bin"), ["/net/tools/bin"]),
        (answered("/home/u/.muster", "/home/u/.muster/runs"), ["/home/u/.muster"]),
        (answered("/home/u", "/home/u/.muster", "/home/u/.muster/runs"), ["/home/u"]),
        (answered("/net/tools/bin", "/usr/bin"), []),
        (["folder x /a", "folder 1", "rubbish", "all"], []),
    ],
)
def test_a_silent_folder_is_named_once_and_never_on_a_busy_machine(lines, paths):
    assert [folder.path for folder in hung.parse(lines)] == paths


def test_the_fix_is_about_the_folder_and_its_mount():
    (found,) = hung.parse(answered("/net/tools/bin"))
    assert found.fix.startswith("sudo umount -fl /net   (")
    assert "take /net/tools/bin out of the PATH" in found.fix
    (found,) = hung.parse(
        [*answered("/home/u/.muster"), "lrwxrwxrwx 1 u u 9 Nov 26 05:55 /home/u/.muster -> /mnt/$(reboot)\x1b[2J"]
    )
    assert "\x1b" not in found.words + found.fix
    assert "mount | tail" in found.fix
    assert "$(" not in found.fix


def test_a_folder_that_hangs_is_a_separate_fault_in_preflight():
    (found,) = hung.parse(answered("/net/tools/bin"))
    failed = faults.fault("hung", WHERE, f"`sh -c ... home` did not end within 60 s: {found.words}", fix=found.fix)
    told = host_checks.engine("b", failed)
    assert (told.cause, told.level, told.or_else) == ("folder-silent", FAULT, ())
    assert "/net/tools/bin, which is in the PATH (autofs on /net) does not answer" in told.text
    assert told.fix.startswith("on b: sudo umount -fl /net")

"""Every stream from a host has a limit on size, rate or time; a host that exceeds it is at fault, for every command.

Large transfers that make progress are not cut off: the last tests check that.
"""

import re
import struct
import threading
import time
from contextlib import suppress

import psutil
import pytest

from deploy.core.errors import DeployError
from deploy.door import command, framing, session
from deploy.door import stream as session_stream
from deploy.host import lock
from deploy.job.inventory import Host
from deploy.preflight.probe import conversation
from tests.hostile.server import Answer, drip, flood, look

STREAMS = {
    "output without end": lambda over: Answer(flood(b"x" * 65536, 64 << 20)),
    "one line without end": lambda over: Answer(flood(b"run " + b"x" * 4092, 64 << 20)),
    "errors without end": lambda over: Answer(b"", flood(b"e" * 99 + b"\n", 64 << 20), code=1),
    "a byte now and then": lambda over: Answer(drip(b"x", 0.05, over), code=None),
    "it never ends": lambda over: Answer(b"home /home/u\n", code=None),
    "noise before the shell": lambda over: Answer(flood(b"motd\n" * 999, 64 << 20), marked=False),
}
# Each command, and the question at which the host misbehaves, after an honest answer about its home.
COMMANDS = {
    "status": "status",
    "status --run R": "runs",
    "gpus": "gpus",
    "runs": "runs",
    "stop --run R": "runs",
    "unlock --yes": "lock",
    "down --run R": "forget",
    "fetch --run R": "look",
    "attach --run R": "runs",
    "logs --run R": "rank-logs",
    "deploy --script train.py": "look",
    "deploy --resume R --args=--steps=1": "look",
    "push --folder .": "look",
    "preflight": "muster-probe",
    "bootstrap --yes": "bootstrap-look",
}
# All streams for a command that reads an answer, one that talks to a probe and one that holds a lock; the worst three
# streams for all commands.
FULL = ("status", "preflight", "unlock --yes")
WORST = ("output without end", "a byte now and then", "noise before the shell")
EVERYWHERE = [(command, asked, stream) for command, asked in COMMANDS.items() for stream in WORST]
ELSEWHERE = [(command, COMMANDS[command], stream) for command in FULL for stream in STREAMS if stream not in WORST]
AT_FIRST = [("status", "home", stream) for stream in STREAMS]


@pytest.fixture
def impatient(monkeypatch):
    """Limits short enough for a test; the code reads them at the moment it uses them."""
    monkeypatch.setattr(framing, "MOST_ANSWER", 1 << 20)
    monkeypatch.setattr(framing, "BEGIN_S", 0.5)
    monkeypatch.setattr(framing, "SLOWEST_OVER_S", 1.0)
    monkeypatch.setattr(framing, "_AFTER_S", 1.0)
    monkeypatch.setattr(lock, "_ANSWER_S", 0.5)
    monkeypatch.setattr(lock, "_RELEASE_S", 0.2)
    for name in ("FACTS_S", "LISTEN_S", "CONNECT_S", "CLOCK_S"):
        monkeypatch.setattr(conversation, name, 0.3)

    class Short(command.Pace):
        def __init__(self, seconds, moving, feeder):
            super().__init__(None if seconds is None else min(seconds, 1.0), moving, feeder)

    monkeypatch.setattr(command, "Pace", Short)


@pytest.mark.holds("stream-limits")
@pytest.mark.parametrize(("command", "question", "stream"), [*AT_FIRST, *EVERYWHERE, *ELSEWHERE])
def test_an_endless_stream_is_blamed_on_its_host(hostile, impatient, command, question, stream):
    over, met = threading.Event(), []

    def answer(asked):
        met.append(asked)
        return STREAMS[stream](over)

    rig = hostile({question: answer})
    done = rig.task(*command.split(), "--hosts", "evil", within_s=20)
    over.set()
    assert met, done.output
    assert done.code in (1, 3), done.output
    assert re.search(r"evil\b", done.output), done.output
    assert "no runs" not in done.output, "one that does not answer may have it"
    assert rig.harm("R") == []


def said_by(hostile, *command, answers, **how):
    """What a command prints about a host with these answers; also checks that nothing on this machine was harmed."""
    rig = hostile(answers, **how)
    done = rig.task(*command, "--hosts", "evil", within_s=20)
    assert done.code in (1, 3), done.output
    assert rig.harm("R") == []
    return done.output


def test_the_error_names_the_host_the_command_the_size_and_the_next_step(hostile, impatient):
    over = threading.Event()
    output = said_by(hostile, "status", answers={"": STREAMS["output without end"](over)})
    assert re.search(r"evil +it sent more than 1.0 MB to `sh -c", output)
    assert re.search(r"hint: log in and look at what answers there: `ssh (-F \S+ )?evil`", output)


def test_gigabytes_are_not_kept(hostile):
    rig = hostile({"": lambda asked: Answer(flood(b"x" * 65536, 3400 << 20))}, second={"": Answer(look())})
    done = rig.command("status", "--hosts", rig.hosts)
    assert "second" in done.out
    assert "it sent more than 17 MB" in done.output
    assert 20 < done.peak_mb < 200, done.peak_mb
    assert rig.servers["evil"].sent < 100 << 20


def test_a_command_that_never_begins_is_reported(hostile, impatient):
    rig = hostile({})
    rig.servers["evil"].begins = False
    done = rig.task("status", "--hosts", "evil", within_s=10)
    assert "it did not start a command within 0.5 s" in done.output


def test_a_push_that_the_host_does_not_read_ends(hostile, impatient, monkeypatch):
    """The host reads nothing that is sent to it."""
    rig = hostile({"cat": Answer(b"", code=None)})
    hosts = [Host("evil", "127.0.0.1", rig.servers["evil"].port)]
    with session.open_all(hosts, ask_home=False) as opened:
        evil = opened.all()["evil"]
        with pytest.raises(session.SshFault) as caught:
            evil.run(["cat"], input=(bytes(1 << 20) for _ in range(64)), moving=True)
    assert caught.value.kind == "slow"
    assert "`cat` moved" in caught.value.message


def test_a_probe_that_reads_nothing_or_answers_without_end_is_cut_off(hostile, impatient, monkeypatch):
    monkeypatch.setattr(session_stream, "TAKE_S", 0.5)
    monkeypatch.setattr(session_stream, "MOST_LINE", 1 << 20)
    rig = hostile({"deaf": Answer(b"", code=None), "long": Answer(flood(b"x" * 65536, 64 << 20))})
    hosts = [Host("evil", "127.0.0.1", rig.servers["evil"].port)]
    with session.open_all(hosts, ask_home=False) as opened:
        evil = opened.all()["evil"]
        with pytest.raises(session.SshFault, match="accepted no input for"):
            evil.stream(["deaf"]).write(bytes(4 << 20))
        with pytest.raises(session.SshFault, match="in one line to `long`"):
            evil.stream(["long"]).read_line(10)


@pytest.mark.parametrize("stream", ["it never ends", "output without end", "errors without end"])
def test_a_lock_request_that_is_never_answered_ends(hostile, impatient, stream):
    over = threading.Event()
    rig = hostile({"lock": STREAMS[stream](over)})
    hosts = [Host("evil", "127.0.0.1", rig.servers["evil"].port)]
    with session.open_all(hosts, ask_home=False) as opened, pytest.raises(DeployError, match=r"^evil: "):
        lock.lock_hosts(opened.all().values(), "R")


HELLO, ONCE = b"SSH-2.0-x\r\n", (True, *[False] * 16384)
GREETINGS = {
    "a line without end": lambda: flood(b"x" * 4096, 1 << 30),
    "lines without end": lambda: flood(b"hello\r\n", 1 << 30),
    "a byte now and then": lambda: drip(b"x", 0.05, threading.Event()),
    "a packet of 4 GB": lambda: (
        HELLO + struct.pack(">IB", 0xFFFFFFF0, 4) if first else b"y" * 65536 for first in ONCE
    ),
}


@pytest.mark.parametrize("greeting", GREETINGS)
@pytest.mark.parametrize("command", ["status", "trust"])
def test_an_endless_ssh_greeting_ends(hostile, monkeypatch, command, greeting):
    rig = hostile({}, greeting=GREETINGS[greeting])
    config = rig.folder / "ssh_config"
    config.write_text(config.read_text() + "  ConnectTimeout 1\n")
    done = rig.task(command, "--hosts", "evil", within_s=20)
    assert done.code == 1, done.output
    assert "evil" in done.output


def test_data_beyond_the_ssh_window_is_not_kept_in_memory(hostile, monkeypatch):
    """`ssh` drops the excess, or hangs up; meanwhile nobody on this machine reads."""
    monkeypatch.setattr("paramiko.Channel._wait_for_send_window", lambda self, size: size)
    rig = hostile({"big": lambda asked: Answer(flood(b"x" * 32768, 1 << 30))})
    blocked = threading.Event()
    with session.open_all([Host("evil", "127.0.0.1", rig.servers["evil"].port)], ask_home=False) as opened:
        evil = opened.all()["evil"]
        threading.Timer(2, blocked.set).start()
        with suppress(session.SshFault):
            done = evil.receive(["big"], lambda data: blocked.wait(10))
            assert done.code == 0
        ours = [each for each in psutil.process_iter(["cmdline"]) if "-M" in (each.info["cmdline"] or [])]
        assert 0 < max(each.memory_info().rss for each in ours) < 100 << 20


def steadily(seconds):
    """1.3 MB a second, less on a busy machine; more than 1 MB in any case."""
    end, sent = time.monotonic() + seconds, 0
    while time.monotonic() < end or sent <= 1 << 20:
        time.sleep(0.05)
        sent += 65536
        yield bytes(65536)


def swallow(asked):
    asked.input()
    return Answer()


def test_a_large_transfer_that_progresses_is_not_cut_off(hostile, impatient, monkeypatch):
    """More than the limit for an answer, for longer than an answer may take."""
    monkeypatch.setattr(framing, "SLOWEST_OVER_S", 0.5)
    monkeypatch.setattr(framing, "BEGIN_S", 30.0)  # this server confirms only with its answer that a command has begun
    rig = hostile({"give": lambda asked: Answer(steadily(1.5)), "swallow": swallow})
    sizes = []
    with session.open_all([Host("evil", "127.0.0.1", rig.servers["evil"].port)], ask_home=False) as opened:
        evil = opened.all()["evil"]
        assert evil.receive(["give"], lambda data: sizes.append(len(data))).code == 0
        assert evil.run(["swallow"], input=steadily(1.5), moving=True).code == 0
    assert sum(sizes) > 1 << 20


def test_a_host_that_waits_for_this_machine_is_not_slow(hostile, impatient, monkeypatch):
    """A reader that takes its time, and an input that is slow to produce."""
    monkeypatch.setattr(framing, "SLOWEST_OVER_S", 0.5)
    monkeypatch.setattr(framing, "BEGIN_S", 30.0)  # this server confirms only with its answer that a command has begun
    rig = hostile({"give": lambda asked: Answer([b"x"] * 3), "swallow": swallow})

    def slow():
        for _ in range(3):
            time.sleep(0.6)
            yield b"x"

    with session.open_all([Host("evil", "127.0.0.1", rig.servers["evil"].port)], ask_home=False) as opened:
        evil = opened.all()["evil"]
        assert evil.receive(["give"], lambda data: time.sleep(0.8)).code == 0
        assert evil.run(["swallow"], input=slow(), moving=True).code == 0

"""The probe as hosts get it: it is one text, answers questions, and ends by itself."""

import errno
import json
import os
import selectors
import socket
import subprocess
import sys
import time

import pytest

from deploy.causes.finding import FAULT, UNKNOWN
from deploy.core.errors import DeployError
from deploy.local.probe import LocalProbe
from deploy.preflight.checks import bandwidth
from deploy.preflight.judge import judge
from deploy.preflight.probe import conversation, sockets
from deploy.preflight.probe import text as preflight_stream
from deploy.preflight.probe.conversation import examine
from deploy.preflight.probe.facts import leftovers, pace
from deploy.preflight.probe.probe import Dial, next_hops
from deploy.preflight.probe.sockets import text as text_of
from deploy.preflight.request import PreflightRequest
from lab.waiting import alive, until
from tests.started import started

# These tests start programs.
pytestmark = pytest.mark.long


@pytest.fixture
def probe():
    """A probe on this machine that has been told its run and its host's name."""
    with LocalProbe("here", [sys.executable]) as started:
        started.send({"do": "facts", "run": "r1", "host": "here", "gpus": False})
        started.facts = started.read(20)
        yield started


def listen(probe):
    """Let the probe listen; returns its port."""
    probe.send({"do": "listen", "range": [20000, 60000], "samples": 1})
    return probe.read(20)["sampled"][0]


def dial(probe, port, **more):
    """Let the probe make one call; returns the result."""
    probe.send({"do": "connect", "targets": [{"id": 0, "address": "127.0.0.1", "port": port, "wait": 5, **more}]})
    return probe.read(20)["results"][0]


def test_the_probe_is_one_text_that_old_pythons_can_compile():
    text = preflight_stream.text().decode()
    assert "deploy.preflight.probe.facts" not in text
    compile(text, "probe", "exec", dont_inherit=True)
    assert not any(words in text for words in ("match ", ":=", "removeprefix"))


def test_the_facts_describe_this_machine(probe):
    assert probe.facts["hostname"] == socket.gethostname()
    assert ["127.0.0.1", 8] in probe.facts["interfaces"]["lo"]["addresses"]
    assert probe.facts["software"]["python"] == sys.version.split()[0]


def test_a_probe_answers_although_no_thread_with_the_default_stack_starts():
    stack = 1 << 46
    with LocalProbe("here", ["prlimit", f"--stack={stack}:{stack}", sys.executable]) as started:
        started.send({"do": "facts", "run": "r1", "host": "here", "gpus": False})
        has = started.read(20)["resources"]
    always = text_of("/proc/sys/vm/overcommit_memory").strip() == "1"
    assert (has["stack"], has["threads"]) == ([stack, stack], [16 if always else 0, 16])


def test_all_threads_start_with_ordinary_limits(probe):
    assert probe.facts["resources"]["threads"] == [16, 16]


@pytest.mark.long
def test_busy_cores_are_counted_before_the_load_average_follows():
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(6)]
    try:
        until(lambda: pace()[2] >= 6, "six threads that want a core", 20)
    finally:
        for process in busy:
            process.kill()
            process.wait()


def test_a_process_of_a_muster_run_is_reported_with_the_run():
    argv = [sys.executable, "-c", "input()", "-m", "torchrun"]
    environment = {"MUSTER_RUN_ID": "train-1"}
    with started(argv, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment) as other:
        with LocalProbe("here", [sys.executable]) as probe:
            probe.send({"do": "facts", "run": "r1", "host": "here", "gpus": False})
            rows = {row[0]: row[2] for row in probe.read(20)["leftovers"]}
        other.communicate()
    assert rows[other.pid].startswith(f"MUSTER_RUN_ID=train-1 {sys.executable} -c")


@pytest.mark.parametrize(
    ("words", "is_run"),
    [
        (["/usr/bin/torchrun", "--nproc-per-node", "2", "train.py"], True),
        (["-u", "-m", "torch.distributed.run", "train.py", "--out", "/home/me/muster"], True),
        (["-P", "-m", "muster.trainer.node.launch.torchrun", "--", "train.py"], True),
        (["/usr/bin/muster", "deploy", "-H", "a,b", "torchrun", "train.py"], False),
        (["-m", "muster", "deploy", "-H", "a,b", "torchrun", "train.py"], False),
        (["-f", "/home/me/torchrun.log"], False),
    ],
)
def test_a_process_that_deploys_a_run_or_reads_its_log_is_not_a_leftover_run(words, is_run):
    argv = [sys.executable, "-c", "input(0)", *words]
    with started(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as other:
        assert other.stdout.read(1) == b"0"
        pids = [row[0] for row in leftovers()]
        other.communicate()
    assert (other.pid in pids) == is_run


def test_a_probes_listener_is_recognised_by_its_token(probe):
    result = dial(probe, listen(probe), size=1 << 20)
    assert (result["outcome"], result["host"], result["seen"]) == ("ok", "here", "127.0.0.1")
    assert result["both_s"] >= result["send_s"] > 0


class Still:
    """A stub of the probe's event loop that does nothing."""

    run = "r1"

    def after(self, delay, work): ...

    def watch(self, what, mask, tell): ...

    def forget(self, what): ...


def test_a_probe_that_reads_late_still_recognises_another_probe():
    results, size = [], 1 << 17
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as caller:
        caller.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 * size)
        caller.connect(server.getsockname())
        answering = server.accept()[0]
        dial = Dial(Still(), {"id": 0, "size": size}, results.append)
        dial.socket, dial.stage = caller, "silent"
        answering.sendall(json.dumps({"run": "r1", "host": "here", "seen": "127.0.0.1"}).encode() + b"\n")
        dial.ready(selectors.EVENT_READ)
        answering.sendall(b"got\n" + bytes(size))
        until(lambda: len(caller.recv(2 * size, socket.MSG_PEEK)) == size + 4, "all of it to lie there")
        while not results:
            dial.ready(selectors.EVENT_READ)
        answering.close()
    assert results[0]["outcome"] == "ok"


@pytest.mark.parametrize(("files", "short"), [("40:40", True), ("40:4000", False)])
def test_calls_without_free_file_descriptors_are_reported_and_a_soft_limit_is_raised(files, short):
    with socket.create_server(("127.0.0.1", 0), backlog=100) as silent:
        port = silent.getsockname()[1]
        with LocalProbe("here", ["prlimit", f"--nofile={files}", sys.executable]) as started:
            started.send({"do": "facts", "run": "r1", "host": "here", "gpus": False})
            assert started.read(20)["resources"]["nofile"][0] == 40
            call = {"address": "127.0.0.1", "port": port, "wait": 0.5}
            started.send({"do": "connect", "targets": [{**call, "id": number} for number in range(60)]})
            outcomes = [result["outcome"] for result in started.read(20)["results"]]
    assert (len(outcomes), "no-address" in outcomes) == (60, short)
    assert set(outcomes) <= {"silent", "no-address"}


def test_a_kernel_without_ipv6_cannot_call_an_ipv6_address(monkeypatch):
    def none(*family):
        raise OSError(errno.EAFNOSUPPORT, "Address family not supported by protocol")

    results = []
    monkeypatch.setattr(socket, "socket", none)
    Dial(Still(), {"id": 0, "address": "fd00::7", "port": 29500}, results.append).attempt()
    assert results[0]["outcome"] == "no-family"


def test_a_closed_port_a_strangers_port_and_a_silent_port_are_told_apart(probe):
    with socket.create_server(("127.0.0.1", 0)) as silent, socket.create_server(("127.0.0.1", 0)) as free:
        gone = free.getsockname()[1]
        free.close()
        assert dial(probe, gone)["outcome"] == "refused"
        assert dial(probe, silent.getsockname()[1], wait=0.5)["outcome"] == "silent"
    line = (
        "import socket as s; a = s.create_server(('', 0)); print(a.getsockname()[1], flush=True); c = a.accept()[0]; "
    )
    server = subprocess.Popen([sys.executable, "-c", line + "c.sendall(b'SSH-2.0-x\\n')"], stdout=subprocess.PIPE)
    assert dial(probe, int(server.stdout.readline()))["outcome"] == "stranger"
    server.wait()
    server.stdout.close()


def test_a_port_in_use_is_reported_with_its_holder(probe):
    with socket.create_server(("", 0)) as taken:
        port = taken.getsockname()[1]
        probe.send({"do": "listen", "ports": [port], "range": [20000, 60000], "samples": 0})
        failed = probe.read(20)["failed"][str(port)]
    assert failed["error"] == "in-use"
    assert f"(pid {os.getpid()})" in failed["holder"]


@pytest.mark.long
def test_a_firewall_that_is_slow_to_list_does_not_silence_a_host(tmp_path, monkeypatch):
    for program in ("iptables", "ip6tables", "nft"):
        (tmp_path / program).write_text("#!/bin/sh\nexec sleep 20\n")
        (tmp_path / program).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with LocalProbe("here", [sys.executable]) as started:
        started.send({"do": "firewall"})
        answer = started.read(conversation.LISTEN_S)
    assert (answer["read"], answer["rules"]) == (False, [])


def test_a_probe_that_gets_questions_lives_and_a_forgotten_one_ends():
    with LocalProbe("here", [sys.executable]) as started:
        started.send({"do": "facts", "run": "r1", "host": "here", "gpus": False, "life": 1.5})
        started.read(20)
        for _ in range(5):
            time.sleep(0.5)
            started.send({"do": "clock"})
            assert started.read(5)["did"] == "clock"
        pid = started._process.pid
        until(lambda: not alive(pid), "the probe to end", 10)


def test_a_probe_among_many_hosts_lives_long_enough_for_a_round_with_each():
    class Host:
        def __init__(self, number):
            self.name, self.asked = f"h{number}", []

        def send(self, question):
            self.asked.append(question)

        def read(self, wait_s):
            raise DeployError("it says nothing", "")

    hosts = [Host(number) for number in range(64)]
    examine(hosts, PreflightRequest(), measure=True)
    assert hosts[0].asked[0]["life"] >= 64 * 2 * bandwidth.WAIT_S


def test_a_probe_ends_when_its_connection_is_closed():
    started = LocalProbe("here", [sys.executable])
    pid = started._process.pid
    started.close()
    until(lambda: not alive(pid), "the probe to end")


def test_a_missing_python_is_an_error_that_names_the_host():
    with pytest.raises(DeployError, match="nowhere"), LocalProbe("nowhere", ["sh", "-c", "exit 3"]) as started:
        started.read(5)


@pytest.mark.parametrize("at", [1, 3, 5])
def test_setting_this_machines_clock_during_questions_shifts_no_hosts_clock(monkeypatch, at):
    class Host:
        name = "there"

        def send(self, question): ...

        def read(self, wait_s):
            return {"did": "clock", "time": true_time()}

    true_time, asked = time.time, []

    def set_back():
        asked.append(0)
        return true_time() - 3600 * (len(asked) > at)

    monkeypatch.setattr(conversation.time, "time", set_back)
    ((ahead, _),) = conversation._clocks(conversation._Talk([Host()], lambda _: None)).values()
    assert abs(ahead) < 1


def test_a_preflight_waits_for_a_port_of_another_preflight_and_says_so(probe):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    probe.send({"do": "listen", "ports": [port], "range": [20000, 60000], "samples": 0})
    assert probe.read(20)["ports"] == [port]
    said = []

    def say(words):
        said.append(words)
        if f"another preflight has port {port} on there" in words:
            probe.close()

    with LocalProbe("there", [sys.executable]) as second:
        answers = examine([second], PreflightRequest(port=port), say=say)
    assert any("waiting" in words for words in said)
    assert (answers.listens["there"]["ports"], answers.listens["there"]["failed"]) == ([port], {})


def test_a_port_held_by_another_preflight_is_no_fault_but_a_strangers_is(probe, monkeypatch):
    monkeypatch.setattr(conversation, "OTHERS_S", 0.0)
    port = listen(probe)
    with socket.create_server(("", 0)) as stranger, LocalProbe("there", [sys.executable]) as second:
        answers = examine([second], PreflightRequest(port=port))
        finding = judge(answers).first
        with LocalProbe("there", [sys.executable]) as third:
            other = judge(examine([third], PreflightRequest(port=stranger.getsockname()[1]))).first
    assert (finding.cause, finding.level, "another muster preflight" in finding.text) == ("port-busy", UNKNOWN, True)
    assert "kill" not in finding.fix
    assert (other.cause, other.level) == ("port-busy", FAULT)


ARP = "IP address HW type Flags HW address Mask Device\n{}\n"
ROUTES = "Iface Destination Gateway Flags RefCnt Use Metric Mask\neth0 000A0A0A 00000000 1 0 0 0 00FFFFFF\n{}"
STALE, OTHER = "10.10.10.7 0x1 0x0 00:00:00:00:00:00 * eth1", "10.10.10.7 0x1 0x2 02:00:00:00:00:07 * eth1"


@pytest.mark.parametrize(("rows", "outcome", "card"), [
    ("10.10.10.7 0x1 0x0 00:00:00:00:00:00 * eth0", "no-arp", None), (STALE, "dropped", None), (OTHER, "dropped", None),
    (f"10.10.10.7 0x1 0x2 02:00:00:00:00:09 * eth0\n{STALE}", "dropped", "02:00:00:00:00:09"),
    (f"{OTHER}\n10.10.10.7 0x1 0x0 00:00:00:00:00:00 * eth0", "no-arp", None),
])  # fmt: skip
def test_arp_entries_of_another_interface_do_not_explain_a_call(monkeypatch, rows, outcome, card):
    tables = {"/proc/net/arp": ARP.format(rows), "/proc/net/route": ROUTES.format("")}
    monkeypatch.setattr(sockets, "text", tables.__getitem__)
    results = [{"id": 0, "outcome": "dropped"}]
    next_hops([{"id": 0, "address": "10.10.10.7"}], results)
    assert (results[0]["outcome"], results[0].get("card")) == (outcome, card)

"""One upload, shared between real OpenSSH servers: who gets what from whom, what is resent, and what is left."""

import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from deploy.door import session
from deploy.send.road import line, routes
from deploy.send.road.cargo import Cargo, Part, of_bytes
from deploy.send.road.road import Road
from deploy.send.road.routes import HERE
from lab.waiting import until
from tests.started import started

MB = 1 << 20
HOME = Path(__file__).resolve().parents[2]
PIECES = 24
# Prints the digest of the input once all of it has arrived.
ARGV = ["sh", "-c", "sha256sum | cut -c -64"]


class Gate:
    """Data whose pieces after the first `most` come slowly, one by one, until `open` is set: it holds a push there."""

    def __init__(self, data, most=0):
        self.data, self.most, self.open = data, most * MB, threading.Event()
        self.read_so_far, self.closed = 0, bool(most)

    def cargo(self):
        part = of_bytes(self.data)
        pieces = part.pieces
        gated = Part(len(self.data), self._read)
        gated._pieces = pieces
        return Cargo([gated])

    def _read(self, at, size):
        if self.closed and at >= self.most:
            self.open.wait(3.0)  # orders to the host are delayed as long
        self.read_so_far += size
        return self.data[at : at + size]


class Push:
    """A push in its own threads: `told` has, by host, the bytes and their source; `notes` has the messages."""

    def __init__(self, servers, cargo, late=None):
        self.servers, self.cargo, self.notes, self.told = servers, cargo, [], {}
        self.late, self.argv = late, ARGV
        self.ended, self.fault = {}, {}

    def tell(self, host, sent, total, source=""):
        self.told[host] = (sent, source)

    def run(self, offering=()):
        """Push to `servers`; `offering`: further hosts, which lack nothing."""
        with session.open_all([server.host for server in (*self.servers, *offering)]) as opened:
            sessions = list(opened.all().values())
            with Road(len(sessions), self.tell, self.notes.append) as road:
                road.offer(sessions[len(self.servers) :])
                results = session.on_all(sessions[: len(self.servers)], lambda each: self.deliver(road, each))
        self.ended, self.fault = results.values, results.faults
        return self

    def deliver(self, road, each):
        """Deliver to one host; if `late` is given, every host but the first waits until it is set."""
        if self.late and each.host.name != self.servers[0].name:
            assert self.late.wait(60)
        return road.deliver(each, self.argv, self.cargo)

    def begin(self):
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()
        return self

    def end(self):
        self.thread.join(90)
        assert not self.thread.is_alive()
        return self

    @property
    def from_here(self):
        return sum(each.sources[HERE] for each in self.ended.values())

    @property
    def digests(self):
        return {name: each.done.out.strip() for name, each in self.ended.items()}


def pieces(server):
    """The piece files on a host."""
    return [path for path in (server.home / ".muster/road").glob("*/pieces/*") if path.is_file()]


def keys(hosts):
    """The key folders of pushes to these hosts; a concurrent test has others."""
    gives = [path / "give" for path in Path("/dev/shm").glob("muster-road-*")]
    texts = {give.parent: give.read_text() for give in gives if give.is_file()}
    return [path for path, text in texts.items() if any(str(host.home) in text for host in hosts)]


def working(hosts):
    """The command lines that run on these hosts."""
    homes, running = {str(host.home) for host in hosts}, []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get("HOME") in homes:
                running.append(process.cmdline())
    return running


def three(server):
    """Three hosts; afterwards no process and no key of a push may be left."""
    made = [server(name=name) for name in "abc"]
    yield made
    until(lambda: not working(made), "no process of a push", 60)
    until(lambda: not keys(made), "no key of a push", 60)


@pytest.fixture
def hosts(server):
    yield from three(server)


def some(size):
    return random.Random(size).randbytes(size)


def test_this_machine_sends_one_copy_and_each_host_gets_all_of_it(hosts):
    data = some(PIECES * MB + 12_345)
    done = Push(hosts, Cargo([of_bytes(data)])).run()
    assert not done.fault
    assert done.digests == dict.fromkeys("abc", hashlib.sha256(data).hexdigest())
    assert done.from_here == len(data)
    assert [server.home for server in hosts if pieces(server)] == []
    assert all(total == len(data) for total, _ in done.told.values())


def begun(hosts, data, folder, most=PIECES, argv=ARGV):
    """A process that sends `data`; the pieces after the first `most` come one by one."""
    (folder / "data").write_bytes(data)
    script = folder / "cut.py"
    script.write_text(
        "import sys\nfrom tests.ssh.test_road import *\nfrom deploy.job.cluster import from_flag\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "class At:\n    def __init__(self, host): self.name, self.host = host.name, host\n"
        f"data = Path({str(folder / 'data')!r}).read_bytes()\n"
        f"push = Push([At(host) for host in from_flag(sys.argv[1]).hosts], Gate(data, {most}).cargo())\n"
        f"push.argv = {argv!r}\n"
        "push.run()\n"
    )
    where = ",".join(host.host.destination for host in hosts)
    return subprocess.Popen([sys.executable, script, where], cwd=HOME, env={**os.environ, "PYTHONPATH": str(HOME)})


def test_an_interrupted_push_continues_from_the_bytes_that_arrived(hosts, tmp_path):
    data = some(PIECES * MB)
    cut = begun(hosts, data, tmp_path, 20)
    until(lambda: all(len(pieces(host)) >= 19 for host in hosts), "most of it on all hosts", 60)
    cut.send_signal(signal.SIGKILL)
    cut.wait()
    done = Push(hosts, Cargo([of_bytes(data)])).run()
    assert done.digests == dict.fromkeys("abc", hashlib.sha256(data).hexdigest())
    assert done.from_here <= 5 * MB + 0.15 * len(data)


# The command waits until a test releases it, and stores the digest of its input.
SLOW = ["sh", "-c", "until [ -e $HOME/go ]; do sleep 0.1; done; "
        "sha256sum | cut -c -64 >$HOME/sum.new; mv $HOME/sum.new $HOME/sum"]  # fmt: skip
WHOLE = hashlib.sha256(some(PIECES * MB)).hexdigest()


@pytest.fixture
def all_up(hosts, tmp_path):
    """The process of a push: everything has left this machine, and no host has finished."""
    sending = begun(hosts, some(PIECES * MB), tmp_path, argv=SLOW)
    until(lambda: [*map(stays, keys(hosts))] == [True] * 3, "word that hosts may go on alone", 60)
    yield sending
    sending.kill()
    sending.wait()
    sums(hosts)


def sums(hosts):
    """Release the commands; returns the digests of what they received."""
    for host in hosts:
        (host.home / "go").touch()
    for host in hosts:
        until((host.home / "sum").exists, f"the end of the command on {host.name}", 30)
    return [(host.home / "sum").read_text().strip() for host in hosts]


def stays(folder):
    return (folder / "stay").exists()


def test_hosts_finish_alone_once_the_first_copy_is_up(hosts, all_up):
    all_up.kill()
    all_up.wait()
    assert sums(hosts) == [WHOLE] * 3
    until(lambda: not any(map(pieces, hosts)), "no piece: nothing is missing", 30)


def test_after_ctrl_c_no_host_continues_alone(hosts, all_up):
    all_up.send_signal(signal.SIGINT)
    all_up.wait(20)
    until(lambda: not keys(hosts), "no key of a push", 3)
    assert WHOLE not in sums(hosts)


def test_a_push_takes_over_from_one_that_continues_alone(hosts, all_up):
    all_up.kill()
    data = some(PIECES * MB)
    done = Push(hosts, Cargo([of_bytes(data)])).run()
    assert done.digests == dict.fromkeys("abc", hashlib.sha256(data).hexdigest())
    assert done.from_here <= 5 * MB, "what a host lacks until another has answered"


def test_an_interrupted_host_gets_the_rest_from_hosts_that_have_it(hosts):
    data = some(PIECES * MB)
    gate = Gate(data, 16)
    push = Push(hosts, gate.cargo()).begin()
    until(lambda: all(len(pieces(host)) >= 12 for host in hosts), "the first pieces on all hosts", 60)
    (own,) = keys(hosts[2:])
    os.kill(int(own.name.split("-")[-2]), signal.SIGKILL)
    until(lambda: "c" in push.told and not keys(hosts[2:]), "its end", 30)
    gate.open.set()
    push.end()
    assert list(push.fault) == ["c"]
    again = Push(hosts[2:], Cargo([of_bytes(data)])).run(offering=hosts[:2])
    assert again.digests == {"c": hashlib.sha256(data).hexdigest()}
    assert again.from_here <= 3 * MB
    assert sorted(again.told) == ["c"], "who gets nothing shows no progress"
    assert not any(map(pieces, hosts)), "nothing is missing any more"


def test_a_host_with_a_killed_push_process_fails_alone_and_leaves_nothing(hosts):
    data, late = some(PIECES * MB), threading.Event()
    gate = Gate(data, 8)
    push = Push(hosts, gate.cargo(), late).begin()
    until(lambda: len(pieces(hosts[0])) >= 8, "the first pieces on the first host", 60)
    late.set()
    until(lambda: len(push.told) == 3 and all(sent >= 7 * MB for sent, _ in push.told.values()), "a start", 60)
    (own,) = keys(hosts[:1])
    os.kill(int(own.name.split("-")[-2]), signal.SIGKILL)
    until(lambda: any(" got no more from a" in note for note in push.notes), "a word about its neighbour", 30)
    gate.open.set()
    push.end()
    assert list(push.fault) == ["a"]
    assert push.digests == dict.fromkeys("bc", hashlib.sha256(data).hexdigest())
    assert push.from_here <= len(data) - 7 * MB, "who has the first pieces passes them on"


def test_wrong_bytes_from_a_neighbour_reach_no_command_and_it_is_named(hosts):
    data, late = some(PIECES * MB), threading.Event()
    gate = Gate(data, 8)
    push = Push(hosts, gate.cargo(), late).begin()
    until(lambda: push.told.get("a", (0, ""))[0] >= 7 * MB, "its word that it has them", 60)
    for path in [path for path in pieces(hosts[0]) if not path.name.startswith(".")]:
        path.write_bytes(b"x" * path.stat().st_size)
    late.set()
    until(lambda: push.notes, "a word about it", 60)
    gate.open.set()
    push.end()
    # The host with the wrong bytes may deceive itself.
    assert {name: push.digests[name] for name in "bc"} == dict.fromkeys("bc", hashlib.sha256(data).hexdigest())
    assert all("got other bytes from a than it asked for" in note for note in push.notes)
    assert not any(each.sources["a"] for each in push.ended.values())


def test_a_changed_piece_on_a_host_is_not_used(hosts):
    data = some(PIECES * MB)
    cargo = Cargo([of_bytes(data)])
    for host in hosts:
        place = host.home / ".muster/road" / os.uname().nodename / "pieces"
        place.mkdir(parents=True)
        for piece in cargo.pieces[:5]:
            (place / piece.digest).write_bytes(b"x" * piece.size)
    done = Push(hosts, cargo).run()
    assert done.digests == dict.fromkeys("abc", hashlib.sha256(data).hexdigest())


@pytest.mark.parametrize("push_lives", [True, False])
def test_partial_files_of_another_push_stay_while_that_push_lives(hosts, push_lives):
    with started(["true"]) as ended:
        pid = os.getpid() if push_lives else ended.pid
    pieces_there = hosts[0].home / ".muster/road" / os.uname().nodename / "pieces"
    pieces_there.mkdir(parents=True)
    coming = pieces_there / f".{pid}.{'0' * 64}.here.coming"
    coming.write_bytes(b"x")
    store = str(pieces_there.parent.resolve())
    of_store = subprocess.run(["cksum"], input=store, capture_output=True, text=True, check=True).stdout.split()[0]
    own = Path(tempfile.mkdtemp(prefix=f"muster-road-{os.uname().nodename}-{of_store}-{pid}-", dir="/dev/shm"))
    try:
        assert not Push(hosts[:1], Cargo([of_bytes(b"some")])).run().fault
        assert (own.exists(), coming.exists()) == (push_lives, push_lives)
    finally:
        shutil.rmtree(own, ignore_errors=True)


@pytest.fixture
def standing(hosts):
    """A push that is held with open ports, so that a test can try to connect."""
    gate = Gate(some(PIECES * MB), 8)
    push = Push(hosts, gate.cargo()).begin()
    until(lambda: all(len(pieces(host)) >= 7 for host in hosts), "the first pieces on all hosts", 60)
    yield push
    gate.open.set()
    push.end()
    assert not push.fault


def ports():
    """The ports on which pushes listen."""
    return sorted(
        {
            at.laddr.port
            for at in psutil.net_connections("tcp")
            if at.status == "LISTEN" and 29800 <= at.laddr.port < 29900
        }
    )


def command(port, key):
    options = ("IdentitiesOnly=yes", "BatchMode=yes", "StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null")
    return ["ssh", "-F", "none", "-p", str(port), "-i", str(key), *(word for each in options for word in ("-o", each))]


def ask(port, key, *words):
    line = [*command(port, key), "127.0.0.1", *words]
    return subprocess.run(line, capture_output=True, text=True, input="", timeout=20)


@pytest.mark.holds("road-closed")
def test_nobody_else_can_connect_to_a_pushs_servers(standing, client, tmp_path):
    open_ports = ports()
    assert open_ports
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "other"], check=True)
    for port in open_ports:
        for key in (client.key, tmp_path / "other"):
            done = ask(port, key, "echo in")
            assert done.returncode == 255, done
            assert "in" not in done.stdout.split()


def test_a_neighbour_gets_pieces_of_this_push_and_nothing_else(standing):
    tried = 0
    own = next(path for path in keys(standing.servers) if (path / "pid-sshd").exists())
    for folder in keys(standing.servers):
        for port in ports():
            line = command(port, folder / "me")
            secret = hashlib.sha256(b"not of this push").hexdigest()
            for words in (f"{secret} 1\n", "../../../etc/passwd 10\n", f"{own}/me 400\n", "$(id) 1\n", "\n", ". 0\n"):
                done = subprocess.run([*line, "127.0.0.1", "cat /etc/passwd"], input=words, capture_output=True,
                                      text=True, timeout=20)  # fmt: skip
                tried += done.returncode != 255
                assert "root:" not in done.stdout
                assert "PRIVATE" not in done.stdout
                assert len(done.stdout.splitlines()) <= 1, done.stdout
            forwarded = subprocess.run(
                [*line, "-o", "ExitOnForwardFailure=yes", "-W", "127.0.0.1:22", "127.0.0.1"],
                input="", capture_output=True, text=True, timeout=20,
            )  # fmt: skip
            assert "SSH-2.0" not in forwarded.stdout
    assert tried, "no neighbour got as far as the command: this test would show nothing"


def test_a_host_without_its_own_server_is_served_from_this_machine(hosts, monkeypatch):
    data = some(PIECES * MB)
    # No port is left for the push's servers.
    monkeypatch.setattr("deploy.send.road.line.PORTS", range(1, 1))
    done = Push(hosts, Cargo([of_bytes(data)])).run()
    assert done.digests == dict.fromkeys("abc", hashlib.sha256(data).hexdigest())
    # A piece that was on its way when its host was given a source counts as the source's.
    assert 3 * (len(data) - MB) <= done.from_here <= 3 * len(data)
    assert any("this machine" in note for note in done.notes)


def test_a_push_shows_the_source_for_each_host(hosts):
    done = Push(hosts, Cargo([of_bytes(some(PIECES * MB))])).run()
    assert sorted(source == HERE for _, source in done.told.values()) == [False, False, True]
    assert json.dumps(sorted(done.told))
    assert routes.HERE == "this machine"


def test_a_host_reached_by_a_link_local_address_serves_at_its_other_addresses(tmp_path):
    listing, key = f"{'a' * 64} 5\n", "ssh-ed25519 " + "A" * 68
    words = line._SCRIPT("road", "token", str(len(listing)), "5", "7", " ".join(map(str, line.PORTS)))
    reached = "fe80::1%eth0 50000 fe80::1%eth0 22"
    given = {"HOME": str(tmp_path), "PATH": os.environ["PATH"], "SSH_CONNECTION": reached}
    orders = f"{listing}serve 1 {key}\nover\n"
    answer = subprocess.run(words, env=given, input=orders, capture_output=True, text=True, timeout=30).stdout
    serving = next(row for row in answer.splitlines() if row.startswith("serving 1 "))
    assert line.SERVING.fullmatch(serving.removeprefix("serving 1 "))

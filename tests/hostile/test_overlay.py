"""A stranger at the ports of an overlay network: real sockets, with relay and end as the container runs them."""

import signal
import socket
import subprocess
import sys
import time

import pytest

from lab import waiting


def bound(address, port=0):
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    made.bind((address, port))
    made.settimeout(5)
    return made


@pytest.fixture
def relayed():
    """Two sockets of a pair, a stranger's socket with the same port, the relay's address and the relay's process."""
    first = bound("127.0.0.2")
    port = first.getsockname()[1]
    second, stranger, between = bound("127.0.0.3", port), bound("127.0.0.4", port), bound("127.0.0.1")
    words = ["relay", str(between.fileno()), "127.0.0.2", "127.0.0.3", str(port)]
    line = [sys.executable, "-m", "muster.trainer.node", "overlay", *words]
    process = subprocess.Popen(line, pass_fds=[between.fileno()], stdin=subprocess.DEVNULL)
    yield first, second, stranger, between.getsockname(), process
    process.kill()
    process.wait()
    for one in (first, second, stranger, between):
        one.close()


@pytest.mark.holds("overlay-strangers")
def test_a_stranger_at_the_relay_neither_cuts_the_pair_off_nor_reaches_it(relayed):
    first, second, stranger, relay, _ = relayed
    liar = bound("127.0.0.2")  # the right host, but another port
    for number in range(200):
        stranger.sendto(b"stranger %d" % number, relay)
        liar.sendto(b"liar %d" % number, relay)
        for sender, receiver in ((first, second), (second, first)):
            sender.sendto(b"packet %d" % number, relay)
            assert receiver.recvfrom(100) == (b"packet %d" % number, relay)
    for one in (first, second, stranger, liar):
        one.setblocking(False)
        with pytest.raises(BlockingIOError):
            one.recvfrom(100)
    liar.close()


def test_the_relay_serves_a_talking_pair_even_after_its_own_host_is_done(relayed):
    first, second, _, relay, process = relayed
    first.sendto(b"it serves", relay)
    assert second.recvfrom(100)[0] == b"it serves"
    process.send_signal(signal.SIGTERM)
    for number in range(20):
        first.sendto(b"packet %d" % number, relay)
        assert second.recvfrom(100) == (b"packet %d" % number, relay)
        assert process.poll() is None
    process.wait(15)


@pytest.mark.holds("overlay-strangers")
def test_only_root_and_the_runs_user_reach_the_overlays_socket(tmp_path):
    name = f"muster-overlay-test-{time.monotonic_ns():x}"
    line = [sys.executable, "-m", "muster.trainer.node", "overlay", "serve", name, "muster00000000", "12345"]
    process = subprocess.Popen(line)
    ask = (
        "import os,socket,sys,time\n"
        "os.setuid(int(sys.argv[2]))\n"
        "s=socket.socket(socket.AF_UNIX)\n"
        "s.connect('\\0'+sys.argv[1])\n"
        "s.settimeout(3)\n"
        "try:\n s.sendall(b'{\"do\": \"held\"}\\n'); print(s.recv(100).decode() or 'closed')\n"
        "except TimeoutError: print('silence')\n"
        "except OSError: print('closed')\n"
    )

    def answer(uid):
        return subprocess.run(
            [sys.executable, "-c", ask, name, str(uid)], capture_output=True, text=True
        ).stdout.strip()

    try:
        waiting.until(lambda: answer(0) == '{"nodes": 0}', "the socket")
        assert answer(54321) == "closed"
        assert answer(12345) == "silence", "the run's own user keeps it alive, and asks for nothing"
    finally:
        process.kill()
        process.wait()

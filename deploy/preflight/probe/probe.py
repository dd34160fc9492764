"""The program that preflight runs on each host: it reports what the host sees and reaches. It needs only Python 3.8.

conversation.py sends it as text to a Python on the host (text.py puts facts.py and sockets.py in place of their
imports). It then asks questions as JSON lines, with one answer each: `facts`, `listen`, `connect`, `clock`, `firewall`,
`quit`. The probe opens ports only from `listen` until its end, and writes no file. It ends when its input closes, or
when no question has come for as long as its `life`.
"""

import errno
import heapq
import json
import os
import resource
import selectors
import socket
import struct
import threading
import time

from .facts import call_all, facts, resolve_all
from .sockets import answers_as_probe, firewall, holder, neighbours, source_toward, way

WAIT_S = 2.2  # how long most calls wait
RETRY_AT_S = (0.0, 0.6, 1.2)
LIFE_S = 90.0
# The stack size of the probe's own threads: with an odd stack limit, no thread of the default size would start.
STACK = 8 << 20
NEIGHBOUR_S = 2.5
# Limits, because any program may call these ports, or answer on them.
MOST_PAYLOAD, MOST_GREETING = 64 << 20, 1 << 16
REASONS = {
    errno.ECONNREFUSED: "refused",
    errno.ENETUNREACH: "no-route",
    errno.EHOSTUNREACH: "unreachable",
    errno.ENOPROTOOPT: "unreachable",  # ICMP said that the host has no TCP: a firewall is set to answer so
    errno.EHOSTDOWN: "unreachable",
    errno.EADDRNOTAVAIL: "no-address",
    errno.EMFILE: "no-address",  # as with ports: a call made alone will get a file descriptor
    errno.EACCES: "forbidden",
    errno.EPERM: "forbidden",
    errno.ETIMEDOUT: "dropped",
    errno.ECONNRESET: "reset",
    errno.EPIPE: "reset",
    errno.EAFNOSUPPORT: "no-family",
    errno.EINVAL: "no-scope",
}


def reason(code):
    """Return preflight's word for an error number of connect."""
    return REASONS.get(code) or errno.errorcode.get(code, "failed").lower()


def reason_of(fault):
    """Return preflight's word for an error of bind."""
    return {errno.EADDRINUSE: "in-use", errno.EACCES: "forbidden"}.get(fault.errno, fault.strerror)


def packets(connection):
    """Read a connection's `struct tcp_info` from the kernel: segments sent and resent, rate, round trip.

    These values stay right even if this process has to wait for a core.
    """
    info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 220)
    if len(info) < 168:
        return {}
    idle, other, again, acked, received, sent, trip, rate = struct.unpack("=52x2I40xI16x2QI8xI8xQ", info[:168])
    # `twice`: segments that arrived twice, so they were resent without having been lost.
    (twice,) = struct.unpack("=I", info[216:220] or bytes(4))
    # If the kernel has no sample, all bits are set.
    trip_ms = trip / 1000 if trip < 0xFFFFFFFF else 0.0
    more = {"acked": acked, "received": received, "idle_ms": min(idle, other)}
    return dict(more, again=again, twice=min(again, twice), sent=sent, rate=rate, trip_ms=trip_ms)


def next_hops(targets, results):
    """Add to each result the hardware address in the IPv4 neighbour table for the called address or its gateway.

    If a call got no answer because no host answers ARP, its outcome becomes `no-arp`: no packet was ever sent.
    """
    known, by_id = neighbours(), {target["id"]: target["address"] for target in targets}
    for result in results:
        address = by_id[result["id"]]
        if ":" in address or address.startswith("127."):
            continue
        by, interface = way(address)
        card = known.get((by or address, interface))
        if card:
            result["card"] = card
        if by:
            result["by"] = by
        if card == "" and result["outcome"] in ("dropped", "unreachable"):
            result["outcome"] = "no-arp"
        # This neighbour answers ARP: it passed the call on to a host that does not, and reported that just as slowly.
        elif card and result["outcome"] == "no-arp":
            result["outcome"] = "unreachable"


class Answer:
    """An incoming connection: it tells the caller which probe this is, then receives and returns bytes."""

    def __init__(self, probe, connection, address):
        self.probe, self.socket, self.seen = probe, connection, address[0].replace("::ffff:", "")
        self.data, self.expect, self.out = b"", -1, b""
        connection.setblocking(False)
        probe.watch(connection, selectors.EVENT_READ, self.ready)

    def ready(self, mask):
        """Read or write, whichever is possible now."""
        try:
            if mask & selectors.EVENT_READ:
                self.read()
            if self.out:
                self.out = self.out[self.socket.send(self.out) :]
        except BlockingIOError:
            pass
        except OSError:
            return self.probe.forget(self.socket)
        if self.socket.fileno() >= 0:
            both = selectors.EVENT_READ | (selectors.EVENT_WRITE if self.out else 0)
            self.probe.watch(self.socket, both, self.ready)
        return None

    def read(self):
        """Read the greeting first, then count the announced bytes."""
        piece = self.socket.recv(1 << 18)
        if not piece:
            return self.probe.forget(self.socket)
        if self.expect < 0:
            self.data += piece
            line, end, rest = self.data.partition(b"\n")
            words = line.split()
            if not end and len(line) < 200:
                return None
            if len(words) != 3 or words[0] != b"muster" or not words[2].isdigit() or int(words[2]) > MOST_PAYLOAD:
                return self.probe.forget(self.socket)
            known = {"run": self.probe.run, "host": self.probe.host, "seen": self.seen}
            self.out += json.dumps(known).encode() + b"\n"
            self.left = self.size = self.expect = int(words[2])
            piece = rest
        self.left -= len(piece)
        if self.size and self.left <= 0:
            # A view, so that sending the rest of a large payload copies nothing.
            self.out = memoryview(bytes(self.out) + b"got\n" + bytes(self.size))
            self.size = 0
        return None


class Dial:
    """One call: connect, ask which probe answers, send `size` bytes, get them back. Retries until something answers."""

    def __init__(self, probe, target, done):
        self.probe, self.target, self.done = probe, target, done
        self.size, self.tries, self.socket, self.over = int(target.get("size", 0)), [], None, False
        self.data, self.out, self.stage, self.began = b"", b"", "dropped", time.monotonic()
        self.result, self.count = {"id": target["id"]}, 0
        wait = float(target.get("wait", WAIT_S))
        for delay in RETRY_AT_S:
            if delay < wait:
                probe.after(delay, self.attempt)
        probe.after(wait, self.late)

    def attempt(self):
        """Open another connection in addition to those that still wait: one lost packet does not mean a firewall."""
        if self.over or self.socket:
            return
        address = self.target["address"]
        self.count += 1
        try:
            tried = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
        except OSError as none:  # the kernel has no IPv6, or the process has too many open files
            return self.hindered(none.errno)
        tried.setblocking(False)
        try:
            code = tried.connect_ex(socket.getaddrinfo(address, self.target["port"], 0, socket.SOCK_STREAM)[0][4])
        except OSError as failed:
            code = failed.errno or errno.EINVAL
        if code not in (0, errno.EINPROGRESS):
            tried.close()
            return self.hindered(code)
        self.tries.append(tried)
        self.probe.watch(tried, selectors.EVENT_WRITE, lambda mask: self.connected(tried))
        return None

    def hindered(self, code):
        """Handle an error of this host's own kernel. If it only lacks room for one more, earlier tries go on."""
        if code in (errno.EADDRNOTAVAIL, errno.EMFILE) and self.tries:
            return
        # These errors came immediately, so they come from this host's own routing table, not from the network.
        here = code in (errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EACCES)
        self.end("no-route" if here else reason(code))

    def connected(self, tried):
        """One of the connections succeeded or failed."""
        code = tried.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            # The kernel gives up on a neighbour 3 s after its ARP request; errors of routers and firewalls come fast.
            alone = code == errno.EHOSTUNREACH and time.monotonic() - self.began > NEIGHBOUR_S
            return self.end("no-arp" if alone else reason(code))
        for other in self.tries:
            if other is not tried:
                self.probe.forget(other)
        self.socket, self.tries, self.stage = tried, [tried], "silent"
        self.result["ms"] = round((time.monotonic() - self.began) * 1000, 2)
        self.result["source"] = tried.getsockname()[0].replace("::ffff:", "")
        self.out = ("muster %s %d\n" % (self.probe.run or "-", self.size)).encode()
        self.probe.after(float(self.target.get("wait", WAIT_S)), lambda: self.end(self.stage))
        self.probe.watch(tried, selectors.EVENT_READ | selectors.EVENT_WRITE, self.ready)
        return None

    def ready(self, mask):
        """Continue with the current stage."""
        try:
            if self.out and mask & selectors.EVENT_WRITE:
                self.out = self.out[self.socket.send(self.out) :]
            if mask & selectors.EVENT_READ:
                piece = self.socket.recv(1 << 18)
                if not piece:
                    return self.end({"silent": "stranger"}.get(self.stage, "reset"))
                if self.stage == "stall-receive":
                    self.back += len(piece)
                else:
                    self.data += piece
                self.understand()
                # A probe would have sent a valid answer by now.
                if len(self.data) > MOST_GREETING:
                    return self.end("stranger")
        except BlockingIOError:
            pass
        except OSError as failed:
            return self.end(reason(failed.errno))
        if not self.over:
            self.probe.watch(self.socket, selectors.EVENT_READ | (selectors.EVENT_WRITE if self.out else 0), self.ready)
        return None

    def understand(self):
        """Read the answer to the greeting, then `got`, then the returned bytes."""
        if self.stage == "silent" and b"\n" in self.data:
            line, _, self.data = self.data.partition(b"\n")
            try:
                who = json.loads(line.decode())
                self.result.update(host=who["host"], seen=who["seen"])
            except (ValueError, KeyError, TypeError, RecursionError):
                return self.end("stranger")
            if who.get("run") != self.probe.run:
                return self.end("other-run")
            if not self.size:
                return self.end("ok")
            self.out, self.stage, self.sent_at = memoryview(bytes(self.size)), "stall-send", time.monotonic()
        if self.stage == "stall-send" and self.data.startswith(b"got\n"):
            self.data, self.stage, self.back = b"", "stall-receive", len(self.data) - 4
            self.result["send_s"] = round(time.monotonic() - self.sent_at, 5)
        if self.stage == "stall-receive" and self.back >= self.size:
            self.result["both_s"] = round(time.monotonic() - self.sent_at, 5)
            return self.end("ok")
        return None

    def late(self):
        """End the call if no connection was made in time."""
        if not self.socket:
            self.end("dropped")

    def end(self, outcome):
        """Report the outcome once, and close all sockets."""
        if self.over:
            return
        self.over = True
        if self.socket:
            self.result.update(packets(self.socket))
        self.result["tries"] = self.count
        for tried in self.tries:
            # Close without TIME_WAIT: a host with few local ports needs them for the run.
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.probe.forget(tried)
        self.result["outcome"] = outcome
        self.done(self.result)


class Probe:
    """The event loop for standard input, listeners, connections and timers, in one thread."""

    def __init__(self):
        self.ready, self.life, self.ends = selectors.DefaultSelector(), LIFE_S, time.monotonic() + LIFE_S
        self.timers, self.number, self.listening = [], 0, []
        self.run, self.host, self.input, self.going = "", "", b"", True
        self.watch(0, selectors.EVENT_READ, self.hear)

    def watch(self, what, mask, tell):
        """Call `tell(mask)` when `what` can be read or written."""
        known = self.ready.get_map().get(what)
        if known is None:
            self.ready.register(what, mask, tell)
        elif (known.events, known.data) != (mask, tell):
            self.ready.modify(what, mask, tell)

    def forget(self, what):
        """Close a socket."""
        try:
            self.ready.unregister(what)
        except (KeyError, ValueError):
            pass
        what.close()

    def after(self, delay, work):
        """Do something in `delay` seconds."""
        self.number += 1
        heapq.heappush(self.timers, (time.monotonic() + delay, self.number, work))

    def loop(self):
        """Run until `quit`, the end of the input, or the end of the probe's life."""
        while self.going and time.monotonic() < self.ends:
            while self.timers and self.timers[0][0] <= time.monotonic():
                heapq.heappop(self.timers)[2]()
            wait = self.timers[0][0] - time.monotonic() if self.timers else 1.0
            for key, mask in self.ready.select(max(0.0, min(1.0, wait))):
                if key.fileobj == 0 or key.fileobj.fileno() >= 0:
                    key.data(mask)

    def hear(self, mask):
        """Answer the questions, one per line; the end of the input ends the probe."""
        piece = os.read(0, 1 << 16)
        if not piece:
            self.going = False
        *lines, self.input = (self.input + piece).split(b"\n")
        for line in lines:
            asked = json.loads(line.decode())
            getattr(self, "do_" + asked["do"])(asked)
        self.ends = time.monotonic() + self.life

    def say(self, did, answer):
        """Write an answer as one line."""
        data = memoryview(json.dumps(dict(answer, did=did)).encode() + b"\n")
        while data:
            data = data[os.write(1, data) :]

    def do_facts(self, asked):
        """Remember the name that the client gives this host, and report the host's facts."""
        self.run, self.host = asked["run"], asked["host"]
        self.life = asked.get("life", LIFE_S)
        self.say("facts", facts(asked))

    def do_listen(self, asked):
        """Close all listeners; listen on the requested ports, and on some ports of the system's range."""
        opened, failed = [], {}
        while self.listening:
            self.forget(self.listening.pop())
        low, high = asked["range"]
        for port in asked.get("ports", ()):
            try:
                opened.append(self.listen(port))
            except OSError as fault:
                failed[str(port)] = {"error": reason_of(fault), "holder": holder(port), "probe": answers_as_probe(port)}
        # If the range is narrow, leave most of its ports free for outgoing calls.
        count = min(asked["samples"], (high - low + 1) // 16)
        sampled, step = [], (high - low + 1) // max(1, count)
        for start in range(low, low + step * count, step):
            for _ in range(20):
                try:
                    sampled.append(self.listen(start + int.from_bytes(os.urandom(4), "big") % step))
                    break
                except OSError:
                    continue
        # The source address toward each peer, which the route decides, regardless of the interface training would use.
        ways = {}
        for to in asked.get("peers", ()):
            try:
                ways[to] = source_toward(to)
            except OSError as none:
                ways[to] = {"error": none.strerror or str(none), "code": none.errno}
        routes = call_all({to: (lambda to=to: source_toward(to)) for to in asked.get("toward", ())})
        names = resolve_all(asked.get("resolve", ()))
        self.say(
            "listen",
            {"ports": opened, "sampled": sampled, "failed": failed, "routes": routes, "ways": ways, "names": names},
        )

    def listen(self, port):
        """Listen as torch's store does: on both families if IPv6 exists, otherwise on IPv4."""
        try:
            made = socket.socket(socket.AF_INET6, socket.SOCK_STREAM)
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            where = ("::", port)
        except OSError:
            made, where = socket.socket(socket.AF_INET, socket.SOCK_STREAM), ("0.0.0.0", port)
        try:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            made.bind(where)
            made.listen(512)
        except OSError:
            made.close()
            raise
        made.setblocking(False)
        self.listening.append(made)
        self.watch(made, selectors.EVENT_READ, lambda mask: self.accept(made))
        return made.getsockname()[1]

    def accept(self, made):
        """Answer any caller."""
        try:
            Answer(self, *made.accept())
        except OSError:
            pass

    def do_connect(self, asked):
        """Call all targets in parallel; answer when the last call has ended."""
        results, targets = [], asked["targets"]
        # Many hosts call this probe meanwhile. The limit that training gets has been reported with the facts already.
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        except (OSError, ValueError):  # it is above the kernel's own limit, or not allowed
            pass

        def done(result):
            results.append(result)
            if len(results) == len(targets):
                next_hops(targets, results)
                self.say("connect", {"results": results})

        for target in targets:
            Dial(self, target, done)

    def do_clock(self, asked):
        """Report the time on this host."""
        self.say("clock", {"time": time.time()})

    def do_firewall(self, asked):
        """Report firewall rules that may explain a failed connection."""
        self.say("firewall", firewall())

    def do_quit(self, asked):
        """End the probe."""
        self.going = False


if __name__ == "__main__":
    threading.stack_size(STACK)
    Probe().loop()
    os._exit(0)

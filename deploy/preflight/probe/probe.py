"""What a host sees and reaches, told by one text that needs nothing but Python 3.8: sent to where training will run.

conversation.py starts it with this text on its standard input (facts.py in place of its import), and asks in JSON
lines, one answer each: `facts`, `listen`, `connect`, `clock`, `firewall`, `quit`. It opens ports only between
`listen` and its end, writes no file, and ends by itself when its input closes or its time is up.
"""

import errno
import heapq
import json
import os
import selectors
import socket
import struct
import time

from .facts import at_once, facts, firewall, holder, resolve, source_toward

WAIT_S = 2.2
RETRY_AT_S = (0.0, 0.6, 1.2)
LIFE_S = 90.0
# Anybody may call, or answer, on the ports that are tried.
MOST_PAYLOAD, MOST_GREETING = 64 << 20, 1 << 16
REASONS = {
    errno.ECONNREFUSED: "refused",
    errno.ENETUNREACH: "no-route",
    errno.EHOSTUNREACH: "unreachable",
    errno.EADDRNOTAVAIL: "no-address",
    errno.EACCES: "forbidden",
    errno.EPERM: "forbidden",
    errno.ETIMEDOUT: "dropped",
    errno.ECONNRESET: "reset",
    errno.EPIPE: "reset",
    errno.EAFNOSUPPORT: "no-family",
    errno.EINVAL: "no-scope",
}


def reason(code):
    """A connect's error number as the word preflight goes by."""
    return REASONS.get(code, os.strerror(code))


def reason_of(fault):
    """An error of bind in a word."""
    return {errno.EADDRINUSE: "in use", errno.EACCES: "forbidden"}.get(fault.errno, fault.strerror)


def packets(connection):
    """Segments a connection sent, and sent again, bytes a second delivered, and the shortest round trip in ms, by the

    kernel's `struct tcp_info`: a process that waits for a core makes none of these longer.
    """
    info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 220)
    if len(info) < 168:
        return {}
    again, (sent, trip, rate) = struct.unpack("=I", info[100:104])[0], struct.unpack("=I8xI8xQ", info[136:168])
    # What the other side got twice had not been lost.
    twice = struct.unpack("=I", info[216:220])[0] if len(info) >= 220 else 0
    # Without a sample it is all ones.
    trip_ms = trip / 1000 if trip < 0xFFFFFFFF else 0.0
    return {"again": again, "twice": min(again, twice), "sent": sent, "rate": rate, "trip_ms": trip_ms}


class Answer:
    """One connection somebody made to us: says who we are, then takes and gives back as much as was announced."""

    def __init__(self, probe, connection, address):
        self.probe, self.socket, self.seen = probe, connection, address[0].replace("::ffff:", "")
        self.data, self.expect, self.out = b"", -1, b""
        connection.setblocking(False)
        probe.watch(connection, selectors.EVENT_READ, self.ready)

    def ready(self, mask):
        """Read on or write on, whichever the loop found possible."""
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
        """Greeting first, then the announced bytes, which are only counted."""
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
            # A view: of a large payload no piece is copied when the rest is sent.
            self.out = memoryview(bytes(self.out) + b"got\n" + bytes(self.size))
            self.size = 0
        return None


class Dial:
    """One target: connect, ask who it is, send and get back `size` bytes. Tried again while nothing is heard."""

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
        """Another connection beside those that still wait: one lost packet is not a firewall."""
        if self.over or self.socket:
            return
        address = self.target["address"]
        tried = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
        tried.setblocking(False)
        self.count += 1
        try:
            code = tried.connect_ex(socket.getaddrinfo(address, self.target["port"], 0, socket.SOCK_STREAM)[0][4])
        except OSError as failed:
            code = failed.errno or errno.EINVAL
        if code not in (0, errno.EINPROGRESS):
            tried.close()
            # At once, so it is this host's own routing table that says so, and nobody on the way.
            here = code in (errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EACCES)
            return self.end("no-route" if here else reason(code))
        self.tries.append(tried)
        self.probe.watch(tried, selectors.EVENT_WRITE, lambda mask: self.connected(tried))
        return None

    def connected(self, tried):
        """A try came to an end, well or not."""
        code = tried.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            return self.end(reason(code))
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
        """Go on with whatever stage this is."""
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
                # What is left was not understood: whoever this is, it is no probe.
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
        """The greeting's answer, then `got`, then the bytes back."""
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
        """Nothing connected in time."""
        if not self.socket:
            self.end("dropped")

    def end(self, outcome):
        """Tell, once, and let go of every socket."""
        if self.over:
            return
        self.over = True
        if self.socket:
            self.result.update(packets(self.socket))
        self.result["tries"] = self.count
        for tried in self.tries:
            self.probe.forget(tried)
        self.result["outcome"] = outcome
        self.done(self.result)


class Probe:
    """The loop: standard input, listeners, connections and timers, all in one thread."""

    def __init__(self):
        self.ready, self.ends = selectors.DefaultSelector(), time.monotonic() + LIFE_S
        self.timers, self.number = [], 0
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
        """Until told to quit, the input ends, or the time is up."""
        while self.going and time.monotonic() < self.ends:
            while self.timers and self.timers[0][0] <= time.monotonic():
                heapq.heappop(self.timers)[2]()
            wait = self.timers[0][0] - time.monotonic() if self.timers else 1.0
            for key, mask in self.ready.select(max(0.0, min(1.0, wait))):
                if key.fileobj == 0 or key.fileobj.fileno() >= 0:
                    key.data(mask)

    def hear(self, mask):
        """Requests come as lines; an input that ends means that nobody asks any more."""
        piece = os.read(0, 1 << 16)
        if not piece:
            self.going = False
        *lines, self.input = (self.input + piece).split(b"\n")
        for line in lines:
            asked = json.loads(line.decode())
            getattr(self, "do_" + asked["do"])(asked)

    def say(self, did, answer):
        """One answer, one line."""
        data = memoryview(json.dumps(dict(answer, did=did)).encode() + b"\n")
        while data:
            data = data[os.write(1, data) :]

    def do_facts(self, asked):
        """Who this is, in the words of the asking side, and all that can be known here alone."""
        self.run, self.host = asked["run"], asked["host"]
        self.ends = time.monotonic() + asked.get("life", LIFE_S)
        self.say("facts", facts(asked))

    def do_listen(self, asked):
        """Listen on the ports asked for and on some of the range that the system takes ports from."""
        opened, failed = [], {}
        low, high = asked["range"]
        for port in asked.get("ports", ()):
            try:
                opened.append(self.listen(port))
            except OSError as fault:
                failed[str(port)] = {"error": reason_of(fault), "holder": holder(port)}
        # A narrow range must keep ports for those who call.
        count = min(asked["samples"], (high - low + 1) // 16)
        sampled, step = [], (high - low + 1) // max(1, count)
        for start in range(low, low + step * count, step):
            for _ in range(20):
                try:
                    sampled.append(self.listen(start + int.from_bytes(os.urandom(4), "big") % step))
                    break
                except OSError:
                    continue
        routes = at_once({to: (lambda to=to: source_toward(to)) for to in asked.get("toward", ())})
        names = at_once({name: (lambda name=name: resolve(name)) for name in asked.get("resolve", ())}, 2.2)
        self.say("listen", {"ports": opened, "sampled": sampled, "failed": failed, "routes": routes, "names": names})

    def listen(self, port):
        """One listener as torch's store makes its own: both families where IPv6 exists, else IPv4."""
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
        self.watch(made, selectors.EVENT_READ, lambda mask: self.accept(made))
        return made.getsockname()[1]

    def accept(self, made):
        """Whoever comes is answered."""
        try:
            Answer(self, *made.accept())
        except OSError:
            pass

    def do_connect(self, asked):
        """Try all targets at once; answer when the last one is decided."""
        results, targets = [], asked["targets"]

        def done(result):
            results.append(result)
            if len(results) == len(targets):
                self.say("connect", {"results": results, "time": time.time()})

        for target in targets:
            Dial(self, target, done)
        if not targets:
            self.say("connect", {"results": [], "time": time.time()})

    def do_clock(self, asked):
        """The time here."""
        self.say("clock", {"time": time.time()})

    def do_firewall(self, asked):
        """What may explain a connection that failed."""
        self.say("firewall", firewall())

    def do_quit(self, asked):
        """Enough."""
        self.going = False


if __name__ == "__main__":
    Probe().loop()
    os._exit(0)

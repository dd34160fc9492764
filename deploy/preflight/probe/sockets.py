"""What the kernel reports about this host's network: sockets, routes, neighbours, the firewall. A part of probe.py.

It needs only Python 3.8 and its standard library. It only reads, and changes nothing.
"""

import json
import os
import re
import socket
import subprocess
import sys
import time

# The most characters of a firewall rule that are reported: one answer has up to forty rules.
MOST_LETTERS = 400
# How long each firewall program may take, and all together: less than a probe's answer may (conversation.LISTEN_S).
PROGRAM_S, FIREWALL_S = 3.0, 6.0


def text(path):
    """Return a small kernel file's text; empty if unreadable. Python's `open` would be slower for hundreds of them."""
    try:
        file = os.open(path, os.O_RDONLY)
    except OSError:
        return ""
    pieces = []
    try:
        while True:
            pieces.append(os.read(file, 1 << 16))
            if not pieces[-1]:
                break
    except OSError:
        pass
    finally:
        os.close(file)
    return b"".join(pieces).decode(errors="replace")


def namespace(pid):
    """Return the network namespace of a process."""
    try:
        return os.readlink("/proc/%s/ns/net" % pid)
    except OSError:
        return ""


def listeners():
    """Yield (inode, port) for each socket that listens in this network namespace."""
    for path in ("/proc/net/tcp", "/proc/net/tcp6"):
        for row in text(path).splitlines()[1:]:
            cells = row.split()
            if len(cells) > 9 and cells[3] == "0A":
                yield cells[9], int(cells[1].rpartition(":")[2], 16)


def holder(port):
    """Return which process listens on a port (`python3 (pid 12)`); empty if this user may not see it."""
    wanted = {"socket:[%s]" % inode for inode, number in listeners() if number == port}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if any(os.readlink(entry.path) in wanted for entry in os.scandir("/proc/%s/fd" % pid)):
                command = text("/proc/%s/cmdline" % pid).replace("\0", " ").strip()
                return "%s (pid %s)" % (command[:80] or text("/proc/%s/comm" % pid).strip(), pid)
        except OSError:
            continue
    return ""


def answers_as_probe(port):
    """Whether a probe of another preflight listens on this port of this host: it answers a greeting with its run."""
    try:
        with socket.create_connection(("127.0.0.1", port), 1.0) as asked:
            asked.sendall(b"muster - 0\n")
            known = json.loads(asked.makefile("rb").readline(4096).decode())
        return bool(known["run"] and known["host"] and known["seen"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return False


def source_toward(address):
    """Return the source address of packets to `address`. Raises OSError if there is no route. Sends nothing."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as asked:
        asked.connect((address, 9))
        return asked.getsockname()[0].partition("%")[0]


def neighbours():
    """Return the hardware address for each (IPv4 address, interface); empty for a neighbour that does not answer ARP.

    The interface is part of the key: it keeps an old entry for an address that is now behind another interface.
    """
    rows = [line.split() for line in text("/proc/net/arp").splitlines()[1:]]
    return {(row[0], row[5]): row[3] if row[2] != "0x0" else "" for row in rows if len(row) > 5}


def way(address):
    """Return (gateway, interface) on the way to an IPv4 address. Empty gateway: the address is on a local network.

    Empty interface: the main routing table has no route to it.
    """
    wanted, best, nearest = int.from_bytes(socket.inet_aton(address), sys.byteorder), -1, ("", "")
    for line in text("/proc/net/route").splitlines()[1:]:
        cells = line.split()
        if len(cells) < 8:
            continue
        to, by, mask = (int(cells[place], 16) for place in (1, 2, 7))
        bits = bin(mask).count("1")
        if wanted & mask == to and bits > best:
            best, nearest = bits, (socket.inet_ntoa(by.to_bytes(4, sys.byteorder)) if by else "", cells[0])
    return nearest


def run(argv, until):
    """Run a program for at most PROGRAM_S seconds, and not past the time `until`."""
    left = min(PROGRAM_S, until - time.monotonic())
    return subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=left, check=False)


def firewall():
    """Return this host's firewall rules that drop, reject or redirect packets, each with its count of packets.

    `read`: whether this user may read them. If asked again later, the counts show which rules have hit packets.
    """
    rules, read, until = [], False, time.monotonic() + FIREWALL_S
    for program in ("iptables", "ip6tables"):
        for table in ("raw", "mangle", "nat", "filter"):
            try:
                done = run([program, "-t", table, "-S", "-v"], until)
            except (OSError, subprocess.TimeoutExpired):
                break
            read = read or not done.returncode
            for line in done.stdout.decode(errors="replace").splitlines():
                if re.search(r"(?i)\b(drop|reject|redirect|dnat)\b", line):
                    counted = re.search(r" -c (\d+) \d+", line)
                    six = "6" if program == "ip6tables" else ""
                    rule = re.sub(r" -c \d+ \d+", "", "%s%s: %s" % (table, six, line.strip()))
                    rules.append((rule, int(counted[1]) if counted else 0))
    try:
        done = run(["nft", "list", "ruleset"], until)
        rules += nft_rules(done.stdout.decode(errors="replace"), read)
        read = read or not done.returncode
    except (OSError, subprocess.TimeoutExpired):
        pass
    # An nft rule may list thousands of addresses, so rules are cut.
    return {
        "read": read,
        "rules": [rule[:MOST_LETTERS] for rule, _ in rules[:40]],
        "hits": [count for _, count in rules[:40]],
    }


def nft_rules(text, known):
    """Return the rules in nft's list that drop or reject packets, with their counts; `known`: skip iptables' tables.

    iptables does not show the tables of other programs, such as firewalld's.
    """
    rules, skip = [], False
    for line in text.splitlines():
        if line.startswith("table "):
            skip = known and bool(re.match(r"table ip6? (raw|mangle|nat|filter|security) ", line))
        if not skip and re.search(r"(?i)\b(drop|reject)\b", line):
            counted = re.search(r" packets (\d+) ", line)
            rules.append((re.sub(r" packets \d+ bytes \d+", "", line.strip()), int(counted[1]) if counted else 0))
    return rules

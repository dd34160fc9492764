"""What the kernel says of this host's network: sockets, routes, neighbours, the firewall. A part of probe.py.

Python 3.8 and its standard library only. It reads and changes nothing.
"""

import json
import os
import re
import socket
import subprocess
import sys
import time

# Of a firewall's rule that is told: forty of them are one answer.
MOST_LETTERS = 400
# Each program of a firewall may take so long, and all of them less than a probe's answer may (conversation.LISTEN_S).
PROGRAM_S, FIREWALL_S = 3.0, 6.0


def text(path):
    """The text of a small kernel file; empty if it cannot be read. We read hundreds, and `open` would be slower."""
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
    """The network namespace of a process."""
    try:
        return os.readlink("/proc/%s/ns/net" % pid)
    except OSError:
        return ""


def listeners():
    """(inode, port) of the sockets that listen in this network namespace."""
    for path in ("/proc/net/tcp", "/proc/net/tcp6"):
        for row in text(path).splitlines()[1:]:
            cells = row.split()
            if len(cells) > 9 and cells[3] == "0A":
                yield cells[9], int(cells[1].rpartition(":")[2], 16)


def holder(port):
    """Who listens on a port, if we may see it: `python3 (pid 12)`, or nothing."""
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
    """Whether a probe of another preflight listens on this port of this host: it answers our greeting with its run."""
    try:
        with socket.create_connection(("127.0.0.1", port), 1.0) as asked:
            asked.sendall(b"muster - 0\n")
            known = json.loads(asked.makefile("rb").readline(4096).decode())
        return bool(known["run"] and known["host"] and known["seen"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return False


def source_toward(address):
    """The source address of packets to `address`. Raises OSError if there is no route. Sends nothing."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as asked:
        asked.connect((address, 9))
        return asked.getsockname()[0].partition("%")[0]


def neighbours():
    """Hardware addresses of IPv4 neighbours, by address and interface; empty for one that does not answer ARP.

    An interface keeps what it knew of an address that is now behind another one.
    """
    rows = [line.split() for line in text("/proc/net/arp").splitlines()[1:]]
    return {(row[0], row[5]): row[3] if row[2] != "0x0" else "" for row in rows if len(row) > 5}


def way(address):
    """(gateway, interface) on the way to an IPv4 address. No gateway: the address is on a network of ours.

    No interface: the main table has no route there.
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
    """A program's answer, for which it has PROGRAM_S, and no longer than until this moment."""
    left = min(PROGRAM_S, until - time.monotonic())
    return subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=left, check=False)


def firewall():
    """The firewall rules of this host that drop, reject or redirect packets, each with its count of packets.

    `read`: whether we may read them. Later questions show which counts have grown.
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
    # A rule of nft may name thousands of addresses.
    return {
        "read": read,
        "rules": [rule[:MOST_LETTERS] for rule, _ in rules[:40]],
        "hits": [count for _, count in rules[:40]],
    }


def nft_rules(text, known):
    """The rules of nft's list that drop or reject packets, with their counts; `known`: without iptables' own tables.

    iptables does not show the tables of others, such as firewalld's.
    """
    rules, skip = [], False
    for line in text.splitlines():
        if line.startswith("table "):
            skip = known and bool(re.match(r"table ip6? (raw|mangle|nat|filter|security) ", line))
        if not skip and re.search(r"(?i)\b(drop|reject)\b", line):
            counted = re.search(r" packets (\d+) ", line)
            rules.append((re.sub(r" packets \d+ bytes \d+", "", line.strip()), int(counted[1]) if counted else 0))
    return rules

"""A row: how a host is broken and mended, and the right answers about it."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

# Restart the engine of a rack host with other settings; {} stands for the settings.
ENGINE = (
    "pkill -x dockerd || true; while pgrep -x dockerd >/dev/null; do sleep 0.1; done; "
    "cp -n /etc/docker/daemon.json /run/daemon.json; echo '{}' >/etc/docker/daemon.json; "
    "setsid dockerd </dev/null >/run/dockerd.log 2>&1 & "
)
ANSWERS = "for n in $(seq 100); do docker version >/dev/null 2>&1 && break; sleep 0.2; done"
SAME = '{"features": {"containerd-snapshotter": false}, "log-level": "warn"}'
ANEW = ENGINE.replace("{}", SAME) + ANSWERS
SSHD = "/etc/ssh/sshd_config.d/lab.conf"
AGAIN = "pkill -HUP -o -x sshd; sleep 1"
HOME = "/home/muster"
IMAGE = "muster-trainer:cpu"
RUNS = f"{HOME}/.muster/runs"
MADE = f"install -d -o muster -g muster {HOME}/.muster {RUNS}"
# The causes for a path on which nothing answers, and for a login that does not finish.
SILENT = ("all-ports-dropped", "rendezvous-dropped", "data-ports-dropped", "one-way", "no-route", "host-unreachable")
REJECTED = ("all-ports-rejected", "rendezvous-rejected", "data-ports-rejected")
HUNG_UP = ("ssh-refused", "ssh-lost", "ssh-silent", "ssh-hangup")
LATE = (*HUNG_UP, "ssh-timeout")
# A program that keeps running in the background, and how it is ended.
AT = "/run/lab"
QUIET = f"</dev/null >/dev/null 2>&1 & echo $! >{AT}.pid; sleep 1; kill -0 $(cat {AT}.pid)"
STOP = f"kill $(cat {AT}.pid); rm -f /opt/lab.py"
# The card's address and its default route: how to save and restore them.
OWN = "$(ip -4 -o address show eth0 | sed 's/.*inet //; s/ .*//')"
KEEP = f"echo {OWN} $(ip route show default | sed 's/.*via //; s/ .*//') >{AT}.card; read -r at via <{AT}.card"
GIVE = (
    f"read -r at via <{AT}.card; ip address flush dev eth0; ip address add $at brd + dev eth0; "
    "ip route replace default via $via dev eth0"
)


@dataclass(frozen=True)
class Row:
    """A fault or an oddity. `causes`: slugs that are right; `says`: a pattern that a true observation matches.

    `breaks` and `mends` are shell commands that root runs on the host; $PEER is the other host's address. `pair`:
    naming both hosts is also right. `on`: the number of the broken host, 0 or 1.
    """

    name: str
    breaks: str
    mends: str
    causes: tuple[str, ...] = ()
    says: str = ""
    pair: bool = False
    on: int = 1

    def is_named(self, finding: dict[str, Any]) -> bool:
        """Whether a finding's cause, or its text, is right."""
        words = " ".join([finding["text"], *finding["evidence"]])
        return finding["cause"] in self.causes or bool(self.says and re.search(self.says, words, re.IGNORECASE))

    def is_placed(self, finding: dict[str, Any], hosts: Sequence[str]) -> bool:
        """Whether it names the broken host, or the pair if that is also right."""
        said = {frozenset(finding["hosts"]), *({frozenset(finding["link"])} if finding["link"] else ())}
        return frozenset({hosts[self.on]}) in said or (self.pair and frozenset(hosts) in said)


ROWS: list[Row] = []


def row(name: str, breaks: str, mends: str, *causes: str, **more: Any) -> None:
    """Add a row."""
    ROWS.append(Row(name, breaks, mends, causes, **more))


def engine(name: str, settings: dict[str, Any], *causes: str, before: str = "true", after: str = "true",
           **more: Any) -> None:  # fmt: skip
    """Add a row with changed settings of the engine."""
    given = json.dumps({**json.loads(SAME), **settings})
    row(name, f"{before}; {ENGINE.replace('{}', given)}{ANSWERS}", f"{ANEW}; {after}", *causes, **more)


def service(name: str, before: str, *causes: str, **more: Any) -> None:
    """Add a row for an engine whose service has its own mounts: `before` runs in them before the engine starts."""
    own = ANEW.replace("setsid dockerd", f"setsid unshare -m sh -c '{before}; exec dockerd'")
    row(name, own, ANEW, *causes, **more)


def runtime(name: str, change: str, *causes: str, **more: Any) -> None:
    """Add a row for a site's own runtime, which changes a container's `spec` and then calls runc."""
    script = (
        "#!/usr/bin/python3\nimport json, os, sys\n"
        'if "create" in sys.argv and "--bundle" in sys.argv:\n'
        '    at = sys.argv[sys.argv.index("--bundle") + 1] + "/config.json"\n'
        f"    spec = json.load(open(at))\n    {change}\n"
        '    with open(at, "w") as file:\n        json.dump(spec, file)\n'
        'os.execvp("runc", ["runc", *sys.argv[1:]])'
    )
    before = f"(cat <<'END'\n{script}\nEND\n) >/opt/site; chmod 755 /opt/site"
    settings = {"runtimes": {"site": {"path": "/opt/site"}}, "default-runtime": "site"}
    engine(name, settings, *causes, before=before, after="rm /opt/site", **more)


def wrapper(name: str, script: str, *causes: str, before: str = "true", after: str = "true", **more: Any) -> None:
    """Add a row for a script that is called in place of docker, and calls docker.real."""
    wrapped = f"printf '#!/bin/sh\\n%s\\n' '{script}' >/usr/bin/docker; chmod 755 /usr/bin/docker"
    row(name, f"{before}; mv /usr/bin/docker /usr/bin/docker.real; {wrapped}",
        f"mv /usr/bin/docker.real /usr/bin/docker; {after}", *causes, **more)  # fmt: skip


def server(name: str, *lines: str, causes: tuple[str, ...] = (), **more: Any) -> None:
    """Add a row with settings of the SSH server."""
    text = reduce(lambda made, line: f"{made} '{line}'", lines, "printf '%s\\n'")
    row(name, f"{text} >{SSHD}; {AGAIN}", f"rm {SSHD}; {AGAIN}", *causes, **more)


def shell(name: str, line: str, *causes: str, **more: Any) -> None:
    """Add a row with a line that each of the user's shells reads first."""
    breaks = f"cp {HOME}/.bashrc /run/bashrc; (cat <<'END'\n{line}\nEND\ncat /run/bashrc) >{HOME}/.bashrc"
    row(name, breaks, f"cp /run/bashrc {HOME}/.bashrc", *causes, **more)


def pam(name: str, line: str, *causes: str, **more: Any) -> None:
    """Add a row with another line in PAM's configuration for sshd."""
    row(name, f"cp /etc/pam.d/sshd {AT}.pam; echo '{line}' >>/etc/pam.d/sshd", f"cat {AT}.pam >/etc/pam.d/sshd",
        *causes, **more)  # fmt: skip


def firewall(name: str, *rules: str, causes: tuple[str, ...] = SILENT, **more: Any) -> None:
    """Add a row of firewall rules, given as `TABLE CHAIN MATCH`; each is inserted before all existing rules."""
    words = [rule.split(" ", 2) for rule in rules]
    breaks = [f"iptables -t {table} -I {chain} {match}" for table, chain, match in words]
    mends = [f"iptables -t {table} -D {chain} 1" for table, chain, _ in reversed(words)]
    row(name, "; ".join(["set -e", *breaks]), "; ".join(mends), *causes, **{"pair": True, **more})


def kernel(name: str, values: str, *causes: str, **more: Any) -> None:
    """Add a row with kernel settings of the host's network (`name=value` words)."""
    names = " ".join(word.split("=")[0] for word in values.split())
    row(name, f"set -e; sysctl {names} >{AT}.conf; sysctl -q -w {values}", f"sysctl -q -p {AT}.conf", *causes, **more)


def program(name: str, path: str, text: str, *causes: str, more_mends: str = "true", **more: Any) -> None:
    """Add a row for a script at this path on the host."""
    row(name, f"(cat <<'END'\n{text}\nEND\n) >{path}; chmod 755 {path}", f"rm -f {path}; {more_mends}", *causes, **more)


def away(name: str, path: str, *causes: str, **more: Any) -> None:
    """Add a row for a file that is missing."""
    row(name, f"mv {path} {path}.kept", f"mv {path}.kept {path}", *causes, **more)


def loop(name: str, seconds: float, does: str, *causes: str, more_mends: str = "true", **more: Any) -> None:
    """Add a row for a command that root repeats endlessly."""
    row(name, f"setsid sh -c 'while sleep {seconds}; do {does}; done' {QUIET}",
        f"pkill -KILL -s $(cat {AT}.pid); {more_mends}", *causes, **more)  # fmt: skip


def agent(name: str, text: str, *causes: str, **more: Any) -> None:
    """Add a row for a Python program that runs on the host."""
    row(name, helper(text), STOP, *causes, **more)


def helper(text: str) -> str:
    """Commands that start a Python program of several lines and save its process id."""
    return f"(cat <<'END'\n{text}\nEND\n) >/opt/lab.py; setsid python3 /opt/lab.py {QUIET}"


def judge_files(at: int, each: str) -> str:
    """A program that the kernel asks before a file is opened (or closed: `at`); it answers with `each`.

    It covers all files on the root's disk.
    """
    return f"""import ctypes, os, struct, time
lib = ctypes.CDLL(None, use_errno=True)
asked = lib.fanotify_init(4, os.O_RDONLY)
if lib.fanotify_mark(asked, 0x101, ctypes.c_uint64({at}), -100, b"/home/muster"):
    raise OSError(ctypes.get_errno())
while True:
    events = os.read(asked, 65536)
    while events:
        size, _, _, _, _, file, _ = struct.unpack_from("=IBBHQii", events)
        events, path = events[size:], os.readlink("/proc/self/fd/%d" % file)
        os.write(asked, struct.pack("iI", file, {each}))
        os.close(file)"""

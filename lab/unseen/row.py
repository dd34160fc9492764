"""What one row is: how a host is broken and mended, and what is right to say of it."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

SEED, THIRD = 850085, 3
# The engine of a rack's host, with other settings and started anew; {} are the settings.
ENGINE = (
    "pkill -x dockerd || true; while pgrep -x dockerd >/dev/null; do sleep 0.1; done; "
    "cp -n /etc/docker/daemon.json /run/daemon.json; echo '{}' >/etc/docker/daemon.json; "
    "setsid dockerd </dev/null >/run/dockerd.log 2>&1 & "
)
ANSWERS = "for n in $(seq 100); do docker version >/dev/null 2>&1 && break; sleep 0.2; done"
SAME = '{"features": {"containerd-snapshotter": false}, "log-level": "warn"}'
SSHD = "/etc/ssh/sshd_config.d/unseen.conf"
AGAIN = "pkill -HUP -o -x sshd; sleep 1"
HOME = "/home/muster"
CONTAINERD = "$(pgrep -x containerd)"
# What several lists say: the image of the runs, their folder, and how a way that nobody answers may be called.
IMAGE = "muster-trainer:cpu"
RUNS = f"{HOME}/.muster/runs"
MADE = f"install -d -o muster -g muster {HOME}/.muster {RUNS}"
ANEW = ENGINE.replace("{}", SAME) + ANSWERS
SILENT = ("all-ports-dropped", "rendezvous-dropped", "data-ports-dropped", "one-way", "no-route", "host-unreachable")
REJECTED = ("all-ports-rejected", "rendezvous-rejected", "data-ports-rejected")
HUNG_UP = ("ssh-refused", "ssh-lost", "ssh-silent", "ssh-hangup")


@dataclass(frozen=True)
class Row:
    """A fault or an oddity. `causes`: slugs that are right; `says`: a pattern that a true observation has.

    `breaks` and `mends` are shell commands that root runs on the host, with $PEER, the other host's address.
    `pair`: it is as right to name both hosts. `on`: the number of the broken host, 0 or 1.
    """

    name: str
    breaks: str
    mends: str
    causes: tuple[str, ...] = ()
    says: str = ""
    pair: bool = False
    on: int = 1

    def is_named(self, finding: dict[str, Any]) -> bool:
        """Whether a finding's cause, or its words, are right."""
        words = " ".join([finding["text"], *finding["evidence"]])
        return finding["cause"] in self.causes or bool(self.says and re.search(self.says, words, re.IGNORECASE))

    def is_placed(self, finding: dict[str, Any], hosts: Sequence[str]) -> bool:
        """Whether it names the broken host, or the pair where that is as right."""
        said = {frozenset(finding["hosts"]), *({frozenset(finding["link"])} if finding["link"] else ())}
        return frozenset({hosts[self.on]}) in said or (self.pair and frozenset(hosts) in said)


ROWS: list[Row] = []


def row(name: str, breaks: str, mends: str, *causes: str, **more: Any) -> None:
    """Add a row to the list."""
    ROWS.append(Row(name, breaks, mends, causes, **more))


def engine(name: str, settings: dict[str, Any], *causes: str, before: str = "", after: str = "", **more: Any) -> None:
    """A row of the engine's own settings."""
    told = json.dumps({**json.loads(SAME), **settings})
    breaks = f"{before}; " * bool(before) + ENGINE.replace("{}", told) + ANSWERS
    row(name, breaks, ENGINE.replace("{}", SAME) + ANSWERS + f"; {after}" * bool(after), *causes, **more)


def server(name: str, *lines: str, causes: tuple[str, ...] = (), **more: Any) -> None:
    """A row of settings of the SSH server."""
    text = reduce(lambda made, line: f"{made} '{line}'", lines, "printf '%s\\n'")
    row(name, f"{text} >{SSHD}; {AGAIN}", f"rm {SSHD}; {AGAIN}", *causes, **more)


def shell(name: str, line: str, *causes: str, **more: Any) -> None:
    """A row of a line that each shell of the user's reads first."""
    breaks = f"cp {HOME}/.bashrc /run/bashrc; (cat <<'END'\n{line}\nEND\ncat /run/bashrc) >{HOME}/.bashrc"
    row(name, breaks, f"cp /run/bashrc {HOME}/.bashrc", *causes, **more)


def of_score(seed: int = SEED, rows: list[Row] = ROWS) -> list[Row]:
    """The third that is for the score."""
    return random.Random(seed).sample(rows, len(rows) // THIRD)


def to_look_at(seed: int = SEED, rows: list[Row] = ROWS) -> list[Row]:
    """The others."""
    kept = of_score(seed, rows)
    return [each for each in rows if each not in kept]

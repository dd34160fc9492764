"""One host's member of a register for benchmarks.registers: proposes all the time, and notes what it knows to be held.

    python -m benchmarks.rivals.member muster NAME '{"a": "10.77.0.1:2380", ...}' JOURNAL NOTES
    python -m benchmarks.rivals.member etcd   NAME ...                            -       NOTES

Each line of NOTES is a time and whether this member leads. `etcd`: the server runs beside it, at 127.0.0.1:2379.
"""

from __future__ import annotations

import base64
import json
import sys
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

KEY, PROPOSE_S, ANSWER_S = "the key of the run", 0.1, 5.0
CLIENT = "http://127.0.0.1:2379"


def ask(path: str, of: dict[str, Any], at: str = CLIENT, token: str = "") -> dict[str, Any]:
    """A call of etcd's gateway. Raises OSError."""
    headers = {"Authorization": token} if token else {}
    call = urllib.request.Request(f"{at}/v3/{path}", json.dumps(of).encode(), headers)
    with urllib.request.urlopen(call, timeout=ANSWER_S) as answer:
        return dict(json.load(answer))


def word(text: str) -> str:
    """Text as etcd's gateway takes it."""
    return base64.b64encode(text.encode()).decode()


def _muster(name: str, where: dict[str, str], journal: Path, notes: Path) -> None:
    from trainer.node.register import Register  # not for etcd's side

    register, known = Register(name, where, KEY, journal), 0
    members, proposed = tuple(where), 0.0
    with notes.open("a", buffering=1) as file:
        while True:
            epoch, now = register.epoch, time.time()
            if epoch.number > known:
                known = epoch.number
                file.write(f"{now:.3f} {int(register.leads)}\n")
            if now - proposed >= PROPOSE_S:
                proposed = now
                register.form(known + 1, members)
            time.sleep(0.01)


def _etcd(name: str, notes: Path) -> None:
    """Each change is asked for by itself: one that waits for a lost leader holds up none of the next."""
    with notes.open("a", buffering=1) as file, ThreadPoolExecutor(64) as threads:

        def propose() -> None:
            with suppress(OSError, ValueError):
                ask("kv/put", {"key": word("epoch"), "value": word(f"{name} {time.time()}")})
                t, status = time.time(), ask("maintenance/status", {})
                leads = status.get("leader") == status["header"]["member_id"]
                file.write(f"{t:.3f} {int(leads)}\n")

        while True:
            threads.submit(propose)
            time.sleep(PROPOSE_S)


if __name__ == "__main__":
    kind, own, others, log, written = sys.argv[1:]
    if kind == "muster":
        _muster(own, json.loads(others), Path(log), Path(written))
    else:
        _etcd(own, Path(written))

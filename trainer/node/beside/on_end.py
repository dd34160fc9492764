"""`python -m muster.trainer.node on_end`: witness a run's end, and run the user's --on-end command once.

Each node has one witness, in a separate container, so that it survives when the node is killed. When its own node has
ended, the witness asks the witnesses of the nodes before it; if one of them is alive, that one acts. The first witness
that is alive waits until all other nodes have ended or do not answer, decides how the run ended, and runs the command,
or posts to the URL. MUSTER_ON_END contains all settings (contract.md). Standard library only.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from muster.errors import DONE, FAILED, REFUSED, SIGNALLED, STOPPED, Refused
from muster.files import read_object

from ...run_dir import RankFolder
from ...verdict import RESUME, verdict_of
from ..agent import final_end, handover, limit
from ..files import work
from ..membership import alive, peers
from ..rank.mask import Mask

PLAN = "MUSTER_ON_END"
COMMAND_S, _POST_S = 60.0, 15.0
_VARIABLES = {"END": "end", "RUN_ID": "run", "EXIT_CODE": "code", "MESSAGE": "message", "END_NODE": "node",
              "END_RANK": "rank", "END_STEP": "step", "SECONDS": "seconds", "LOST": "lost"}  # fmt: skip
_POLL_S, _UNSEEN_S, _LINGER_S = 0.2, 2.0, 6.0
# A node that its host restarts is away for at most _AWAY_S; a node that has not begun within _BEGIN_S will not come.
_AWAY_S, _BEGIN_S = 6.0, 300.0
_MOST_LOG, _MOST_TEXT = 1 << 20, 8000
_CODES = {"done": DONE, "failed": FAILED, "refused": REFUSED, "stopped": STOPPED, "max-hours": STOPPED,
          "killed": SIGNALLED + signal.SIGKILL}  # fmt: skip
# A rank with an error outranks the ranks whose ends only followed from it.
_WORST_FIRST = ("refused", "failed", "stopped", "done")
_OUT_OF_MEMORY = ("container-out-of-memory", "host-out-of-memory")


class Witness:
    """The state of this witness: how its own nodes ended, and whether it has acted."""

    def __init__(self, plan: Mapping[str, Any]) -> None:
        self.plan, self.folder = plan, Path(plan["folder"])
        self.end: dict[str, Any] | None = None
        self.acted = False

    def answer(self) -> dict[str, Any]:
        """The answer to another witness."""
        return {"ended": self.end is not None, "acted": self.acted, "end": self.end}

    def wait(self) -> None:
        """Wait until the nodes of this run folder have ended and will not come back."""
        codes = [self._wait_one(name) for name in self.plan["nodes"]]
        paths = sorted((self.folder / "outcome").glob("[!.]*.json"))
        verdicts = [read_object(path) for path in paths]
        reached = bool(limit.why_stopped(self.folder, self.plan["start"]))
        self.end = _checked({"verdicts": verdicts, "limit": reached, "codes": codes})

    def _wait_one(self, name: str) -> int | None:
        """Wait for the end of one node; returns its exit code, or None if it was killed or never began."""
        began = away = time.monotonic()
        while True:
            lives, code = alive.read_lock(self.folder, name, self.plan["start"])
            now = time.monotonic()
            away = now if lives else away
            if (lives is False and not self._may_return(name, away)) or (lives is None and now - began > _BEGIN_S):
                return code
            time.sleep(_POLL_S)

    def _may_return(self, name: str, away: float) -> bool:
        """Whether the host may restart a node that has ended: it has restarts left, and its end was not final."""
        if not self.plan["restarts"] or time.monotonic() - away > _AWAY_S:
            return False
        return final_end.code_of(self.folder, name, str(self.plan["start"])) is None


def main() -> int:
    """Wait for the run's end, then act on it unless an earlier node's witness has acted. Returns 0."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C during `muster up` is meant for its nodes
    plan = json.loads(os.environ.pop(PLAN))
    secrets, witness = handover.receive_secrets(os.environ), Witness(plan)
    hosts = plan["hosts"]
    if len(hosts) > 1:
        with suppress(Refused):
            peers.serve(hosts[plan["place"]], plan["port"], plan["token"], lambda _: witness.answer())
    began = time.monotonic()
    witness.wait()
    if _another_acts(plan):
        return 0
    ends, lost = _all_ends(witness)
    about = {**describe(ends, lost), "run": plan["run"], "seconds": round(time.monotonic() - began, 1),
             "resume_command": os.environ.get(RESUME)}  # fmt: skip
    act(plan, about, secrets)
    witness.acted = True
    time.sleep(_LINGER_S if len(hosts) > 1 else 0)
    return 0


def _another_acts(plan: Mapping[str, Any]) -> bool:
    """Wait while a witness before this one is alive; returns whether one has acted."""
    unseen = 0.0
    while plan["place"]:
        began = time.monotonic()
        answers = [*filter(None, peers.ask_all(plan["hosts"][: plan["place"]], plan["port"], plan["token"]))]
        if any(answer.get("acted") for answer in answers):
            return True
        time.sleep(_POLL_S)
        unseen = 0.0 if answers else unseen + time.monotonic() - began
        if unseen > _UNSEEN_S / 2:
            break
    return False


def _all_ends(witness: Witness) -> tuple[list[dict[str, Any]], list[str]]:
    """How each node ended, after all have ended; and the names of the hosts that do not answer."""
    plan, ends, seen = witness.plan, {witness.plan["place"]: witness.end or {}}, dict[int, float]()
    others = [place for place in range(len(plan["hosts"])) if place != plan["place"]]
    lost: list[int] = []
    silent = set[int]()
    while waits := [place for place in others if place not in ends and place not in lost]:
        answers = peers.ask_all([plan["hosts"][place] for place in waits], plan["port"], plan["token"])
        now = time.monotonic()
        for place, answer in zip(waits, answers, strict=True):
            if not answer:
                silent |= {place} if answer is None else set()
                if now - seen.setdefault(place, now) > _UNSEEN_S:
                    lost += [place] if place in silent else []
                    ends |= {} if place in silent else {place: {"codes": [None]}}  # its witness was killed, too
                continue
            seen[place] = now
            if answer.get("ended"):
                ends[place] = _checked(answer.get("end"))
        time.sleep(_POLL_S)
    return list(ends.values()), [plan["names"][place] for place in lost]


def _checked(end: object) -> dict[str, Any]:
    """Validate what a host reports about its node's end, or a script has written; drops everything unusable."""
    about = end if isinstance(end, dict) else {}
    rows, codes = about.get("verdicts"), about.get("codes")
    verdicts = filter(None, map(verdict_of, rows if isinstance(rows, list) else ()))
    return {
        "verdicts": [verdict.row() for verdict in verdicts if verdict.verdict in _WORST_FIRST],
        "limit": about.get("limit") is True,
        "codes": [code if type(code) is int else None for code in codes] if isinstance(codes, list) else [None],
    }


def describe(ends: Sequence[Mapping[str, Any]], lost: Sequence[str]) -> dict[str, Any]:
    """Describe how the run ended, from how each node ended. `lost`: the hosts that no longer answer."""
    verdicts = [verdict for end in ends for verdict in end.get("verdicts", ())]
    first: Mapping[str, Any] = min(verdicts, key=_weight, default={})
    word, message = str(first.get("verdict", "")), str(first.get("message", ""))
    codes = [code for end in ends for code in end.get("codes", (None,))]
    if not word or (word == "done" and (lost or any(codes))):
        word, message = "failed", "a node ended without a report from its ranks"
        if lost:
            word, message = "lost", f"{', '.join(lost)} does not answer"
        elif None in codes:
            word, message = "killed", "its nodes were killed"
    elif word == "stopped" and any(end.get("limit") for end in ends):
        word = "max-hours"
    elif first.get("cause") in _OUT_OF_MEMORY:
        word = "out-of-memory"
    place = {name: first.get(name) for name in ("node", "rank", "step")} if first else {}
    return {"end": word, "code": _CODES.get(word, FAILED), "message": message, **place, "lost": lost}


def act(plan: Mapping[str, Any], about: Mapping[str, Any], secrets: Mapping[str, str]) -> None:
    """Run the command or post to the URL, and record the result in the run folder. Raises nothing."""
    began, what = time.monotonic(), plan["command"]
    try:
        error = _post(what, about) if what.startswith(("http://", "https://")) else _run(plan, about, secrets)
    except Exception as fault:  # whatever the error is, it does not change how the run ended
        error = f"{type(fault).__name__}: {fault}"
    with suppress(OSError):
        notes = RankFolder(Path(plan["folder"]), plan["rank"], plan["nodes"][0])
        notes.event("on_end", end=about["end"], seconds=round(time.monotonic() - began, 1), error=error[:500])


def _run(plan: Mapping[str, Any], about: Mapping[str, Any], secrets: Mapping[str, str]) -> str:
    """Run the user's command; returns what went wrong, or an empty text."""
    folder = Path(plan["folder"])
    variables = {f"MUSTER_{name}": _text(about.get(field)) for name, field in _VARIABLES.items()}
    inside = folder / work.WORK
    (folder / "logs").mkdir(exist_ok=True)  # if the run ended before any rank began, there is no such folder yet
    with (folder / "logs" / "on-end.log").open("ab", buffering=0) as log:
        child = subprocess.Popen(
            ["/bin/sh", "-c", plan["command"]],
            env={**os.environ, **secrets, **variables},
            cwd=inside if inside.is_dir() else folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        reading = threading.Thread(
            target=_copy, args=(child, log, Mask(handover.secret_values(os.environ, secrets))), daemon=True
        )
        reading.start()
        try:
            code = child.wait(COMMAND_S)
        except subprocess.TimeoutExpired:
            code = None
        with suppress(ProcessLookupError):  # this also ends what the command has left in the background
            os.killpg(child.pid, signal.SIGKILL)
        reading.join(1.0)
    if code is None:
        return f"the command was killed: it was still running after {COMMAND_S:.0f} s"
    return f"the command ended with code {code}" if code else ""


def _copy(child: subprocess.Popen[bytes], log: Any, mask: Mask) -> None:
    left = _MOST_LOG
    while child.stdout and (piece := os.read(child.stdout.fileno(), 1 << 16)):
        shown = mask.take(piece)[:left]
        left -= len(shown)
        with suppress(OSError, ValueError):  # on a full disk the output is lost, and the command continues
            log.write(shown)
    with suppress(OSError, ValueError):
        log.write(mask.rest()[:left])


def _post(url: str, about: Mapping[str, Any]) -> str:
    request = urllib.request.Request(url, json.dumps(about).encode(), {"Content-Type": "application/json"})
    try:
        with urllib.request.build_opener(_NoRedirects).open(request, timeout=_POST_S) as reply:
            return "" if reply.status < 300 else f"{url} answered {reply.status}"
    except urllib.error.HTTPError as fault:
        if 300 <= fault.code < 400:
            return f"the server answered {fault.code}, a redirect: nothing was posted there; give the final URL"
        raise


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Post only to the URL that the user gave."""

    def redirect_request(self, *_: Any) -> None:
        """Follow no redirect: a redirect counts as an error."""


def _weight(verdict: Mapping[str, Any]) -> tuple[int, float]:
    since = verdict.get("since", 0.0)  # a script may have written this: NaN, or True, which equals 1, are possible
    return _WORST_FIRST.index(verdict["verdict"]), since if 1 < since < 1e11 else float("inf")


def _text(value: object) -> str:
    """Text for an environment variable, which accepts no zero byte and no invalid UTF-8.

    Another host may send anything.
    """
    text = ",".join(map(str, value)) if isinstance(value, list) else "" if value is None else str(value)
    return text.replace("\0", "").encode(errors="replace").decode()[:_MOST_TEXT]


if __name__ == "__main__":
    sys.exit(main())

"""`python -m muster.trainer.node on_end`: the witness of a run's end. It runs the user's --on-end once, and leaves.

One witness stands beside each node, in a container of its own: it lives where the node is killed. When its own node has
ended, it asks the witnesses of the nodes before it; if one of them lives, that one acts. The first that lives waits
until all others have ended or do not answer, decides how the run ended, and runs the command, or posts to the URL.
MUSTER_ON_END says all of it (contract.md). Standard library only.
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
# A node that its host starts again is away for moments; one that never began does not come any more.
_AWAY_S, _BEGIN_S = 6.0, 300.0
_MOST_LOG, _MOST_TEXT = 1 << 20, 8000
_CODES = {"done": DONE, "failed": FAILED, "refused": REFUSED, "stopped": STOPPED, "max-hours": STOPPED,
          "killed": SIGNALLED + signal.SIGKILL}  # fmt: skip
# An error outranks the ends of ranks that only followed it.
_WORST_FIRST = ("refused", "failed", "stopped", "done")
_OUT_OF_MEMORY = ("container-out-of-memory", "host-out-of-memory")


class Witness:
    """What this witness knows: how its own nodes ended, and whether it has acted."""

    def __init__(self, plan: Mapping[str, Any]) -> None:
        self.plan, self.folder = plan, Path(plan["folder"])
        self.end: dict[str, Any] | None = None
        self.acted = False

    def answer(self) -> dict[str, Any]:
        """For another witness."""
        return {"ended": self.end is not None, "acted": self.acted, "end": self.end}

    def wait(self) -> None:
        """Wait until the nodes of this run folder have ended and do not come back."""
        codes = [self._wait_one(name) for name in self.plan["nodes"]]
        paths = sorted((self.folder / "outcome").glob("[!.]*.json"))
        verdicts = [read_object(path) for path in paths]
        reached = bool(limit.why_stopped(self.folder, self.plan["start"]))
        self.end = _checked({"verdicts": verdicts, "limit": reached, "codes": codes})

    def _wait_one(self, name: str) -> int | None:
        """Wait for the end of one node; its exit code, None if it was killed."""
        began = away = time.monotonic()
        while True:
            lives, code = alive.look(self.folder, name, self.plan["start"])
            now = time.monotonic()
            away = now if lives else away
            if (lives is False and not self._may_return(name, away)) or (lives is None and now - began > _BEGIN_S):
                return code
            time.sleep(_POLL_S)

    def _may_return(self, name: str, away: float) -> bool:
        """Whether the host may start a node again that has ended: it has restarts left, and its end was not final."""
        if not self.plan["restarts"] or time.monotonic() - away > _AWAY_S:
            return False
        return final_end.code_of(self.folder, name, str(self.plan["start"])) is None


def main() -> int:
    """Wait for the run's end, then act on it unless a witness before this one has. Returns 0."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C of `muster up` is for its nodes
    plan = json.loads(os.environ.pop(PLAN))
    secrets, witness = handover.take(os.environ), Witness(plan)
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
    """Wait while a witness before this one lives; return whether one has acted."""
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
    """How each node ended, once all have; and the names of the hosts that do not answer."""
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
                    ends |= {} if place in silent else {place: {"codes": [None]}}  # its witness was killed as well
                continue
            seen[place] = now
            if answer.get("ended"):
                ends[place] = _checked(answer.get("end"))
        time.sleep(_POLL_S)
    return list(ends.values()), [plan["names"][place] for place in lost]


def _checked(end: object) -> dict[str, Any]:
    """What a host says about its node's end, or a script has written, without anything that we could not use."""
    about = end if isinstance(end, dict) else {}
    rows, codes = about.get("verdicts"), about.get("codes")
    verdicts = filter(None, map(verdict_of, rows if isinstance(rows, list) else ()))
    return {
        "verdicts": [verdict.row() for verdict in verdicts if verdict.verdict in _WORST_FIRST],
        "limit": about.get("limit") is True,
        "codes": [code if type(code) is int else None for code in codes] if isinstance(codes, list) else [None],
    }


def describe(ends: Sequence[Mapping[str, Any]], lost: Sequence[str]) -> dict[str, Any]:
    """How the run ended, from how each node did. `lost`: the hosts that do not answer any more."""
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
    """Run the command or post to the URL, and note in the run folder how that went. Raises nothing."""
    began, what = time.monotonic(), plan["command"]
    try:
        error = _post(what, about) if what.startswith(("http://", "https://")) else _run(plan, about, secrets)
    except Exception as fault:  # whatever it is, the run has ended as it has
        error = f"{type(fault).__name__}: {fault}"
    with suppress(OSError):
        notes = RankFolder(Path(plan["folder"]), plan["rank"], plan["nodes"][0])
        notes.event("on_end", end=about["end"], seconds=round(time.monotonic() - began, 1), error=error[:500])


def _run(plan: Mapping[str, Any], about: Mapping[str, Any], secrets: Mapping[str, str]) -> str:
    """Run the command of the user; what went wrong, or an empty text."""
    folder = Path(plan["folder"])
    variables = {f"MUSTER_{name}": _text(about.get(field)) for name, field in _VARIABLES.items()}
    inside = folder / work.WORK
    (folder / "logs").mkdir(exist_ok=True)  # no rank has begun where the run ended before
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
            target=_copy, args=(child, log, Mask(handover.values(os.environ, secrets))), daemon=True
        )
        reading.start()
        try:
            code = child.wait(COMMAND_S)
        except subprocess.TimeoutExpired:
            code = None
        with suppress(ProcessLookupError):  # also what it has left in the background
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
        with suppress(OSError, ValueError):  # on a full disk it is lost, and the command goes on
            log.write(shown)
    with suppress(OSError, ValueError):
        log.write(mask.rest()[:left])


def _post(url: str, about: Mapping[str, Any]) -> str:
    request = urllib.request.Request(url, json.dumps(about).encode(), {"Content-Type": "application/json"})
    try:
        with urllib.request.build_opener(_Stays).open(request, timeout=_POST_S) as reply:
            return "" if reply.status < 300 else f"{url} answered {reply.status}"
    except urllib.error.HTTPError as fault:
        if 300 <= fault.code < 400:
            return f"the server answered {fault.code}, a redirect: nothing was posted there; give the final URL"
        raise


class _Stays(urllib.request.HTTPRedirectHandler):
    """What is posted goes where the user said, and nowhere else."""

    def redirect_request(self, *_: Any) -> None:
        """Follow no redirect: the answer counts as an error."""


def _weight(verdict: Mapping[str, Any]) -> tuple[int, float]:
    since = verdict.get("since", 0.0)  # a script may have written it: also NaN, or True, which is 1
    return _WORST_FIRST.index(verdict["verdict"]), since if 1 < since < 1e11 else float("inf")


def _text(value: object) -> str:
    """For a variable, which takes neither a zero nor half a letter: another host may say anything."""
    text = ",".join(map(str, value)) if isinstance(value, list) else "" if value is None else str(value)
    return text.replace("\0", "").encode(errors="replace").decode()[:_MOST_TEXT]


if __name__ == "__main__":
    sys.exit(main())

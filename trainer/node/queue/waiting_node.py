"""A node of a run that waits for its hosts (--wait): its rehearsals, and the variables with which its ranks start.

MUSTER_WAIT contains what the node has to know (contract.md). While it waits, the node survives a reboot of its host;
once its ranks have started, it restarts as often as any other node. Standard library only.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Mapping, MutableMapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from muster.errors import FAILED, REFUSED, STOPPED, Refused
from muster.files import read_object, replace

from ...run_dir import RankFolder
from ...verdict import Verdict
from ..membership import meeting, peers
from .claims import RUNS, Claims, NoClaim
from .coordinator import Coordinator, Unfit
from .reservation import Reservation, variables

# A console line that begins with WAITS is not output of the script.
PLAN, WAITS = "MUSTER_WAIT", "muster waits: "
_ROUND_S, _LOOK_S, _AGAIN_S, _PORT_S = 2.0, 0.5, 10.0, 30.0
_TRIES = 2
_POINT = "PET_RDZV_ENDPOINT"


class Ends(Exception):
    """The run ends before its ranks start."""

    def __init__(self, verdict: Verdict) -> None:
        super().__init__(verdict.message)
        self.verdict = verdict


def until_start(environment: MutableMapping[str, str], claims: Claims | None, folder: Path, name: str) -> None:
    """Wait for this run's places if it should wait, and put its ranks' variables into `environment`. Raises Ends."""
    text = environment.pop(PLAN, "")
    if not text or claims is None:
        return
    plan = json.loads(text)
    marker, start = folder / "nodes" / f".{name}.started", environment.get("PET_RDZV_ID", "")
    try:
        begun = _begun(marker, start)
        place = Reservation(plan, claims) if not begun else None
        if place:
            about: Mapping[str, Any] = {**_wait(place, environment, folder, name), "lives": 0, "start": start}
        else:
            about = begun
            _again(plan, claims, name, about)
        about = {**about, "lives": about["lives"] + 1}
        replace(marker, json.dumps(about))
        claims.write(state=RUNS, gpus=about["gpus"], why="", returns=about["lives"] < plan["lives"])
    except NoClaim as fault:
        raise Ends(Verdict("refused", REFUSED, plan["rank"], name, 0, f"{name}: {fault}")) from fault
    host, _, _ = environment[_POINT].rpartition(":")
    environment.update({_POINT: f"{host}:{about['port']}", **variables(plan, about["gpus"])})


def _begun(marker: Path, start: str) -> Mapping[str, Any]:
    about = read_object(marker)
    return about if about.get("start") == start else {}


def _again(plan: Mapping[str, Any], claims: Claims, name: str, about: Mapping[str, Any]) -> None:
    """Start again after the ranks have started once, if the run may restart and its GPUs are free. Raises Ends."""
    if about["lives"] >= plan["lives"]:
        words = f"{name} was killed, or its host has rebooted; a script starts again only with --restarts"
        raise Ends(Verdict("failed", FAILED, plan["rank"], name, 0, words))
    claims.write(state=RUNS, gpus=about["gpus"], why="")
    others = {uuid: other for other in claims.others() for uuid in other.gpus}
    if lost := [others[uuid].shown for uuid in about["gpus"] if uuid in others]:
        words = f"{name} starts again, but {lost[0]} has taken its GPUs in the meantime"
        raise Ends(Verdict("failed", FAILED, plan["rank"], name, 0, words))


def _wait(place: Reservation, environment: Mapping[str, str], folder: Path, name: str) -> Mapping[str, Any]:
    plan, reason = place.plan, [""]
    first, events = plan["place"] == 0, RankFolder(folder, plan["rank"], name)

    def say(why: str) -> None:
        reason[0] = why
        print(f"{WAITS}{why}", flush=True)
        events.event("waits", why=why, since=plan["since"])

    try:
        listening = _serve(place)
    except Refused as fault:
        raise _ends(place, _refused(plan, name, f"{name} {fault.message}")) from fault
    try:
        turn = Coordinator(place, int(environment[_POINT].rpartition(":")[2]), say) if first else None
        if not first:
            print(f"{WAITS}{plan['names'][0]} says when it starts", flush=True)
        faults = 0
        while not place.started and not place.ended:
            try:
                if turn and turn.step():
                    break
            except Unfit as fault:
                faults += 1
                say(f"the rehearsal failed: {fault}")
                if faults >= _TRIES:
                    what = f"the rehearsal before the start failed: {fault}"
                    raise _ends(place, _refused(plan, fault.node, what)) from fault
                time.sleep(_AGAIN_S)
            place.changed.wait(_ROUND_S if first else _LOOK_S)
            place.look()
    except KeyboardInterrupt:
        words = f"stopped while it waited{f' ({reason[0]})' if reason[0] else ''}"
        raise _ends(place, Verdict("stopped", STOPPED, plan["rank"], name, 0, words)) from None
    finally:
        meeting.close(listening)
    if place.ended or not place.started:
        raise Ends(place.ended or _refused(plan, name, "the run did not start"))
    return place.started


def _serve(place: Reservation) -> socket.socket:
    """Serve the other nodes' questions. For a moment, a passing connection may hold the port. Raises Refused."""
    plan, end = place.plan, time.monotonic() + _PORT_S
    while True:
        try:
            return peers.serve(plan["addresses"][plan["place"]], plan["port"], plan["key"], place.answer)
        except Refused:
            if time.monotonic() > end:
                raise
            time.sleep(_LOOK_S)


def _refused(plan: Mapping[str, Any], node: str, message: str) -> Verdict:
    hint = f"muster preflight --hosts {','.join(plan['names'])}"
    return Verdict("refused", REFUSED, plan["rank"], node, 0, message, hint)


def _ends(place: Reservation, verdict: Verdict) -> Ends:
    """End the run here, and tell all nodes, so that none waits for this one."""
    place.end(verdict)
    plan, message = place.plan, {"do": "end", "verdict": asdict(verdict)}
    others = [address for number, address in enumerate(plan["addresses"]) if number != plan["place"]]
    peers.ask_all(others, plan["port"], plan["key"], message)
    return Ends(verdict)

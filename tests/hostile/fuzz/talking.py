"""Preflight conversations with three hosts, one of them odd: preflight must not blame the other two.

A finding may name the odd host; any other finding must be one that three healthy hosts also get.
"""

from __future__ import annotations

import json
from functools import cache
from unittest import mock

from deploy.core import fields
from deploy.core.errors import DeployError
from deploy.preflight import PreflightRequest, judge
from deploy.preflight.probe import conversation as preflight_run
from deploy.preflight.probe import rehearsal
from deploy.preflight.rehearsal import Scene, findings, summary
from tests.hostile.fuzz import samples

REQUESTS = (
    PreflightRequest(style="torchrun", endpoint="10.0.0.1", backend="nccl"),
    PreflightRequest(style="muster", backend="auto"),
    PreflightRequest(style="torchrun", endpoint="gpu-a", backend="gloo"),
)
ODD = samples.HOSTS[1]


class Probe:
    """A host that answers; `script`: lines with a question, a space and the answer that replaces the honest one."""

    def __init__(self, place, script=None):
        self.name, self.place, self.script = samples.HOSTS[place], place, script
        self.known, self.asked = samples.probe(place), {}

    def send(self, question):
        self.asked = question

    def read(self, wait_s):
        do = self.asked["do"]
        if self.script is None:
            return self.answer(do)
        for number, line in enumerate(self.script):
            word, _, rest = line.partition(" ")
            if word == do:
                del self.script[number]
                if rest == "=":
                    return self.answer(do)
                if rest.startswith("with "):
                    return self.connected(fields.json_object(rest[5:], "what the probe said"))
                return fields.json_object(rest, "what the probe said")
        raise DeployError(f"{self.name}: the probe ended with code 1: gone")

    def answer(self, do):
        return self.connected({}) if do == "connect" else self.known[do]

    def connected(self, change):
        """Every target is reached; the first result with these changes."""
        results = []
        for target in self.asked["targets"]:
            results.append({**samples.RESULT, "id": target["id"], "host": target["host"], "source": "", "seen": ""})
        if results:
            results[0] |= change
        return {"results": results}

    def close(self):
        pass


class Inline:
    """A thread that runs its target in start(), so that thousands of conversations a minute are possible."""

    def __init__(self, target, args, daemon):
        self.target, self.args = target, args

    def start(self):
        self.target(*self.args)

    def join(self):
        pass


def _examined(shells, request):
    with mock.patch.object(preflight_run.threading, "Thread", Inline):
        return preflight_run.examine(shells, request)


def conversation():
    """Samples and their handler. A sample has the number of a PreflightRequest, then lines `question answer`."""
    known = samples.probe(1)
    questions = ["facts", "listen", *["clock"] * 3]
    whole = [f"{do} {json.dumps(known[do])}" for do in questions]
    calls = ["connect ="] * 4
    asked = [json.dumps({**samples.RESULT, "host": "gpu-a"}), '{"outcome": "dropped", "host": ""}']
    rules = f"firewall {json.dumps(known['firewall'])}"
    scripts = ["\n".join([str(number), *whole, *calls, rules]) for number in range(len(REQUESTS))]
    scripts += ["\n".join(["1", *whole, f"connect with {call}", *calls, rules]) for call in asked]
    return tuple(each.encode() for each in scripts), _judged


def _judged(data):
    number, *script = data.decode(errors="replace").split("\n")
    request = REQUESTS[int(number)] if number in ("0", "1", "2") else REQUESTS[0]
    answers = _examined([Probe(0), Probe(1, script), Probe(2)], request)
    judged = judge(answers)
    json.dumps(answers.json()).encode()
    json.dumps(judged.json()).encode()
    innocent = [
        each for each in judged.findings if ODD not in each.hosts and ODD not in each.text + " ".join(each.evidence)
    ]
    strange = [each for each in innocent if each.cause not in _alone(request)]
    assert not strange, f"others are blamed: {strange}"


@cache
def _alone(request):
    """Causes that preflight reports for three healthy hosts."""
    return {each.cause for each in judge(_well(request)).findings}


@cache
def _well(request):
    return _examined([Probe(0), Probe(1), Probe(2)], request)


def proof():
    """Samples and their handler: one host's answer to both phases of a rehearsal, next to two honest hosts."""
    rank = '{"local": 0, "step": "write to /muster/run"'
    failed = rank + ', "error": "OSError: [Errno 28] No space left on device", "words": "x"}'
    killed = rank + ', "signal": 9, "code": 1, "seconds": 0.5, "world": 3}'
    scripts = (
        f'{{"phase": "alone", "torch": "2.13.0", "ranks": [{rank}, "right": true}}], "warnings": [["/d", "full"]]}}',
        f'{{"phase": "together", "torch": "2.13.0", "seconds": 0.5, "ranks": [{failed}, {killed}]}}',
        '{"phase": "alone", "torch": "", "error": "No module named torch"}',
    )
    return tuple(each.encode() for each in scripts), _proved


def _proved(data):
    answers, text = _well(REQUESTS[1]), data.decode(errors="replace")

    class Rank(Probe):
        def send(self, question):
            self.phase = question.get("do", "alone")

        def read(self, wait_s):
            right = {"phase": self.phase, "torch": "2", "ranks": [{"local": 0, "step": "", "right": True}]}
            return fields.json_object(text, "said") if self.place == 1 else right

    ranks = [Rank(0), Rank(1), Rank(2)]
    outcomes = rehearsal.rehearse(ranks, {rank.name: {} for rank in ranks})
    scene = Scene([rank.name for rank in ranks], "gloo", "10.0.0.1:29500")
    judged = judge(answers, findings(outcomes, scene))
    summary(outcomes, rehearsal.LONG)
    json.dumps(judged.json()).encode()
    assert judged.ok or any(ODD in each.hosts for each in judged.findings)

"""A whole preflight in a laboratory: real probes on its hosts; also what a plain `nc -vz` from each host would show."""

from __future__ import annotations

import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace

from deploy.local.probe import LocalProbe
from deploy.preflight import PreflightRequest, Verdict, judge
from deploy.preflight.probe.conversation import examine
from lab.fault import TORCHRUN, Expected
from lab.job import endpoint
from lab.network import PORT

# The Python in which training runs.
PYTHON = sys.executable
# The messages with which torchrun names a cause; its other messages fit several causes, or it prints nothing.
PLAIN_WORDS = {
    "port-busy": ("EADDRINUSE",),
    "endpoint-unresolvable": ("Name or service not known",),
    "name-unresolvable": ("Name or service not known", "Unable to resolve hostname"),
    "peer-name-unresolvable": ("Name or service not known", "cannot be retrieved"),
    "interface-missing": ("Unable to find address for",),
    "interface-no-address": ("Unable to find address for",),
    "interface-loopback": ("remote=[127.",),
    "open-files": ("Too many open files",),
    "no-route": ("No route to host", "Network is unreachable"),
    "family-mixed": ("ss_family",),
    "disk-full": ("No space left on device",),
    "few-ports": ("Cannot assign requested address", "EADDRINUSE"),
}
NC_S = 3
OF_A_PATH = (
    "host-unreachable",
    "no-route",
    "mtu-blackhole",
    "data-ports-dropped",
    "all-ports-dropped",
    "rendezvous-dropped",
    "rendezvous-rejected",
    "data-ports-rejected",
    "all-ports-rejected",
    "arp-unanswered",
    "connection-cut",
    "link-delay",
    "link-loss",
    "link-slow",
)


def request(lab, run):
    """The preflight request for this run."""
    meet = endpoint(lab, run) if run.style == TORCHRUN or run.endpoint != "address" else ""
    return PreflightRequest(style=run.style, endpoint=meet, port=PORT, backend="gloo", rendezvous=run.rendezvous)


def answers(lab, run, measure=False, inside=True, choose=True):
    """The answers of all hosts' probes.

    `measure`: also every pair's rate; not `inside`: probed on the hosts themselves, without the environment, limits and
    mounts that the run has there. `choose`: whether preflight may choose another network.
    """
    with ExitStack() as stack:
        probes = [
            stack.enter_context(LocalProbe(host.name, [*host.prefix(inside), PYTHON], env=host.variables(inside)))
            for host in lab.hosts
        ]
        return examine(probes, request(lab, run), measure=measure, choose=choose)


def preflight(lab, run) -> tuple[Verdict, float]:
    """The verdict, and how many seconds it took, including the start of the probes."""
    began = time.monotonic()
    verdict = judge(answers(lab, run))
    return verdict, time.monotonic() - began


def says_the_cause(verdict: Verdict, expected: Expected) -> bool:
    """Whether the first cause is the right one; if there is no fault, whether there is no alarm."""
    if not expected.cause:
        return verdict.ok
    if expected.parts:
        return any(says_the_cause(verdict, part) for part in expected.parts)
    return verdict.cause in (expected.cause, *expected.also) and not verdict.ok


def says_where(verdict: Verdict, expected: Expected) -> bool:
    """Whether the first cause names the right hosts, or the link.

    With two hosts, a broken path has two ends, and no third host can tell which: then naming both ends is right.
    """
    if expected.parts:
        return any(says_the_cause(verdict, part) and says_where(verdict, part) for part in expected.parts)
    problems = [*verdict.faults, *verdict.unknown]
    named = {host for finding in problems if finding.cause == verdict.cause for host in finding.hosts}
    if expected.link:
        ends = {expected.link.source, expected.link.target}
        link = (verdict.first.link if verdict.first else None) or named
        return bool(link) and set(link) <= ends
    pair = len(verdict.hosts_examined) == 2 and verdict.cause in OF_A_PATH and named == set(verdict.hosts_examined)
    return named == set(expected.hosts) or (pair and bool(expected.hosts))


def says_all(verdict: Verdict, expected: Expected) -> bool:
    """Whether each of several faults is named with its place, in any order, even as a warning."""
    singles = [replace(verdict, findings=(replace(finding, level="fault"),)) for finding in verdict.findings]
    return all(
        any(says_the_cause(single, part) and says_where(single, part) for single in singles) for part in expected.parts
    )


@dataclass(frozen=True)
class Nc:
    """The output of `nc -vz` from each host to the first host's rendezvous port, by host."""

    words: dict[str, str]

    @property
    def alarms(self):
        """Whether a person who reads it would see a fault.

        Any answer is a sign of one, except "refused" on all hosts, which is normal before a run.
        """
        kinds = {_kind(text) for text in self.words.values()}
        return kinds != {"refused"}


def _kind(text):
    for word in ("refused", "succeeded", "timed out", "unreachable", "No route"):
        if word in text:
            return word
    return "other"


def nc(lab, run) -> Nc:
    """The classic script: `nc -vz HOST PORT` from every other host, before anything listens there."""
    meet = endpoint(lab, run)

    def ask(host):
        return host.name, host.run("nc", "-vz", "-w", str(NC_S), meet, str(PORT)).stderr.strip()

    with ThreadPoolExecutor(8) as pool:
        return Nc(dict(pool.map(ask, lab.hosts[1:])))


def torchrun_names(texts: dict[str, str], expected: Expected) -> bool:
    """Whether torchrun's own output shows the cause: messages that only this cause would produce."""
    words = [word for part in expected.parts or (expected,) for word in PLAIN_WORDS.get(part.cause, ())]
    return any(word in text for text in texts.values() for word in words)

"""If an engine passes on no connection to a container, preflight probes outside containers and refuses no run."""

import dataclasses
from types import SimpleNamespace

import pytest

from deploy.causes.finding import WARNING, find
from deploy.core.errors import CommandEnded
from deploy.door.faults import FaultPlace, fault
from deploy.door.session import Done
from deploy.host.reached import NoAnswer
from deploy.hosts.start import preflight, probe_ends
from deploy.hosts.start.presence import ImagePresence
from deploy.job.cluster import from_flag
from deploy.preflight import PreflightRequest, judge
from deploy.preflight.rehearsal import Outcome, findings
from deploy.report.console import Console
from lab.answers import answers
from tests.hosts import FACTS
from tests.unit.preflight.test_rehearsal import SCENE, answer

CLOSED = NoAnswer.of_probe(CommandEnded("b: `... docker run`", 1, "unable to upgrade to tcp, received 400"))


class Session:
    """A host that records the commands that run on it."""

    def __init__(self, name):
        self.name, self.host, self.ran = name, SimpleNamespace(name=name), []

    def run(self, argv, **more):
        self.ran.append(argv)
        return Done(0, "", "")


@pytest.fixture
def sessions(monkeypatch):
    """Three hosts: inside the image, the probe on b gets no connection; outside, all probes are fine."""

    def looked(hosts, presence, options):
        request = preflight._completed(PreflightRequest(), hosts, presence.shut or preflight.INSIDE)
        seen = dataclasses.replace(answers(), request=request)
        if presence.everywhere:
            left = {host: facts for host, facts in seen.facts.items() if host != "b"}
            seen = dataclasses.replace(seen, facts=left, faults={"b": CLOSED})
        return seen, judge(seen, hosts.findings)

    monkeypatch.setattr(preflight, "_looked", looked)
    return [Session(name) for name in "abc"]


def test_preflight_looks_from_outside_and_warns_with_the_way_to_the_engine(sessions):
    facts = dict.fromkeys("abc", dataclasses.replace(FACTS, engine_at="DOCKER_HOST=unix:///run/front.sock"))
    hosts = preflight.ReachedHosts(from_flag("a,b,c"), sessions, facts)
    options = preflight.PreflightOptions(PreflightRequest())
    _, verdict = preflight.on_hosts(hosts, ImagePresence("lab:1", {}, True), options)
    (told,) = verdict.findings
    assert (verdict.ok, told.cause, told.level, told.hosts) == (True, "docker-refused", WARNING, ("b",))
    assert "unable to upgrade to tcp, received 400" in told.text
    assert "(DOCKER_HOST=unix:///run/front.sock) does not forward the upgrade" in told.text
    assert "`muster exec`, `muster shell`" in told.text
    assert told.fix.startswith("on b: docker context ls; echo $DOCKER_HOST ")
    assert verdict.where == "b allows no connection to a container"
    assert [bool(session.ran) for session in sessions] == [False, True, False], "what docker run made there is left"


def test_a_probe_that_died_of_something_else_does_not_mean_such_an_engine():
    died = NoAnswer.of_probe(CommandEnded("b: `sh`", 137, "Killed"))
    seen = dataclasses.replace(answers(), faults={"b": died})
    assert probe_ends.hosts_without_connection(seen) == {}
    seen = dataclasses.replace(answers(), faults={"b": CLOSED})
    assert probe_ends.hosts_without_connection(seen) == {"b": "unable to upgrade to tcp, received 400"}


def test_a_deploys_rehearsal_that_gets_no_connection_refuses_nothing():
    alone = answer({"local": 0, "step": "write", "right": True}, phase="alone")
    told = findings({"a": alone, "b": Outcome({}, CLOSED), "c": alone}, SCENE)
    assert [(each.cause, each.level, each.hosts) for each in told] == [("no-proof", WARNING, ("b",))]


@pytest.mark.parametrize(
    "words",
    [
        "muster-7b04: 1: /opt/py: not found",
        "muster-7b04: line 1: /opt/py: No such file or directory",
        "muster-7b04: Zeile 1: /opt/py: Datei oder Verzeichnis nicht gefunden",
    ],
)
def test_a_missing_python_is_named_whatever_the_shells_message(words):
    """Once, only dash's message was understood: if sh is bash, nothing said how to choose another Python."""
    end = NoAnswer.of_probe(CommandEnded("b: `/opt/py -c ...`", 127, words))
    told = dataclasses.replace(answers(), faults={"b": end})
    named = probe_ends.with_causes(told, "/opt/py").faults["b"]
    assert (named.cause, named.text) == ("no-python", "there is no /opt/py")
    assert "--python PATH" in named.hint
    assert probe_ends.with_causes(told, "python3").faults["b"] == end


def test_a_silent_probe_is_explained_by_a_container_that_did_not_start(monkeypatch):
    place = FaultPlace("b", "10.0.0.2", 22, "u", "b")
    silent, waits = (NoAnswer.of_probe(fault(kind, place, "in its words")) for kind in ("slow", "unstarted"))
    monkeypatch.setattr(probe_ends.probes, "has_unstarted", lambda session: True)
    seen = dataclasses.replace(answers(), faults={"a": silent, "b": waits})
    found = probe_ends.with_unstarted(seen, [Session("a"), Session("b"), Session("c")])
    assert [(host, each.cause) for host, each in found.faults.items()] == [("a", "docker-silent"), ("b", "ssh-slow")]


def test_what_a_preflight_before_the_push_said_is_not_said_again_after_it(sessions, monkeypatch, capsys):
    """Seen on a first deploy to boxes with 64 MB of shared memory: the same warning came twice."""
    hosts = preflight.ReachedHosts(from_flag("a,b,c"), sessions, dict.fromkeys("abc", FACTS))
    small, late = (find("shm-small", "a", f"/dev/shm has {free} free", "", WARNING) for free in ("64 MiB", "63 MiB"))
    seen = dataclasses.replace(answers(), request=PreflightRequest())
    known, unknown = judge(seen, [small]), judge(seen, [late, find("open-files", "b", "limit", "", WARNING)])
    verdicts = iter([known, unknown])
    monkeypatch.setattr(preflight, "presence_of", lambda *_: ImagePresence("lab:1", {}, True))
    monkeypatch.setattr(preflight, "on_hosts", lambda *_: (seen, next(verdicts)))
    before = preflight.gate(hosts, ("lab:1",), False, Console())
    assert capsys.readouterr().err.count("/dev/shm has 64 MiB free") == 1
    after = preflight.gate(hosts, ("lab:1",), False, Console(), before)
    told = capsys.readouterr().err
    assert "/dev/shm" not in told
    assert "limit" in told
    assert [of["cause"] for of in after["findings"]] == ["shm-small", "open-files"], "the record has all of them"

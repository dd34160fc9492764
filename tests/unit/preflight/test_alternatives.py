"""An inference first says what was seen and quotes the tool; it is sure only if its words have a single meaning."""

import pytest

from deploy.causes import docker_faults
from deploy.causes.finding import FAULT, LOOKS, UNKNOWN
from deploy.core.errors import DeployError
from deploy.core.results import HostsFailed
from deploy.door.faults import FaultPlace, fault
from deploy.host.reached import NoAnswer
from deploy.hosts.start import preflight as hosts_preflight
from deploy.preflight import confidence, judge, refusals
from deploy.preflight.checks import hosts as host_checks
from deploy.report import preflight_text
from lab.answers import HOSTS, answers
from tests.hosts import FACTS

DAEMON = "docker: Error response from daemon: "


def of_words(words):
    return refusals.of_words("b", "hosts", refusals.describe_end("the probe", 125), words)


@pytest.mark.parametrize(
    ("words", "cause"),
    [
        (f"{DAEMON}write /var/lib/docker/x: no space left on device", "disk-full"),
        ("fatal error: failed to reserve page summary memory", "memory-low"),
        ("runtime/cgo: pthread_create failed: Resource temporarily unavailable", "process-limits"),
        ("fork/exec /usr/bin/runc: exec format error", "docker-refused"),
        ("exec /usr/bin/python3: exec format error", "architecture-differs"),
        ("python3: error while loading shared libraries: libz.so.1: no such file", "no-python"),
        (f"{DAEMON}failed to extract layer sha256:82cf: not found", "image-missing"),
        (f"{DAEMON}error mounting /x to rootfs: permission denied", "mount-missing"),
        ("Cannot connect to the Docker daemon at tcp://127.0.0.1:2399. Is the docker daemon running?", "docker-down"),
        (f"{DAEMON}unknown or invalid runtime name: kata", "docker-refused"),
        ("some words that nobody knows", "probe-died"),
    ],
)
def test_words_with_several_causes_are_quoted_and_not_sure(words, cause):
    told = of_words(words)
    assert (told.cause, told.level) == (cause, UNKNOWN)
    assert told.text.startswith(f"b: the probe: `docker run` started no container (code 125): {words}")
    assert (LOOKS in told.text) == bool(told.or_else)


@pytest.mark.parametrize(
    ("words", "cause"),
    [
        (f"{DAEMON}invalid mount config for type bind: bind source path does not exist: /data", "mount-missing"),
        (f"{DAEMON}No such image: trainer:1", "image-missing"),
        (f'{DAEMON}could not select device driver "" with capabilities: [[gpu]]', "gpu-runtime"),
        ("Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is it running?", "docker-down"),
        ("muster-7b04: 1: python3: not found", "no-python"),
    ],
)
def test_words_that_a_tool_uses_for_one_cause_only_make_it_sure_and_are_quoted(words, cause):
    told = of_words(words)
    assert (told.cause, told.level, told.or_else) == (cause, FAULT, ())
    assert words in told.text


@pytest.mark.parametrize(
    ("words", "level"),
    [
        ('error during connect: Get "http://10.0.0.9:2375": context deadline exceeded', UNKNOWN),
        ("Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is it running?", FAULT),
        ("docker: not found in PATH (/bin)", FAULT),
        ("this engine is rootless", FAULT),
        ("no answer within 15 s", UNKNOWN),
    ],
)
def test_an_engine_that_cannot_be_used_is_reported_in_its_clients_words(words, level):
    told = host_checks.engine("b", docker_faults.fault(words, "docker-down"))
    assert told.level == level
    assert words in told.text


@pytest.mark.parametrize(
    ("kind", "sure"),
    [
        ("key-rejected", False),
        ("password-only", True),
        ("no-shell", False),
        ("no-library", True),
        ("changed-key", True),
        ("slow", False),
        ("unstarted", False),
    ],
)
def test_a_fault_for_which_the_server_gives_no_reason_is_not_sure(kind, sure):
    at = FaultPlace("b", "10.0.0.2", 22, "u", "b")
    seen = fault(kind, at, "in its words", known="/k:1", program="sh", library="libz.so.1", fix="")
    assert (refusals.of_fault("b", NoAnswer.of_probe(seen)).level == FAULT) == sure


def test_failed_calls_are_reported_with_hosts_ports_counts_and_what_still_answers():
    seen = answers(outcome=lambda s, t, k: "dropped" if (s, t, k) == ("c", "b", "data") else "ok")
    sentence = confidence.seen_in_words(seen, {("c", "b")})
    assert sentence.startswith("connections from c to b on ports ")
    assert "get no answer (" in sentence
    assert "port 29500 there answers" in sentence
    assert confidence.seen_in_words(seen, {("a", "b")}) == ""


def test_a_call_that_the_callers_own_kernel_forbids_is_blamed_on_the_caller():
    verdict = judge(answers(outcome=lambda s, t, k: "forbidden" if s == "c" else "ok"))
    assert (verdict.hosts, verdict.first.level) == (("c",), UNKNOWN)
    assert "forbidden by the calling host's own system" in verdict.first.text


def test_a_report_says_first_what_was_seen_and_then_what_it_may_be():
    verdict = judge(answers(outcome=lambda s, t, k: "dropped" if (s, t, k) == ("b", "a", "meet") else "ok"))
    lines = list(preflight_text.lines_of(verdict, "gloo"))
    cause = next(line for line in lines if line.startswith("cause"))
    assert cause.startswith("cause   connections from b to a on port 29500 get no answer")
    assert any("not sure, it may also be: a firewall" in line for line in lines)


def test_an_ip_command_that_does_not_start_is_reported_with_its_error():
    facts = {"b": FACTS.__class__(**{**FACTS.__dict__, "iproute": False, "iproute_words": "ip: libz.so.1: too short"})}
    (told,) = host_checks.homes(facts)
    assert (told.cause, told.level) == ("no-iproute2", FAULT)
    assert "libz.so.1" in told.text


def test_a_missing_standard_command_is_reported_before_a_run_loses_its_variables():
    facts = {"b": FACTS.__class__(**{**FACTS.__dict__, "lacks": ("base64",)})}
    (told,) = host_checks.homes(facts)
    assert (told.cause, told.level) == ("command-missing", FAULT)
    assert "base64" in told.text


def test_an_error_that_ends_a_deploys_plan_is_a_finding_about_the_host_it_names():
    failed = HostsFailed({"b": DeployError("`ip route get 10.0.0.1` shows no way: RTNETLINK answers: No route")}, 2)
    (told,) = hosts_preflight.planning_findings(failed, HOSTS)
    assert (told.cause, told.hosts, told.level) == ("proof-failed", ("b",), UNKNOWN)
    assert "RTNETLINK" in told.text

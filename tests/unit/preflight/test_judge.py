"""From recorded or invented answers to the cause: each test gives what was seen and what must be reported first."""

import dataclasses
import time
from pathlib import Path

import pytest

from deploy.causes.finding import UNKNOWN, WARNING, Finding, find
from deploy.core.errors import CommandEnded
from deploy.host.reached import NoAnswer
from deploy.preflight import Answers, PreflightRequest, judge, probe_answers
from deploy.preflight.answers import WORDS, Link, pairs
from deploy.preflight.checks import interfaces, names, software
from deploy.report import preflight_text
from lab.answers import HOSTS, answers, facts

HOME = Path(__file__).resolve().parents[3]


def test_a_python_too_old_for_the_agent_is_reported_for_each_image_that_has_it():
    versions = (("a", "3.10.12"), ("b", "3.11.0"), ("c", "3.9.2"))
    seen = answers(change={host: {"software": {"python": version}} for host, version in versions})
    assert [finding.hosts for finding in software.too_old(seen)] == [("a",), ("c",)]


def test_a_healthy_cluster_has_no_finding():
    verdict = judge(answers())
    assert verdict.ok
    assert verdict.findings == ()
    assert set(verdict.groups.values()) == {"ok", ""}


@pytest.mark.parametrize(
    ("bad", "cause", "hosts"),
    [
        (lambda s, t, k: k == "meet" and t == "a", "rendezvous-dropped", ("a",)),
        (lambda s, t, k: k == "data" and t == "b", "data-ports-dropped", ("b",)),
        (lambda s, t, k: k == "data", "data-ports-dropped", HOSTS),
        (lambda s, t, k: "b" in (s, t), "host-unreachable", ("b",)),
        (lambda s, t, k: s == "b", "all-ports-dropped", ("b",)),
        (lambda s, t, k: t in ("a", "b"), "all-ports-dropped", ("a", "b")),
        (lambda s, t, k: s == "c" and k == "meet", "rendezvous-dropped", ("c",)),
    ],
)
def test_dropped_calls_are_reduced_to_the_hosts_that_explain_them(bad, cause, hosts):
    verdict = judge(answers(outcome=lambda s, t, k: "dropped" if bad(s, t, k) else "ok"))
    assert (verdict.cause, verdict.hosts) == (cause, hosts)
    assert verdict.faults[1:] == []
    assert verdict.first.evidence
    assert verdict.fix


@pytest.mark.long
@pytest.mark.parametrize("closed", ["between halves", "to each", "of one", "large"])
def test_many_hosts_are_judged_in_seconds_whichever_calls_fail(closed, monkeypatch):
    """Earlier, each closed pair was compared with each other pair: 96 hosts took 2 s of CPU, 256 hosts two minutes."""
    hosts = ("a", *(f"h{number}" for number in range(1, 160)))
    monkeypatch.setattr("lab.answers.HOSTS", hosts)
    half = set(hosts[:80])
    bad = {
        "between halves": lambda s, t, k: (s in half) != (t in half),
        "to each": lambda s, t, k: True,
        "of one": lambda s, t, k: "h7" in (s, t),
        "large": lambda s, t, k: k == "data",
    }[closed]
    seen = answers(outcome=lambda s, t, k: ("stall-send" if closed == "large" else "dropped") if bad(s, t, k) else "ok")
    began = time.process_time()
    verdict = judge(seen)
    assert not verdict.ok
    assert time.process_time() - began < 10
    assert max(map(len, preflight_text.lines_of(verdict, "gloo"))) < 2000


def test_a_fault_of_many_hosts_fits_on_a_screen_and_the_finding_keeps_all_hosts(monkeypatch):
    """Earlier, Debian's loopback name on 60 hosts gave one line of 7,000 letters, and duplicate addresses 242 lines."""
    hosts = ("a", *(f"h{number}" for number in range(1, 60)))
    monkeypatch.setattr("lab.answers.HOSTS", hosts)
    loops = judge(answers(change={host: {"names": {host: [["127.0.1.1", True, host]]}} for host in hosts}))
    twins = judge(
        answers(change={host: {"names": {host: [[f"10.0.0.{n}", True, host]]}} for n, host in enumerate(hosts)})
    )
    clocks = judge(answers(clocks={host: (60.0 * n, 0.001) for n, host in enumerate(hosts)}))
    assert (loops.cause, loops.hosts) == ("name-loopback", hosts)
    assert "; and the same for h8, h9, h10 and 49 more" in loops.first.text
    assert loops.fix.endswith("; and the same on h8, h9, h10 and 49 more")
    for verdict in (loops, twins, clocks):
        told = list(preflight_text.lines_of(verdict, "gloo"))
        assert len(told) < 50
        assert max(map(len, told)) < 1500
    assert "duplicate-address (5" in told_of(twins)


def test_the_one_of_many_hosts_that_differs_is_reported_first(monkeypatch):
    """`the packet size (MTU) differs: a: 1500, h1: 1500, h2: 1500 and 27 more` left out the host that differed."""
    hosts = ("a", *(f"h{number}" for number in range(1, 30)))
    monkeypatch.setattr("lab.answers.HOSTS", hosts)
    known = facts(29)
    cards = {name: {**card, "mtu": 1400} for name, card in known["interfaces"].items()}
    other = {"h29": {"interfaces": cards, "software": {**known["software"], "torch": "2.0.0"}}}
    apart = {finding.cause: finding for finding in judge(answers(change=other)).findings}
    assert apart["mtu-differs"].text == "the packet size (MTU) differs: h29: 1400, a: 1500, h1: 1500 and 27 more"
    assert apart["mtu-differs"].evidence[0] == "h29: 1400"
    assert apart["torch-differs"].evidence[:2] == ("h29: 2.0.0", "a: 2.13.0")
    stalled = judge(answers(change=other, outcome=lambda s, t, k: "stall-send" if "h29" in (s, t) else "ok"))
    assert "(MTU: h29 1400, a 1500, h1 1500," in told_of(stalled)


def told_of(verdict):
    return "\n".join(preflight_text.lines_of(verdict, "gloo"))


def test_a_refused_call_to_a_listening_port_is_a_firewall_that_rejects():
    verdict = judge(answers(outcome=lambda s, t, k: "refused" if t == "a" and k == "meet" else "ok"))
    assert verdict.cause == "rendezvous-rejected"


def test_one_dead_direction_is_a_warning_only_if_gloo_never_calls_that_way():
    def closed(ends):
        return answers(outcome=lambda s, t, k: "dropped" if (s, t) == ends and k == "data" else "ok")

    assert judge(closed(("b", "c"))).ok
    assert [finding.cause for finding in judge(closed(("b", "c"))).warnings] == ["one-way"]
    verdict = judge(closed(("c", "b")))
    assert (verdict.cause, verdict.first.link, verdict.first.cells) == ("data-ports-dropped", ("c", "b"), (("c", "b"),))


def test_nccl_needs_both_directions():
    request = PreflightRequest(style="torchrun", endpoint="10.0.0.1", backend="nccl")
    seen = answers(request, outcome=lambda s, t, k: "dropped" if (s, t, k) == ("b", "c", "data") else "ok")
    assert judge(seen).cause == "data-ports-dropped"


def test_debians_loopback_name_is_the_cause_and_the_missing_listener_its_consequence():
    names = {host: [[f"10.0.0.{n + 1}", False, host]] for n, host in enumerate(HOSTS)}
    loop = {"a": {"names": {**names, "a": [["127.0.1.1", True, "a"]]}}}
    verdict = judge(answers(change=loop))
    assert (verdict.cause, verdict.hosts) == ("name-loopback", ("a",))
    assert verdict.faults[1:] == []
    assert any("no host would listen" in text for text in verdict.first.follows)


def test_given_addresses_make_names_harmless():
    loop = {host: {"names": {host: [["127.0.1.1", True, host]]}} for host in HOSTS}
    assert judge(answers(PreflightRequest(), change=loop)).ok


def test_a_clock_far_behind_is_a_fault_and_one_slightly_off_is_a_warning():
    def late(seconds):
        return judge(answers(clocks={"a": (0.0, 0.0), "b": (seconds, 0.0), "c": (0.0, 0.0)}))

    assert (late(-60).cause, late(-60).hosts) == ("clock-skew", ("b",))
    assert late(-5).ok
    assert [finding.cause for finding in late(-5).warnings] == ["clock-skew"]


def test_clocks_that_may_agree_within_the_measuring_error_are_not_reported():
    slow = {"a": (2.4, 2.45), "b": (-2.4, 2.45), "c": (0.0, 0.001)}
    assert not judge(answers(clocks=slow)).findings
    assert judge(answers(clocks={**slow, "c": (60.0, 0.001)})).hosts == ("c",)


def test_a_payload_that_stalls_is_blamed_on_the_packet_size():
    verdict = judge(answers(outcome=lambda s, t, k: "stall-send" if k == "data" and "b" in (s, t) else "ok"))
    assert (verdict.cause, verdict.hosts) == ("mtu-blackhole", ("b",))


def test_lost_large_packets_explain_a_cut_connection_of_the_same_pair():
    seen = answers()
    cells = (("a", "b"),)
    cut = Finding("connection-cut", "links", ("a", "b"), "it stops half-way", cells=cells)
    large = Finding("mtu-blackhole", "mtu", ("b",), "large packets get lost", level=WARNING, cells=(("b", "a"),))
    verdict = judge(seen, [large, cut])
    assert (verdict.cause, verdict.first.follows) == ("mtu-blackhole", ("it stops half-way",))
    assert judge(seen, [dataclasses.replace(large, cells=(("b", "c"),)), cut]).cause == "connection-cut"
    unused = dataclasses.replace(cut, level=WARNING)
    assert judge(seen, [large, unused]).ok, "on a way that no step uses, both are warnings"


def test_if_the_rehearsal_is_slow_a_link_known_to_be_bad_comes_first():
    crawl = Finding("link-slow", "proof", HOSTS, "the all_reduce took 34 s", level=UNKNOWN)
    lossy = Finding("link-loss", "links", ("c",), "c: 7% of the packets were sent again", level=WARNING)
    verdict = judge(answers(), [crawl, lossy])
    assert (verdict.cause, verdict.hosts, verdict.first.level) == ("link-loss", ("c",), UNKNOWN)
    assert verdict.first.follows == ("the all_reduce took 34 s",)
    assert judge(answers(), [lossy]).ok


@pytest.mark.parametrize(
    ("name", "right"), [("g" * 64, False), ("a..b", False), ("g" * 63, True), ("a" * 40 + "." + "b" * 40, True)]
)
def test_a_name_that_python_cannot_look_up_stops_torchrun(name, right):
    seen = answers(PreflightRequest(endpoint="10.0.0.1"), change={"b": {"hostname": name, "names": {}}})
    named = [finding for finding in names.check(seen) if "cannot look up" in finding.text]
    assert [finding.hosts for finding in named] == ([] if right else [("b",)])


def test_a_host_without_an_answer_never_passes():
    seen = answers()
    lost = {"b": NoAnswer("ssh", "b: cannot be reached", "check the name")}
    seen = dataclasses.replace(seen, faults=lost, facts={host: seen.facts[host] for host in ("a", "c")})
    seen = dataclasses.replace(seen, links=tuple(link for link in seen.links if "b" not in (link.source, link.target)))
    verdict = judge(seen)
    assert not verdict.ok
    assert (verdict.cause, verdict.hosts, verdict.fix) == ("ssh", ("b",), "check the name")


@pytest.mark.parametrize("outcome", sorted(WORDS))
@pytest.mark.parametrize("backend", ["gloo", "nccl"])
def test_a_host_that_lists_no_interfaces_is_judged_whatever_happened_to_calls_to_it(outcome, backend):
    request = PreflightRequest(endpoint="10.0.0.1", backend=backend)
    seen = answers(request, {"a": {"interfaces": {}}}, lambda s, t, k: outcome if t == "a" else "ok")
    verdict = judge(seen)
    assert any("a" in finding.hosts for finding in verdict.findings)
    assert not any(empty in finding.fix for finding in verdict.findings for empty in (" -s  -j", " -d  -j"))


def test_another_network_that_answers_late_is_still_reported_as_working():
    cards = {**facts(1)["interfaces"], "eth1": {**facts(1)["interfaces"]["eth0"], "addresses": [["192.168.7.2", 24]]}}
    seen = answers(change={"b": {"interfaces": cards}}, outcome=lambda s, t, k: "dropped" if k == "data" else "ok")
    off = {"a": {**seen.facts["a"], "interfaces": {"eth0": {**cards["eth0"], "addresses": [["10.9.0.1", 24]]}}}}
    late = Link("a", "b", "192.168.7.2", 40000, ("other",), "late")
    verdict = judge(dataclasses.replace(seen, facts={**seen.facts, **off}, links=(*seen.links, late)))
    assert any("192.168.7.2 (eth1) works" in finding.text for finding in verdict.findings)


def test_a_verdict_on_many_hosts_that_all_drop_takes_seconds():
    many = tuple(f"h{number}" for number in range(40))
    known = {host: facts(0, hostname=host, fqdn=host) for host in many}
    for number, host in enumerate(many, 1):
        known[host]["interfaces"]["eth0"]["addresses"] = [[f"10.0.0.{number}", 24]]
    where = {host: f"10.0.0.{number}" for number, host in enumerate(many, 1)}
    calls = [(("rendezvous",), 29500), *((("data",), port) for port in range(40000, 40006))]
    links = [Link(*ends, where[ends[1]], port, kinds, "dropped") for ends in pairs(many) for kinds, port in calls]
    began = time.process_time()
    verdict = judge(Answers(PreflightRequest(), many, known, links=tuple(links)))
    assert len(verdict.hosts) == len(many)
    assert time.process_time() - began < 15


def test_a_first_host_that_is_lost_during_the_questions_is_named():
    seen = answers(faults={"a": NoAnswer("probe-died", "a: gone")})
    verdict = judge(dataclasses.replace(seen, facts={host: seen.facts[host] for host in "bc"}, links=()))
    assert (verdict.cause, verdict.hosts) == ("probe-died", ("a",))


def test_independent_causes_are_each_named():
    seen = answers(outcome=lambda s, t, k: "dropped" if t == "a" and k == "meet" else "ok")
    seen = dataclasses.replace(seen, clocks={"a": (0.0, 0.0), "b": (-60.0, 0.0), "c": (0.0, 0.0)})
    verdict = judge(seen)
    assert [finding.cause for finding in verdict.findings] == ["clock-skew", "rendezvous-dropped"]


def test_answers_survive_being_recorded():
    seen = answers(outcome=lambda s, t, k: "dropped" if t == "a" else "ok")
    assert judge(Answers.of(seen.json())) == judge(seen)


def test_a_finding_needs_a_cause_with_an_entry():
    with pytest.raises(ValueError, match="no-such-thing: no such cause"):
        Finding("no-such-thing", "links", (), "")
    with pytest.raises(ValueError, match="no-such-thing: no such cause"):
        find("no-such-thing", "a", "it is odd")


def test_answers_with_a_cause_unknown_to_this_version_are_refused():
    """Answers are kept in files, which anybody may have written."""
    seen = answers()
    kept = dataclasses.replace(
        seen, faults={"b": NoAnswer("{0.__class__}", "b: odd", "fix")}, facts={"a": seen.facts["a"]}
    )
    with pytest.raises(ValueError, match="no such cause"):
        judge(Answers.of(kept.json()))


GPU, CUDA, NO_CUDA = {"rows": [["0", "NVIDIA A100"]]}, {"torch": "2.13.0", "cuda": "12.8"}, {"cuda": "None"}


@pytest.mark.parametrize(
    ("change", "backend"),
    [
        ({}, "gloo"),
        ({host: {"gpus": GPU, "software": CUDA} for host in HOSTS}, "nccl"),
        ({host: {"gpus": GPU, "software": CUDA} for host in HOSTS[1:]}, "nccl"),
        ({host: {"gpus": GPU, "software": NO_CUDA} for host in HOSTS}, "gloo"),
    ],
)
def test_the_backend_is_decided_from_the_hosts_gpus_and_torch(change, backend):
    by_host = {host: facts(place, **change.get(host, {})) for place, host in enumerate(HOSTS)}
    assert PreflightRequest(backend="auto").decided(by_host).backend == backend
    assert PreflightRequest(backend="nccl").decided(by_host).backend == "nccl"


def test_a_host_without_an_engine_is_not_said_to_have_other_software():
    outside = {"b": {"software": {"python": "3.13.1"}, "environment": {}}, "c": {"software": {"python": "3.13.1"}}}
    engine = [Finding("docker-down", "hosts", (host,), f"{host}: no engine") for host in ("b", "c")]
    verdict = judge(answers(change=outside), engine)
    assert [(finding.cause, finding.hosts) for finding in verdict.findings] == [("docker-down", ("b", "c"))]


@pytest.mark.parametrize(
    ("words", "cause"),
    [
        ('Error response from daemon: could not select device driver "" with capabilities: [[gpu]].', "gpu-runtime"),
        ("nvidia-container-cli: initialization error: nvml error: driver/library version mismatch", "gpu-driver"),
        ("docker: Error response from daemon: write /var/lib/docker/x: no space left on device.", "disk-full"),
        ("docker: Error response from daemon: error gathering device information while adding custom device "
         '"/dev/infiniband": no such file or directory.', "rdma-hidden"),
        ("runc create failed: unable to start container process: error during container init: error setting rlimits "
         "for ready process: error setting rlimit type 8: operation not permitted: unknown.", "memlock"),
        ("exec /usr/bin/python: exec format error", "architecture-differs"),
        ("[FATAL tini (7)] exec python failed: No such file or directory", "image-without-python"),
        ("[FATAL tini (6)] exec sh failed: No such file or directory", "image-without-python"),
        ("no python in this image", "image-without-python"),
        ("muster-7b04: 1: python3: not found", "no-python"),
        ("docker: Error response from daemon: No such image: trainer:1.", "image-missing"),
        ("docker: Error response from daemon: failed to extract layer sha256:82cf: not found.", "image-missing"),
        ('docker: Error response from daemon: invalid mount config for type "bind": bind source path does not exist: '
         "/data.", "mount-missing"),
        ("Killed", "probe-died"),
    ],
)  # fmt: skip
def test_an_engines_error_when_it_starts_nothing_becomes_a_cause(words, cause):
    died = NoAnswer.of_probe(CommandEnded("`python3 -c 'import os\nb=b'...`", 125, words))
    seen = answers()
    alone = {host: seen.facts[host] for host in ("a", "c")}
    links = tuple(link for link in seen.links if "b" not in (link.source, link.target))
    verdict = judge(dataclasses.replace(seen, faults={"b": died}, facts=alone, links=links))
    assert (verdict.cause, verdict.hosts) == (cause, ("b",))
    assert words in verdict.first.text
    assert verdict.fix


def test_a_setting_that_torch_refuses_is_a_fault_even_if_all_hosts_have_it():
    alike = {host: {"environment": {"TORCH_DISTRIBUTED_DEBUG": "MUCH"}} for host in HOSTS}
    assert (judge(answers(change=alike)).cause, judge(answers(change=alike)).hosts) == ("settings-differ", HOSTS)


@pytest.mark.parametrize("login", ["http://me:sesame@", "http://me:s@sesame@", "http://me:p/sesame w@", "me:sesame@"])
def test_a_proxy_that_differs_is_reported_without_its_password(login):
    odd = {"https_proxy": f"{login}proxy:3128"}
    read = {host: probe_answers.read("facts", facts(place, environment=odd)) for place, host in enumerate("ab")}
    (finding,) = judge(answers(change=read)).findings
    assert "proxy:3128" in finding.text
    assert "sesame" not in f"{finding}"


def test_torch_distributed_debug_detail_must_be_set_on_all_hosts_or_none():
    def verdict(*hosts, value="detail"):
        return judge(answers(change={host: {"environment": {"TORCH_DISTRIBUTED_DEBUG": value}} for host in hosts}))

    assert verdict(*HOSTS).ok
    assert verdict("a", value="INFO").ok
    assert (verdict("a").cause, verdict("a").hosts) == ("settings-differ", ("a",))
    assert "unset TORCH_DISTRIBUTED_DEBUG on a" in verdict("a").fix


def resources_of_b(**more):
    return answers(change={"b": {"resources": {**facts(1)["resources"], **more}}})


@pytest.mark.parametrize(
    ("pace", "fault", "warnings"),
    [
        ((0.02, 0.02, 0.5), "", []),
        ((2.1, 0.05, 0.5), "cpu-low", []),
        ((1.0, 0.08, 1.0), "", ["cpu-low"]),
        ((2.1, 0.05, 900.0), "", ["cpu-low"]),
        ((1.0, 0.08, 900.0), "", []),
    ],
)
def test_little_cpu_on_a_host_that_is_not_busy_is_blamed_on_a_limit(pace, fault, warnings):
    verdict = judge(resources_of_b(pace=list(pace), cores=2))
    assert (verdict.cause, [finding.cause for finding in verdict.warnings]) == (fault, warnings)


@pytest.mark.parametrize(
    ("limits", "fault", "warnings", "words"),
    [
        ({"stack": [64 << 30, -1], "threads": [0, 16]}, "process-limits", 0, "the stack limit is 64.0 GiB (ulimit -s)"),
        ({"stack": [64 << 30, -1], "threads": [16, 16]}, "", 1, "threads start now"),
        ({"threads": [3, 16], "nproc": [40, 40], "pids": -1}, "process-limits", 0, "threads: 40 for its user"),
        ({"threads": [3, 16], "nproc": [-1, -1], "pids": 64}, "process-limits", 0, "threads: 64 in its container"),
        ({"stack": [-1, -1], "threads": [16, 16]}, "", 0, ""),
        ({"stack": [64 << 20, -1], "threads": [16, 16]}, "", 0, ""),
    ],
)  # fmt: skip
def test_threads_that_do_not_start_are_reported_with_the_unusual_limit(limits, fault, warnings, words):
    verdict = judge(resources_of_b(**limits))
    assert (verdict.cause, len(verdict.warnings)) == (fault, warnings)
    assert all(words in finding.text for finding in verdict.findings)


def test_shared_memory_that_cannot_be_enlarged_is_reported_with_a_workaround():
    room = {"total": 64 << 20, "free": 64 << 20, "inodes": 1000, "inodes_free": 1000}
    has = {"disk": {**facts(1)["resources"]["disk"], "/dev/shm": room}}
    assert "--shm-size" in judge(resources_of_b(**has)).warnings[0].fix
    verdict = judge(resources_of_b(**has, bare=True))
    assert [finding.cause for finding in verdict.warnings] == ["shm-small"]
    assert "num_workers=0" in verdict.warnings[0].fix


def test_a_read_only_system_image_is_not_a_full_disk():
    none = {"total": 8 << 20, "free": 0, "inodes": 100, "inodes_free": 0}

    def judged(writable):
        return judge(resources_of_b(disk={**facts(1)["resources"]["disk"], "/": {**none, "writable": writable}}))

    assert judged(writable=False).ok
    assert (judged(writable=True).cause, judged(writable=True).hosts) == ("disk-full", ("b",))


def test_a_probe_that_could_not_start_a_thread_names_limits():
    died = NoAnswer.of_probe(CommandEnded("b: `docker run`", 1, "RuntimeError: can't start new thread"))
    seen = answers()
    left = {host: facts for host, facts in seen.facts.items() if host != "b"}
    verdict = judge(dataclasses.replace(seen, facts=left, faults={"b": died}))
    assert (verdict.cause, verdict.hosts, verdict.first.level) == ("process-limits", ("b",), "could not tell")
    assert "ulimit -u; ulimit -s" in verdict.fix


def test_a_port_that_users_may_not_listen_on_is_not_called_busy():
    seen = answers(change={"a": {"resources": {**facts(0)["resources"], "ports_from": 30000}}})
    listens = {"a": {**seen.listens["a"], "failed": {"29500": {"error": "forbidden", "holder": ""}}}}
    verdict = judge(dataclasses.replace(seen, listens={**seen.listens, **listens}))
    assert (verdict.cause, "30000" in verdict.findings[0].text) == ("port-forbidden", True)


def test_ports_on_which_programs_listen_do_not_count_as_free():
    seen = answers(change={"a": {"port_range": [50000, 50099], "listening": list(range(50000, 50098))}})
    assert judge(seen).cause == "few-ports"
    assert judge(answers(change={"a": {"port_range": [50000, 50099], "listening": [50000]}})).ok


def test_reserved_ports_do_not_count_as_free():
    seen = answers(change={"a": {"port_range": [50000, 50199], "reserved": [[1, 9], [49000, 50150], [50180, 65535]]}})
    verdict = judge(seen)
    assert (verdict.cause, "only 29 ports" in verdict.findings[0].text) == ("few-ports", True)
    assert "ip_local_reserved_ports" in verdict.fix
    one = answers(change={"b": {"port_range": [50000, 50019], "reserved": [[50000, 50018]]}})
    assert (judge(one).cause, judge(one).hosts) == ("few-ports", ("b",))


def test_the_address_of_an_interface_that_is_down_does_not_mix_families():
    def mixed(up: bool) -> bool:
        own = {host: facts(place)["interfaces"] for place, host in enumerate(HOSTS)}
        change = {
            host: {
                "interfaces": {**own[host], "eth0": {**own[host]["eth0"], "addresses": [[f"fd00::{place + 1}", 64]]}},
                "names": {host: [[f"fd00::{place + 1}", True, host]]},
            }
            for place, host in enumerate(HOSTS[:2])
        }
        change["c"] = {"interfaces": {**own["c"], "eth0": {**own["c"]["eth0"], "up": up}}}
        return "family-mixed" in {finding.cause for finding in interfaces.check(answers(change=change))}

    assert mixed(up=True)
    assert not mixed(up=False), "the kernel keeps the IPv4 address of a card that is down, and no other"


@pytest.mark.parametrize(("address", "foreign"), [("10.0.0.1", False), ("10.0.0.9", True)])
def test_a_host_with_its_peers_address_instead_of_its_own_has_no_foreign_name(address, foreign):
    own = facts(1)["interfaces"]
    changed = {"interfaces": {**own, "eth0": {**own["eth0"], "addresses": [[address, 24]]}}}
    seen = answers(change={"b": {**changed, "names": {"b": [["10.0.0.2", False, "b"]]}}})
    assert ("name-foreign" in {finding.cause for finding in names.check(seen)}) == foreign


def test_failed_calls_that_no_finding_explains_are_listed_next_to_the_cause():
    late = answers(outcome=lambda s, t, k: "late" if (s, t, k) == ("c", "b", "data") else "ok")
    assert judge(late).unexplained == (), "nothing is wrong: there is nothing to explain"
    of_another = find("port-busy", ("a",), "a's port is taken", fix="end it")
    assert judge(late, [of_another]).unexplained == ("c -> b 10.0.0.2:40000 no answer in 2.2 s, but one later",)
    assert judge(late, [find("port-busy", ("b",), "b's port is taken", fix="end it")]).unexplained == ()
    of_a_pair = find("data-ports-dropped", ("a", "b"), "a never reaches b", fix="open", cells=(("a", "b"),))
    assert judge(late, [of_a_pair]).unexplained, "its hosts are in it, and their other calls are not"


def test_after_a_failed_rehearsal_slow_name_lookup_is_suspected_but_no_other_warning():
    failed = find("proof-failed", HOSTS, "b does not come", level=UNKNOWN)
    slow, ahead = (find(cause, ("b",), "b is", level=WARNING) for cause in ("name-unresolvable", "clock-skew"))
    levels = {finding.cause: finding.level for finding in judge(answers(), [failed, slow, ahead]).findings}
    assert levels["clock-skew"] == WARNING
    assert levels.get("name-unresolvable", UNKNOWN) == UNKNOWN


@pytest.mark.parametrize(("bare", "look"), [(True, "muster clean --hosts b"), (False, "sudo docker system df")])
def test_the_fix_for_a_full_disk_names_a_command_that_its_host_has(bare, look):
    rooms = {**facts(1)["resources"]["disk"], "/tmp": {"total": 1 << 40, "free": 0, "inodes": 9, "inodes_free": 9}}
    full = judge(resources_of_b(disk=rooms, bare=bare))
    assert [look in finding.fix for finding in full.findings if finding.cause == "disk-full"] == [True]

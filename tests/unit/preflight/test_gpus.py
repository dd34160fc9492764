"""Findings from recordings of GPU hosts: the right cause for each fault, and no alarm where training works."""

from dataclasses import replace

import pytest

from deploy.causes.finding import FAULT, UNKNOWN, WARNING
from deploy.preflight import PreflightRequest, judge
from deploy.preflight.checks import gpus, rdma
from deploy.preflight.probe import facts as probe_facts
from lab import gpu_hosts
from lab.answers import HOSTS, answers


@pytest.mark.parametrize("case", gpu_hosts.CASES, ids=lambda case: case.name)
def test_a_recorded_fault_is_named_with_its_host(case):
    for count, place in ((2, 0), (3, 2)):
        verdict, hosts = gpu_hosts.tried(case, count, place)
        finding = gpu_hosts.first(verdict, case.level)
        assert finding, "nothing was said"
        assert (finding.cause, finding.hosts) == (case.cause, hosts)
        # If nvidia-smi's words have several causes, the finding is only likely.
        assert finding.level == case.level or finding.or_else
        assert [each.cause for each in (*verdict.faults, *verdict.unknown)] == [case.cause] * (case.level == FAULT)
        assert finding.fix


@pytest.mark.parametrize(("name", "base", "section", "old", "new"), gpu_hosts.WELL, ids=lambda value: str(value)[:40])
def test_a_harmless_oddity_raises_no_alarm(name, base, section, old, new):
    well = gpu_hosts.sections(base)
    odd = well if old == "*" and new is None else gpu_hosts.changed(well, section, old, new)
    for hosts in ([odd, well], [odd, odd, odd], [well, well, odd]):
        verdict = gpu_hosts.judged(hosts)
        assert verdict.ok, (name, verdict.first)
        assert [finding.cause for finding in verdict.warnings if finding.group in ("gpus", "interfaces")] == []


def test_a_container_with_cuda_and_without_nvidia_smi_has_its_gpus():
    facts = {**gpu_hosts.facts(gpu_hosts.sections("h100")), "gpus": {"absent": True, "devices": True}}
    assert replace(gpu_hosts.REQUEST, backend="auto").decided({"a": facts}).backend == "nccl"
    assert list(gpus._driver("a", facts, [])) == []


def test_amd_gpus_are_named_although_no_tool_lists_them():
    facts = {**gpu_hosts.facts(gpu_hosts.sections("h100")), "environment": {}}
    none = {"absent": True, "devices": False, "amd": True}
    seen = answers(change={"b": {**facts, "gpus": none}})
    named = [finding for finding in gpus.check(seen) if "AMD" in finding.text]
    assert [(finding.hosts, finding.level) for finding in named] == [(("b",), WARNING)]


def test_gpus_of_a_host_with_the_same_fault_are_reported_together():
    held = gpu_hosts.changed(gpu_hosts.sections("roce"), "gpus", "81920, 7,", "81920, 81900,")
    verdict = gpu_hosts.judged([gpu_hosts.sections("roce"), held])
    assert (verdict.cause, verdict.hosts) == ("gpu-busy", ("b",))
    assert verdict.faults[0].text == "b: GPU 0 has 80.0 GiB of 80.0 GiB in use; the same for GPU 1"


def test_a_torch_without_cuda_is_named_although_its_version_is_unknown():
    software = {"python": "3.12.1", "cuda": "None"}
    seen = answers(PreflightRequest(backend="nccl"), {host: {"software": software} for host in HOSTS})
    assert judge(seen).cause == "torch-without-cuda"


def test_a_driver_that_hangs_leaves_the_gpus_unknown():
    verdict = gpu_hosts.judged([gpu_hosts.sections("rtx")] * 2)
    assert verdict.ok
    facts = gpu_hosts.facts(gpu_hosts.sections("rtx"))
    (finding,) = gpus._driver("a", {**facts, "gpus": {"error": "timeout"}}, [])
    assert (finding.cause, finding.level) == ("gpu-silent", UNKNOWN)


def test_a_column_that_a_driver_does_not_know_is_empty_and_the_others_are_read():
    (first, _) = gpus.read(gpu_hosts.facts(gpu_hosts.sections("v100")))
    assert (first["name"], first["driver_version"], first["compute_mode"]) == (
        "Tesla V100-SXM2-32GB",
        "470.103.01",
        "Default",
    )
    assert (first["compute_cap"], first["remapped_rows.failure"], first["fabric.state"]) == ("", "", "")


@pytest.mark.parametrize(
    ("named", "why"), [("0,7", "a number that does not exist"), ("MIG-8a0b,MIG-9c1d", "only one part of a GPU")]
)
def test_the_reason_why_cuda_sees_fewer_gpus_than_are_named_is_reported(named, why):
    odd = gpu_hosts.changed(gpu_hosts.sections("rtx"), "environment", "*", f"CUDA_VISIBLE_DEVICES={named}")
    (warning, *_) = gpu_hosts.judged([odd, gpu_hosts.sections("rtx")]).warnings
    assert why in warning.text


def test_rdma_ports_are_read_with_their_addresses():
    (port,) = rdma.ports(gpu_hosts.facts(gpu_hosts.sections("roce")))
    assert (port.name, port.active, port.layer, port.rate) == ("mlx5_bond_0:1", True, "Ethernet", 100.0)
    assert port.gids[3] == (3, "0000:0000:0000:0000:0000:ffff:0a0a:0001", "RoCE v2", "bond0")
    assert len(port.gids) == 4, "an empty address is none"


@pytest.mark.parametrize(
    ("asked", "taken"),
    [("mlx5", True), ("mlx5_1", True), ("=mlx5_1", False), ("=mlx5_10:1", True), ("mlx5_10:2", False),
     ("^mlx5_1", False), ("^=mlx5_1", True), ("ibp0,mlx5_10", True)],
)  # fmt: skip
def test_device_names_are_understood_as_nccl_understands_them(asked, taken):
    port = rdma.Port("mlx5_10", "1", "ACTIVE", "InfiniBand", 400.0, ())
    assert rdma.is_allowed(port, asked) is taken


@pytest.mark.parametrize(
    ("driver", "image", "old"),
    [(12080, "12.4", False), (12020, "12.8", False), (11080, "12.1", True), (12090, "13.0", True),
     (13000, "12.8", False), (11040, "11.8", False), (10010, "10.2", True), (0, "12.4", False), (12040, "None", False)],
)  # fmt: skip
def test_only_another_major_version_makes_a_driver_too_old(driver, image, old):
    assert gpus.driver_too_old({"software": {"cuda": image}, "cuda": {"version": driver}}) is old


def test_pci_addresses_in_logs_and_nvidia_smi_are_read_as_the_same_gpu():
    assert gpus.pci_bus("00000000:3B:00.0") == gpus.pci_bus("0000:3b:00") == "0000:3b:00"


def test_rdma_that_is_disabled_everywhere_may_be_down():
    down = gpu_hosts.changed(gpu_hosts.sections("h100"), "infiniband", "state:4: ACTIVE", "state:1: DOWN")
    off = gpu_hosts.changed(gpu_hosts.sections("h100"), "environment", "NCCL_DEBUG=WARN", "NCCL_IB_DISABLE=1")
    assert gpu_hosts.judged([gpu_hosts.changed(down, "environment", "NCCL_DEBUG=WARN", "NCCL_IB_DISABLE=1"), off]).ok


def test_rdma_is_not_checked_with_the_gloo_backend():
    down = gpu_hosts.changed(gpu_hosts.sections("h100"), "infiniband", "state:4: ACTIVE", "state:1: DOWN")
    hosts = [down, gpu_hosts.sections("h100")]
    assert gpu_hosts.judged(hosts).cause == "rdma-down"
    assert gpu_hosts.judged(hosts, replace(gpu_hosts.REQUEST, backend="gloo")).ok


@pytest.mark.parametrize(("verbs", "told"), [(-1, "libibverbs"), (0, "provider"), (2, "")])
def test_an_image_that_cannot_open_the_hosts_rdma_is_named(monkeypatch, verbs, told):
    real = gpu_hosts.facts
    monkeypatch.setattr(gpu_hosts, "facts", lambda sections: {**real(sections), "verbs": verbs, "container": True})
    found = gpu_hosts.judged([gpu_hosts.sections("h100")] * 2).findings
    named = [finding for finding in found if finding.cause == "rdma-library"]
    assert bool(named) is bool(told)
    assert all(told in finding.text and finding.level == "warning" for finding in named)


def test_the_probe_reads_the_verbs_cuda_and_rdma_of_this_machine():
    assert probe_facts.verbs() >= -1
    assert set(probe_facts.cuda()) <= {"version", "code", "count"}
    assert isinstance(probe_facts.rdma(), dict)


def test_one_host_without_its_gpus_is_a_fault_without_asking_for_gpus():
    gone = gpu_hosts.changed(gpu_hosts.sections("h100"), "gpus", "*", "No devices were found\ncode 6")
    facts = {"a": gpu_hosts.facts(gpu_hosts.sections("h100")), "b": gpu_hosts.facts(gone)}
    request = replace(gpu_hosts.REQUEST, backend="auto").decided(facts)
    verdict = gpu_hosts.judged([gpu_hosts.sections("h100"), gone], request)
    assert (verdict.cause, verdict.hosts) == ("gpu-missing", ("b",))


@pytest.mark.parametrize(("backend", "level"), [("nccl", FAULT), ("gloo", WARNING)])
def test_a_torch_for_rocm_is_refused_by_name(backend, level):
    sections = {**gpu_hosts.sections("h100"), "torch": "__version__ = '2.9.0+rocm6.4'\ncuda = None\nhip = '6.4.43482'"}
    found = gpu_hosts.judged([sections, sections], replace(gpu_hosts.REQUEST, backend=backend)).findings
    named = [finding for finding in found if finding.cause == "torch-without-cuda"]
    assert named
    assert all(finding.level == level and "ROCm 6.4" in finding.text for finding in named)

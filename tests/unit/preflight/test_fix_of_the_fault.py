"""A fix is for the fault that is there, and not for one that shows the same words."""

import dataclasses

import pytest

from deploy.causes import docker_faults
from deploy.causes.finding import FAULT, WARNING
from deploy.door import faults, framing
from deploy.door.faults import FaultPlace
from deploy.job.values import Mount
from deploy.preflight import PreflightRequest, judge, refusals, rehearsal
from deploy.preflight.checks import hosts as host_checks
from deploy.preflight.probe import facts as probe_facts
from lab.answers import HOSTS, answers, facts
from tests.hosts import FACTS

RUNC = "docker: Error response from daemon: failed to create task: OCI runtime create failed: "


@pytest.mark.parametrize("words", [
    f"{RUNC}unable to retrieve OCI runtime error (open /run/log.json: no such file or directory): fork/exec "
    "/usr/bin/runc: exec format error: unknown.",
    'docker: Error response from daemon: exec: "runc": executable file not found in $PATH',
    f"{RUNC}fork/exec /usr/bin/runc: permission denied: unknown.",
    "docker: Error response from daemon: fork/exec /usr/bin/containerd-shim-runc-v2: exec format error",
])  # fmt: skip
def test_an_engine_whose_runc_is_broken_is_mended_and_no_image_is_built(words):
    hint = docker_faults.hint(words, "gpu-b")
    assert docker_faults.read_cause(words).name == "docker-refused"
    assert "runc --version" in hint
    assert "image" not in hint


def test_an_image_for_another_processor_is_still_the_images_fault():
    words = "exec /usr/bin/python3: exec format error"
    assert docker_faults.read_cause(words).name == "architecture-differs"


def test_threads_that_a_rule_forbids_are_no_matter_of_a_limit():
    words = "runtime/cgo: pthread_create failed: Operation not permitted"
    assert "seccomp" in docker_faults.hint(words, "gpu-b")
    assert "ulimit" not in docker_faults.hint(words, "gpu-b")
    assert "ulimit" in docker_faults.hint("runtime/cgo: pthread_create failed: Resource temporarily unavailable", "b")
    has = {**facts(1)["resources"], "threads": [0, 16], "nproc": [31000, 31000]}
    denied = judge(answers(change={"b": {"resources": {**has, "denied": True}}}))
    assert (denied.cause, denied.hosts) == ("docker-refused", ("b",))
    assert "ulimit" not in denied.fix
    limited = judge(answers(change={"b": {"resources": {**has, "denied": False}}}))
    assert (limited.cause, "ulimit -u" in limited.fix) == ("process-limits", True)


def test_here_nothing_forbids_threads():
    assert probe_facts.denied() is False


@pytest.mark.parametrize(("said", "in_fix"), [
    (b"This account is limited by a ForceCommand", "forcecommand"),
    (b"This service allows sftp connections only.", "forcecommand"),
    (b"This account is currently not available.", "chsh"),
])  # fmt: skip
def test_a_login_with_a_command_of_its_own_gets_no_other_shell(said, in_fix):
    with pytest.raises(faults.SshFault) as failed:
        raise framing.no_shell(FaultPlace("gpu-b", "10.0.0.2", 22, "me", "me@gpu-b"), 1, said)
    assert in_fix in failed.value.hint
    assert ("chsh" in failed.value.hint) == (in_fix == "chsh")


def mounted(letters, read_only=False):
    """The findings about /data where the probe of each host says these letters of it."""
    change = {host: {"mounts": {"/data": said}, "user": 1000} for host, said in zip(HOSTS, letters, strict=True)}
    where = {host: (Mount("/srv/data", "/data", read_only=read_only),) for host in HOSTS}
    seen = answers(change=change)
    return [*host_checks.mounts(seen, where), *host_checks.unlike_mounts(seen, where)]


def test_a_disk_that_is_read_only_is_mounted_anew_and_no_right_is_changed():
    (finding,) = mounted(["rw", "ro", "rw"])
    assert "read-only" in finding.text
    assert "remount,rw" in finding.fix
    assert "chown" not in finding.fix
    assert "remount,rw" in mounted(["rw", "o", "rw"])[0].fix
    closed = "mkdir: cannot create directory '/var/tmp/x': Read-only file system"
    (claims,) = host_checks.homes({"b": dataclasses.replace(FACTS, claims_closed=closed)})
    assert "remount,rw" in claims.fix
    assert "chmod" not in claims.fix
    assert "chown" in mounted(["rw", "r", "rw"])[0].fix


@pytest.mark.parametrize(("letters", "hosts", "level"), [
    (["rwf", "rw", "rw"], ("a",), FAULT), (["rw", "rwe", "rw"], ("b",), WARNING),
    (["rwe", "rwe", "rw"], ("c",), WARNING), (["rwf", "rwe", "rw"], ("a", "b"), FAULT),
    (["rw", "rwf", ""], ("b",), FAULT),
])  # fmt: skip
def test_what_a_mount_holds_is_the_same_on_all_hosts_or_is_told(letters, hosts, level):
    told = [each for each in mounted(letters) if each.cause == "mount-differs"]
    assert [(each.hosts, each.level) for each in told] == [(hosts, level)]


def test_a_folder_with_a_blank_or_more_in_its_name_is_one_word_of_what_is_typed():
    home, no_room = "/home/LAB jo; id", {"total": 1 << 40, "free": 1 << 20, "inodes": 10, "inodes_free": 9}
    resources = facts(1)["resources"]
    full = judge(answers(change={"b": {"resources": {**resources, "disk": {**resources["disk"], home: no_room}}}}))
    lacking = host_checks.homes({"b": dataclasses.replace(FACTS, home=home, inodes=1, room=1)})
    rank = {"local": 0, "step": "write", "error": "no space left on device [x; 0 MB free]"}
    failed = rehearsal.Outcome({"phase": "alone", "torch": "2.13", "ranks": [rank]})
    rehearsed = rehearsal.findings({"b": failed}, rehearsal.Scene(("a", "b"), "gloo", "", {"b": home}))
    fixes = [each.fix for each in (*full.faults, *lacking, *rehearsed)]
    assert len(fixes) == 4
    assert all(f"'{home}" in fix for fix in fixes)


def test_a_host_whose_name_begins_a_sentence_is_named_before_it():
    assert refusals.of_fault("login", "ssh-shell", "login works, no command does", "").text.startswith("login: login")


@pytest.mark.parametrize("letters", [["rw"] * 3, ["rwf"] * 3, ["rwe"] * 3])
def test_mounts_that_are_alike_are_not_told(letters):
    assert mounted(letters) == []


def test_the_probe_tells_a_file_from_a_folder_and_an_empty_one(tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "empty").mkdir()
    paths = [str(tmp_path), str(tmp_path / "file"), str(tmp_path / "empty"), str(tmp_path / "none")]
    assert list(probe_facts.mounts(paths).values()) == ["rw", "rwf", "rwe", ""]


@pytest.mark.parametrize(("value", "ok"), [("TCP", True), ("tcp", False), ("TCP_TLS", False), ("UV", False)])
def test_a_transport_that_gloo_lacks_is_named_although_all_hosts_have_it(value, ok):
    environment = {host: {"environment": {"GLOO_DEVICE_TRANSPORT": value}} for host in HOSTS}
    verdict = judge(answers(change=environment))
    assert verdict.ok == ok
    if not ok:
        assert (verdict.cause, verdict.hosts) == ("settings-differ", HOSTS)
        assert "GLOO_DEVICE_TRANSPORT" in verdict.fix
    nccl = judge(answers(PreflightRequest(backend="nccl"), change=environment))
    assert "GLOO_DEVICE_TRANSPORT" not in (nccl.fix or "")


@pytest.mark.parametrize("name", ["TORCH_GLOO_LAZY_INIT", "GLOO_ENABLE_RANK_AS_SEQUENCE_NUMBER"])
def test_a_variable_of_gloo_that_one_host_alone_has_is_named(name):
    verdict = judge(answers(change={"b": {"environment": {name: "1"}}}))
    assert (verdict.cause, verdict.hosts) == ("settings-differ", ("b",))
    assert judge(answers(change={host: {"environment": {name: "1"}} for host in HOSTS})).ok


def through_wg(grown=()):
    """All hosts have their addresses on wg0, and no call to or from `b` is answered."""
    change = {
        host: {"interfaces": {"wg0": {**facts(place)["interfaces"]["eth0"], "point_to_point": True}}}
        for place, host in enumerate(HOSTS)
    }
    control = {"b": {"firewall": {"read": True, "rules": list(grown), "hits": [1] * len(grown), "grown": list(grown)}}}
    return judge(answers(change=change, control=control, outcome=lambda s, t, k: "dropped" if "b" in (s, t) else "ok"))


def test_a_tunnel_without_an_end_is_made_anew_before_any_firewall_is_opened():
    verdict = through_wg()
    assert verdict.hosts == ("b",)
    assert verdict.fix.startswith("on b: sudo wg show wg0")
    assert "tunnel (wg0 of b)" in verdict.first.text
    rule = "filter: -A INPUT -p tcp -j DROP"
    assert through_wg([rule]).fix.startswith("on b: sudo iptables"), "its own rule has just lost packets"

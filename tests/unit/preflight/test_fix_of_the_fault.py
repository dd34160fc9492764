"""The fix matches the real fault, not another fault that shows the same words."""

import dataclasses

import pytest

from deploy.causes import docker_faults
from deploy.causes.finding import FAULT, WARNING
from deploy.door import faults, framing
from deploy.door.faults import FaultPlace
from deploy.host.reached import NoAnswer
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
def test_for_a_broken_runc_the_fix_repairs_the_engine_not_the_image(words):
    hint = docker_faults.hint(words, "gpu-b")
    assert docker_faults.read_cause(words).name == "docker-refused"
    assert "runc --version" in hint
    assert "image" not in hint


def test_an_image_for_another_processor_is_still_blamed_on_the_image():
    words = "exec /usr/bin/python3: exec format error"
    assert docker_faults.read_cause(words).name == "architecture-differs"


def test_threads_forbidden_by_seccomp_are_not_blamed_on_a_limit():
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


def test_the_probe_sees_that_this_machine_allows_threads():
    assert probe_facts.denied() is False


@pytest.mark.parametrize(("said", "in_fix"), [
    (b"This account is limited by a ForceCommand", "forcecommand"),
    (b"This service allows sftp connections only.", "forcecommand"),
    (b"This account is currently not available.", "chsh"),
])  # fmt: skip
def test_for_a_login_with_a_forced_command_the_fix_does_not_change_the_shell(said, in_fix):
    with pytest.raises(faults.SshFault) as failed:
        raise framing.no_shell(FaultPlace("gpu-b", "10.0.0.2", 22, "me", "me@gpu-b"), 1, said)
    assert in_fix in failed.value.hint
    assert ("chsh" in failed.value.hint) == (in_fix == "chsh")


def mounted(letters, read_only=False):
    """The findings about the mount /data if the probe of each host reports these letters for it."""
    change = {host: {"mounts": {"/data": said}, "user": 1000} for host, said in zip(HOSTS, letters, strict=True)}
    where = {host: (Mount("/srv/data", "/data", read_only=read_only),) for host in HOSTS}
    seen = answers(change=change)
    return [*host_checks.mounts(seen, where), *host_checks.unlike_mounts(seen, where)]


def test_for_a_read_only_disk_the_fix_remounts_it_and_changes_no_permissions():
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
def test_a_mount_with_different_contents_on_some_hosts_is_reported(letters, hosts, level):
    told = [each for each in mounted(letters) if each.cause == "mount-differs"]
    assert [(each.hosts, each.level) for each in told] == [(hosts, level)]


def test_a_folder_name_with_blanks_is_quoted_in_the_fix():
    home, no_room = "/home/LAB jo; id", {"total": 1 << 40, "free": 1 << 20, "inodes": 10, "inodes_free": 9}
    resources = facts(1)["resources"]
    full = judge(answers(change={"b": {"resources": {**resources, "disk": {**resources["disk"], home: no_room}}}}))
    lacking = host_checks.homes({"b": dataclasses.replace(FACTS, home=home, inodes=1, room=1)})
    rank = {"local": 0, "step": "write to x", "at": "write", "error": "no space left on device", "seen": ["disk_full"]}
    failed = rehearsal.Outcome({"phase": "alone", "torch": "2.13", "ranks": [rank]})
    rehearsed = rehearsal.findings({"b": failed}, rehearsal.Scene(("a", "b"), "gloo", "", {"b": home}))
    fixes = [each.fix for each in (*full.faults, *lacking, *rehearsed)]
    assert len(fixes) == 4
    assert all(f"'{home}" in fix for fix in fixes)


def test_a_host_is_named_first_even_if_its_name_begins_the_sentence():
    assert refusals.of_fault("login", NoAnswer("ssh-shell", "login works, no command does")).text.startswith(
        "login: login"
    )


@pytest.mark.parametrize("letters", [["rw"] * 3, ["rwf"] * 3, ["rwe"] * 3])
def test_equal_mounts_are_not_reported(letters):
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
def test_a_gloo_variable_that_only_one_host_sets_is_named(name):
    verdict = judge(answers(change={"b": {"environment": {name: "1"}}}))
    assert (verdict.cause, verdict.hosts) == ("settings-differ", ("b",))
    assert judge(answers(change={host: {"environment": {name: "1"}} for host in HOSTS})).ok


def through_wg(grown=()):
    """The verdict if all hosts have their addresses on wg0 and no call to or from `b` is answered."""
    change = {
        host: {"interfaces": {"wg0": {**facts(place)["interfaces"]["eth0"], "point_to_point": True}}}
        for place, host in enumerate(HOSTS)
    }
    control = {"b": {"firewall": {"read": True, "rules": list(grown), "hits": [1] * len(grown), "grown": list(grown)}}}
    return judge(answers(change=change, control=control, outcome=lambda s, t, k: "dropped" if "b" in (s, t) else "ok"))


def test_a_broken_tunnel_is_fixed_before_any_firewall_is_opened():
    verdict = through_wg()
    assert verdict.hosts == ("b",)
    assert verdict.fix.startswith("on b: sudo wg show wg0")
    assert "tunnel (wg0 of b)" in verdict.first.text
    rule = "filter: -A INPUT -p tcp -j DROP"
    for shown in (rule, f'{rule} -m comment --comment "no (new) calls"'):  # earlier, the second one was missed
        assert through_wg([shown]).fix.startswith("on b: sudo iptables"), "its own rule has just lost packets"

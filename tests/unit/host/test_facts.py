"""A host's answer is parsed into facts; a missing part becomes a default, or an error with the next command."""

import json
import os
import socket
import subprocess
import time

import pytest

from deploy.causes.docker_faults import DockerFault
from deploy.causes.finding import UNKNOWN
from deploy.core.errors import DeployError
from deploy.host import commands
from deploy.host import facts as host_facts
from deploy.host.facts import Address, Route
from deploy.preflight.checks import hosts as host_checks
from tests.hostile.engine import described

# These tests start other programs.
pytestmark = pytest.mark.long

LINK = '[{"ifname":"%s","addr_info":[{"family":"inet","local":"%s","prefixlen":24,"scope":"%s"}]}]'
ENGINE = 'engine {"Server": {"Version": "26.1.5"}}'


def answer(*lines):
    return "\n".join((*lines, ENGINE))


def test_the_look_script_runs_on_this_machine_and_its_answer_is_parsed():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        done = subprocess.run(commands.look(), capture_output=True, text=True, check=True)
        rows = [line for line in done.stdout.splitlines() if line.split(" ")[0] not in ("engine", "engine-error")]
        facts = host_facts.parse(answer(*rows), time.time())
        assert listener.getsockname()[1] in facts.listening
    assert facts.cores >= 1
    assert facts.memory > 1 << 20
    assert facts.home.startswith("/")
    assert abs(facts.clock_ahead_s) < 5


@pytest.mark.parametrize(
    ("version", "security", "cause"),
    [
        ('{"Client":{"Version":"5.4.2","BuildOrigin":"Debian"}}', "", "podman-command"),
        (
            '{"Client":{},"Server":{"Version":"26.1.5"}}',
            "[name=seccomp,profile=builtin name=rootless]",
            "engine-rootless",
        ),
        ('{"Client":{},"Server":{"Version":"26.1.5"}}', "[name=seccomp,profile=builtin]", ""),
    ],
)
def test_the_podman_command_and_a_rootless_engine_are_recognized(tmp_path, version, security, cause):
    docker = tmp_path / "docker"
    server = version if "Server" in version else ""
    docker.write_text(
        "#!/bin/sh\n"
        f"case $1 in version) echo '{version}' ;; "
        f"info) printf '%s\\n' /var/lib/docker '{security}' '{server}' ;; esac\n"
    )
    docker.chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    done = subprocess.run(commands.look(), capture_output=True, text=True, check=True, env={**os.environ, "PATH": path})
    if not cause:
        assert host_facts.parse(done.stdout, time.time()).docker == "26.1.5"
        return
    with pytest.raises(DockerFault) as fault:
        host_facts.parse(done.stdout, time.time())
    assert fault.value.cause.name == cause


@pytest.mark.parametrize(
    ("script", "cause", "words"),
    [
        ("echo Welcome.; [ $1 = info ] && echo /var/lib/docker", "docker-wrapped", "of its own: Welcome."),
        (
            "echo fatal error: failed to reserve page summary memory; echo; echo main.main; echo asm.s:349; exit 2",
            "memory-low",
            "failed to reserve",
        ),
        ("echo runtime: failed to create new OS thread; echo asm.s:349; exit 2", "process-limits", "OS thread"),
        (
            "echo runtime/cgo: pthread_create failed: Resource temporarily unavailable; echo SIGABRT: abort; "
            "echo 'runtime: g 0 gp=0x5 m=0'; exit 2",
            "process-limits",
            "pthread_create failed",
        ),
        ("echo panic: assignment to entry in nil map; echo asm.s:349; exit 2", "docker-refused", "nil map"),
    ],
)
def test_a_docker_that_crashes_or_chatters_is_reported_in_its_own_words(tmp_path, script, cause, words):
    docker = tmp_path / "docker"
    version = '{"Client":{},"Server":{"Version":"26.1.5"}}'
    docker.write_text(
        f"#!/bin/sh\n[ $1 != version ] || [ {cause} != docker-wrapped ] || {{ echo '{version}'; exit; }}\n{script}\n"
    )
    docker.chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    done = subprocess.run(commands.look(), capture_output=True, text=True, check=True, env={**os.environ, "PATH": path})
    with pytest.raises(DockerFault) as raised:
        host_facts.parse(done.stdout, time.time())
    assert raised.value.cause.name == cause
    assert words in raised.value.message


def test_gpus_are_those_that_nvidia_smi_lists():
    facts = host_facts.parse(
        answer("gpu 0, GPU-5d5b, 412, 81920, 97, NVIDIA A100-SXM4-80GB", "gpu No devices were found"), 0
    )
    assert [(gpu.index, gpu.name, gpu.uuid) for gpu in facts.gpus] == [(0, "NVIDIA A100-SXM4-80GB", "GPU-5d5b")]


@pytest.mark.parametrize(
    ("interface", "scope", "count"),
    [
        *(("eth0", "global", 1), ("docker0", "global", 0), ("lo", "global", 0), ("eth0", "link", 0)),
        *(("br-9c1", "global", 0), ("lom1", "global", 1)),  # "LAN on motherboard": the name of a network card
    ],
)
def test_only_addresses_that_a_peer_can_reach_count(interface, scope, count):
    assert len(host_facts.parse_addresses(LINK % (interface, "10.0.0.4", scope))) == count


def test_two_addresses_share_a_network_or_not():
    mine = Address("eth0", "10.0.0.4", 24)
    assert mine.shares_network(Address("ib0", "10.0.0.9", 24))
    assert not mine.shares_network(Address("eth0", "10.0.1.4", 24))
    assert not mine.shares_network(Address("eth0", "fd00::4", 64))


def test_a_route_is_its_interface_and_source_or_none():
    assert host_facts.parse_route('[{"dst":"10.0.0.4","dev":"ib0","prefsrc":"10.0.0.9","flags":[]}]') == Route(
        "ib0", "10.0.0.9"
    )
    assert host_facts.parse_route("") is None
    assert host_facts.parse_route("RTNETLINK answers: Network is unreachable") is None


def test_a_container_is_known_by_its_labels():
    labels = {"muster.run": "r1", "muster.node": "b", "muster.place": "1", "muster.nodes": "2", "muster.port": "29501"}
    row = json.dumps(described("/muster-r1", labels, {"Status": "exited", "ExitCode": 137}))
    facts = host_facts.parse(answer(f"container {row}"), 0).containers[0]
    assert (facts.run, facts.node, facts.place, facts.nodes, facts.port) == ("r1", "b", 1, 2, 29501)
    assert (facts.name, facts.code) == ("muster-r1", 137)
    row = json.dumps(described("/muster-r1", labels, {"Status": "running", "ExitCode": 0}))
    assert host_facts.parse(answer(f"container {row}"), 0).containers[0].code is None


def test_a_host_reports_its_free_space_and_the_log_of_its_gpu_driver():
    facts = host_facts.parse(
        answer("room 12", "home-readonly", "kernel [9.1] NVRM: loading", "kernel [9.9] NVRM: Xid"), 0
    )
    assert (facts.room, facts.home_writable) == (12 * 1024, False)
    assert facts.kernel == ("[9.1] NVRM: loading", "[9.9] NVRM: Xid")
    assert (host_facts.parse(answer(), 0).room, host_facts.parse(answer(), 0).home_writable) == (None, True)


@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        ("permission denied while trying to connect to the Docker daemon socket", "permission denied", "usermod"),
        ("sh: 8: docker: not found", "no `docker` command", "bootstrap"),
        ('context "cloud": context not found: open /home/u/x: no such file', "does not answer", "systemctl"),
        ("no answer within 15 s", "does not answer", "systemctl restart"),
        ("Cannot connect to the Docker daemon at unix:///var/run/docker.sock.", "does not answer", "systemctl"),
    ],
)
def test_a_host_without_an_engine_raises_an_error_with_the_next_command(words, message, hint):
    with pytest.raises(DeployError, match=message) as caught:
        host_facts.parse(f"home /home/u\nengine-error {words}", 0)
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    ("make", "closed"),
    [
        (lambda home: None, ""),
        (lambda home: (home / ".muster/runs").mkdir(parents=True), ""),
        (lambda home: (home / ".muster").symlink_to(home), ""),
        (lambda home: (home / ".muster").touch(), "/.muster"),
        (lambda home: (home / ".muster").symlink_to("gone"), "/.muster"),
        (lambda home: ((home / ".muster").mkdir(), (home / ".muster/runs").touch()), "/.muster/runs"),
    ],
)
def test_a_path_that_blocks_the_runs_folder_is_named(tmp_path, make, closed):
    make(tmp_path)
    home = {**os.environ, "HOME": str(tmp_path)}
    done = subprocess.run(commands.look(), capture_output=True, text=True, check=True, env=home)
    rows = [line for line in done.stdout.splitlines() if line.split(" ")[0] not in ("engine", "engine-error")]
    facts = host_facts.parse(answer(*rows), time.time())
    assert facts.home_writable == (not closed)
    assert facts.inodes is None or facts.inodes > 0
    assert facts.closed == (f"{tmp_path}{closed}" if closed else "")


def test_the_system_error_for_an_unusable_folder_is_quoted(tmp_path):
    (tmp_path / ".muster").symlink_to(".muster")
    home = {**os.environ, "HOME": str(tmp_path)}
    done = subprocess.run(commands.look(), capture_output=True, text=True, check=True, env=home)
    rows = [line for line in done.stdout.splitlines() if line.startswith("home-")]
    assert host_facts.parse(answer(*rows), time.time()).closed_why == "Too many levels of symbolic links"


def test_a_read_only_file_system_is_reported_as_read_only(tmp_path):
    (tmp_path / ".muster").mkdir()
    mount = 'mount --bind "$HOME" "$HOME" && mount -o remount,bind,ro "$HOME" && exec "$@"'
    argv = ["unshare", "--map-root-user", "--mount", "sh", "-c", mount, "sh", *commands.look()]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, env={**os.environ, "HOME": str(tmp_path)})
    if "home " not in done.stdout:
        pytest.skip(f"nobody may mount here: {done.stderr[-200:]}")
    rows = [line for line in done.stdout.splitlines() if line.startswith("home-")]
    facts = host_facts.parse(answer(*rows), time.time())
    assert (facts.closed, facts.closed_why) == (f"{tmp_path}/.muster", "Read-only file system")
    (told,) = host_checks.homes({"b": facts})
    assert told.text.endswith(".muster is not writable, or is not a folder: Read-only file system")
    assert f"findmnt -T {tmp_path}/.muster" in told.fix


@pytest.mark.parametrize(
    ("prints", "words"), [("echo 203.0.113.7", "203.0.113.7"), ("echo []", ""), ("", ""), ("echo no; exit 1", "no")]
)
def test_a_foreign_ip_command_is_named_with_its_path(tmp_path, prints, words):
    (tmp_path / "ip").write_text(f"#!/bin/sh\n{prints}\n")
    (tmp_path / "ip").chmod(0o755)
    path = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(commands.look(), capture_output=True, text=True, check=True, env=path)
    rows = [line for line in done.stdout.splitlines() if line.startswith(("no-iproute2", "ip ", "addresses"))]
    facts = host_facts.parse(answer(*rows), time.time())
    assert (facts.iproute, facts.iproute_words, facts.addresses) == (not words, words, ())
    for told in host_checks.homes({"b": facts}):
        assert (told.cause, told.text) == (
            "no-iproute2",
            f"b: its `ip` command ({tmp_path}/ip) lists no addresses: {words}",
        )
        assert told.fix.startswith("on b: ")
        assert "type -a ip" in told.fix


def test_a_docker_client_that_hangs_in_a_plugin_counts_as_a_silent_engine(tmp_path):
    docker = tmp_path / "docker"
    docker.write_text('#!/bin/sh\n[ "$1" != info ] || exec sleep 60\necho \'{"Server": {"Version": "1"}}\'\n')
    docker.chmod(0o755)
    argv = ["1" if word == "15" else word for word in commands.look()]
    path = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(argv, capture_output=True, text=True, check=True, env=path)
    with pytest.raises(DeployError, match="plugin of its client"):
        host_facts.parse(done.stdout, time.time())


def test_a_folder_at_the_path_of_the_engines_socket_is_reported_as_a_folder(tmp_path):
    docker = tmp_path / "docker"
    docker.write_text("#!/bin/sh\necho permission denied while trying to connect to the Docker daemon socket; exit 1\n")
    docker.chmod(0o755)
    (tmp_path / "docker.sock").mkdir()
    path = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "DOCKER_HOST": f"unix://{tmp_path}/docker.sock"}
    done = subprocess.run(commands.look(), capture_output=True, text=True, check=True, env={**os.environ, **path})
    with pytest.raises(DockerFault, match=r"docker\.sock is a folder, not a socket") as raised:
        host_facts.parse(done.stdout, time.time())
    assert raised.value.cause.name == "docker-down"


def test_an_error_that_ends_with_a_link_is_quoted_with_its_reason(tmp_path):
    docker = tmp_path / "docker"
    docker.write_text(
        "#!/bin/sh\necho Sorry, home directories outside of /home needs configuration. >&2\n"
        "echo See https://forum.snapcraft.io/t/11209 for details. >&2; exit 1\n"
    )
    docker.chmod(0o755)
    path = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(commands.look(), capture_output=True, text=True, check=True, env=path)
    with pytest.raises(DockerFault, match=r"home directories outside of /home .* See https://forum"):
        host_facts.parse(done.stdout, time.time())


@pytest.mark.parametrize(
    ("variables", "chosen", "at", "fix"),
    [
        (
            {"DOCKER_HOST": "ssh://box.lan"},
            "laptop",
            "DOCKER_HOST=ssh://box.lan",
            "unset DOCKER_HOST; grep -n DOCKER_HOST",
        ),
        ({"DOCKER_CONTEXT": "far"}, "laptop", "DOCKER_CONTEXT=far", "unset DOCKER_CONTEXT; "),
        ({}, "desktop-linux", "context desktop-linux", "docker context use default; docker context ls"),
        ({}, "default", "", "sudo systemctl start docker"),
        ({}, "", "", "sudo systemctl start docker"),
        ({"DOCKER_HOST": "unix:///run/docker.sock"}, "laptop", "", "sudo systemctl start docker"),
    ],
)
def test_an_error_names_the_setting_that_points_the_client_at_another_engine(tmp_path, variables, chosen, at, fix):
    (tmp_path / "docker").write_text(
        "#!/bin/sh\necho Cannot connect to the Docker daemon at tcp://x. Is it up; exit 1\n"
    )
    (tmp_path / "docker").chmod(0o755)
    if chosen:
        (tmp_path / ".docker").mkdir()
        (tmp_path / ".docker/config.json").write_text(json.dumps({"auths": {}, "currentContext": chosen}, indent=2))
    env = {name: value for name, value in os.environ.items() if not name.startswith("DOCKER_")}
    env |= {**variables, "HOME": str(tmp_path), "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(commands.look(), capture_output=True, text=True, check=True, env=env)
    with pytest.raises(DockerFault) as raised:
        host_facts.parse(done.stdout, time.time())
    told = host_checks.engine("b", raised.value)
    assert (raised.value.at, told.cause, told.level) == (at, "docker-down", UNKNOWN)
    assert told.fix.startswith(f"on b: {fix}")
    assert at in told.text
    assert at in raised.value.hint

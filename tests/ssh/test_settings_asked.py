"""How the user's SSH settings are found out: OpenSSH asked within bounds, or the files read strictly without it."""

import shutil
import subprocess
import time

import pytest
from paramiko import PKey

from deploy.config.inventory import Host
from deploy.core.errors import UsageError
from deploy.door.faults import SshFault
from deploy.ssh import ask, host_keys, reader, session, settings, tokens
from lab.waiting import until

NODE = Host("node", "node")


@pytest.fixture
def program(tmp_path, monkeypatch, client):
    """program(script) puts an `ssh` first on the path."""

    def put(script):
        folder = tmp_path / "bin"
        folder.mkdir()
        (folder / "ssh").write_text(f"#!/bin/sh\n{script}\n")
        (folder / "ssh").chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder}:{ask.os.environ['PATH']}")

    return put


@pytest.fixture
def alone(tmp_path, monkeypatch):
    """A machine without OpenSSH's client: the user's home and the system's folder."""
    home, system = tmp_path / "home", tmp_path / "system"
    (home / ".ssh").mkdir(parents=True)
    system.mkdir()
    monkeypatch.delenv("MUSTER_SSH_CONFIG", raising=False)
    monkeypatch.setattr(settings.shutil, "which", lambda _: None)
    monkeypatch.setattr(tokens, "home", lambda: str(home))
    monkeypatch.setattr(reader, "SYSTEM", system)
    return home / ".ssh/config", system / "ssh_config"


def way(host=NODE):
    """The way to a host as the settings are now."""
    return settings.load().way(host)


@pytest.mark.parametrize("script", ["sleep 60 & sleep 60", "yes x", "sleep 60 >&2 & exec sleep 60"])
def test_an_ssh_that_does_not_end_is_ended(program, monkeypatch, script):
    monkeypatch.setattr(ask, "_LONGEST_S", 0.5)
    program(script)
    began = time.monotonic()
    with pytest.raises(UsageError, match="too much"):
        way()
    assert time.monotonic() - began < 20


def test_a_setting_of_a_later_openssh_is_refused_unless_it_has_its_default(program):
    ssh = shutil.which("ssh")
    program(f'{ssh} "$@"; echo "moon new"; case "$*" in *none*) echo "tide low" ;; *) echo "tide high" ;; esac')
    with pytest.raises(UsageError, match="tide high"):
        way()


def test_words_of_ssh_are_told_with_the_file(client):
    client.settings("Host *", "Port banana")
    with pytest.raises(UsageError, match="banana") as caught:
        way()
    assert str(client.config) in caught.value.message


def test_jump_hosts_in_a_circle_are_refused(client):
    client.settings("Host node", "ProxyJump door", "Host door", "HostName 10.0.0.1", "ProxyJump node")
    with pytest.raises(UsageError, match="circle: node -> door -> node"):
        way()
    client.settings("Host *", "HostName 127.0.0.1", "ProxyJump x%n")
    with pytest.raises(UsageError, match="more than 16 jump hosts"):
        way()


def test_a_jump_host_of_an_inventory_may_be_an_ipv6_address(client):
    assert [hop.host for hop in way(Host("a", "a", gateway="::1,me@fe80::2,[::3]:22")).hops] == [
        "::1",
        "fe80::2",
        "::3",
    ]


def test_a_proxy_command_ends_with_its_session(client, server, tmp_path):
    port = server().port
    relay = f"bash -c 'echo $$ > {tmp_path}/pid; exec 3<>/dev/tcp/127.0.0.1/%p; cat <&3 & cat >&3'"
    client.settings("Host node", "HostName 127.0.0.1", f"Port {port}", f"ProxyCommand {relay}")
    with session.open_all([NODE]) as results:
        assert results.all()["node"].run(["echo", "hello"]).out == "hello\n"
        pid = (tmp_path / "pid").read_text().strip()
        assert subprocess.run(["kill", "-0", pid], check=False).returncode == 0
    until(lambda: subprocess.run(["kill", "-0", pid], capture_output=True, check=False).returncode, "its end", 5)


def test_an_address_known_by_another_key_is_a_change_where_it_is_to_be_checked(client, tmp_path):
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "other"], check=True)
    own, other = PKey.from_path(client.key), PKey.from_path(tmp_path / "other")
    for address, kind in ((other, "changed-key"), (own, None)):
        lines = [f"node ssh-ed25519 {own.get_base64()}", f"192.0.2.7 ssh-ed25519 {address.get_base64()}"]
        client.known_hosts.write_text("\n".join(lines) + "\n")
        client.settings("CheckHostIP yes")
        checked = way()
        if kind:
            with pytest.raises(SshFault) as caught:
                host_keys.check(checked.where(NODE, jump=False), checked, own, "192.0.2.7")
            assert caught.value.kind == kind
        else:
            host_keys.check(checked.where(NODE, jump=False), checked, own, "192.0.2.7")


def test_the_systems_settings_hold_after_the_users_last_section(alone):
    user, system = alone
    user.write_text("Host other\n  Port 1\n")
    system.write_text("Port 2222\nUser them\n")
    assert way().port == 2222
    assert way(Host("other", "other")).port == 1


@pytest.mark.parametrize(
    "line",
    [
        'Match exec "true"',
        "Match final",
        "Match tagged x",
        "Match host",
        "CanonicalizeHostname yes",
        "Host node\n  Include more",
        'Host "node"',
        "Port 22 # usual",
        'IdentityFile "a" b',
        "KnownHostsCommand /bin/true",
        "Moon full",
        "IgnoreUnknown Moon",
        "Port",
        "Port banana",
        "HashKnownHosts perhaps",
        "User a\u2028Port 1",
    ],
)
def test_what_only_openssh_can_tell_is_refused_by_its_line(alone, line):
    alone[0].write_text(f"{line}\n  Port 1\n")
    with pytest.raises(UsageError, match=r"config:\d"):
        way()


def test_a_file_that_others_may_write_is_refused(alone):
    alone[0].write_text("Port 1\n")
    alone[0].chmod(0o666)
    with pytest.raises(UsageError, match="may write"):
        way()

"""The user's SSH settings apply as they do for ssh: aliases, includes, users, jump hosts, several known_hosts files."""

import re
import tempfile
import threading

import pytest

from deploy.core.errors import UsageError
from deploy.door import session, settings
from deploy.job.inventory import Host
from lab import waiting
from lab.ports import free_port


def logins(server):
    """How many logins the server has accepted."""
    return (server.folder / "log").read_text().count("Accepted publickey")


def hello(host):
    """What the host prints for `echo hello NAME`."""
    with session.open_all([host]) as results:
        return results.all()[host.name].run(["echo", "hello", host.name]).out


def test_an_alias_gives_address_port_user_and_key(client, server, me):
    port = server().port
    client.settings("Host gpu-a", "HostName 127.0.0.1", f"Port {port}", f"User {me}")
    assert hello(Host("gpu-a", "gpu-a")) == "hello gpu-a\n"


def test_an_inventorys_port_takes_precedence_over_the_settings(client, server):
    port = server().port
    client.settings("Host gpu-a", "HostName 127.0.0.1", f"Port {free_port()}")
    assert hello(Host("gpu-a", "gpu-a", port)) == "hello gpu-a\n"


def test_an_included_file_applies_and_so_do_the_lines_after_it(client, server, tmp_path):
    first, second = server(name="a").port, server(name="b").port
    (tmp_path / "one.conf").write_text(f"Host gpu-a\n  HostName 127.0.0.1\n  Port {first}\n")
    client.settings(f"Include {tmp_path}/*.conf", "Host gpu-b", "HostName 127.0.0.1", f"Port {second}")
    assert hello(Host("gpu-a", "gpu-a")) == "hello gpu-a\n"
    assert hello(Host("gpu-b", "gpu-b")) == "hello gpu-b\n"


def test_a_second_known_hosts_file_counts(client, server):
    host = server().host
    client.known_hosts.rename(client.folder / "more_hosts")
    assert hello(host) == "hello a\n"


def test_known_hosts_is_searched_for_the_host_key_alias(client, server):
    host = server().host
    lines = client.known_hosts.read_text().replace(f"[127.0.0.1]:{host.port}", "the-node")
    client.known_hosts.write_text(lines)
    client.settings("Host *", "HostKeyAlias the-node")
    assert hello(host) == "hello a\n"


def test_hosts_behind_one_jump_host_share_one_login_there(client, server):
    door = server(name="door")
    inner = [server(name=name) for name in "abc"]
    gateway = f"127.0.0.1:{door.port}"
    hosts = [Host(machine.name, "127.0.0.1", machine.port, gateway=gateway) for machine in inner]
    with session.open_all(hosts) as results:
        done = session.on_all(results.all().values(), lambda opened: opened.run(["echo", opened.host.name]).out)
    assert done.all() == {"a": "a\n", "b": "b\n", "c": "c\n"}
    assert logins(door) == 1
    assert [logins(machine) for machine in inner] == [1, 1, 1]


def test_a_chain_of_jump_hosts_from_the_settings(client, server, monkeypatch):
    died = []
    monkeypatch.setattr(threading, "excepthook", died.append)
    outer, middle, inner = (server(name=name) for name in ("outer", "middle", "inner"))
    alias = [
        line
        for machine in (outer, middle, inner)
        for line in (f"Host {machine.name}", "HostName 127.0.0.1", f"Port {machine.port}")
    ]
    client.settings(*alias, "ProxyJump outer,middle")
    before = set(threading.enumerate())
    for _ in range(3):
        assert hello(Host("inner", "inner")) == "hello inner\n"
    assert [logins(machine) for machine in (outer, middle, inner)] == [3, 3, 3]
    # All connections close together; a thread whose way out closes first must not end with a traceback.
    waiting.until(lambda: set(threading.enumerate()) <= before, "the connections' threads to end")
    assert not died


@pytest.mark.parametrize("wrong", ["key", "port"])
def test_a_jump_hosts_fault_is_reported_as_such_for_every_host_behind_it(client, server, wrong):
    door, inner = server(name="door"), server(name="a")
    client.trusts(inner, *([door] if wrong == "port" else []))
    port = free_port() if wrong == "port" else door.port
    hosts = [Host(name, "127.0.0.1", inner.port + n, gateway=f"127.0.0.1:{port}") for n, name in enumerate("ab")]
    with session.open_all(hosts) as results:
        assert not results.values
    for name in "ab":
        fault = results.faults[name]
        assert fault.kind == ("refused" if wrong == "port" else "unknown-key")
        assert fault.message.startswith(f"{name}: its jump host: 127.0.0.1:{port} ")
    if wrong == "key":
        assert f"muster trust --hosts root@127.0.0.1:{port}".replace("root@", "") in fault.hint.replace("root@", "")


@pytest.mark.parametrize(
    ("option", "kind"), [("AllowTcpForwarding no", "forbidden"), ("AllowTcpForwarding yes", "refused")]
)
def test_a_jump_host_that_cannot_reach_the_host_is_reported(client, server, option, kind):
    door = server(option, name="door")
    host = Host("a", "127.0.0.1", free_port(), gateway=f"127.0.0.1:{door.port}")
    with session.open_all([host]) as results:
        assert results.faults["a"].kind == kind
        assert "jump host" in results.faults["a"].message


def test_a_proxy_command_is_used(client, server):
    port = server().port
    relay = "bash -c 'exec 3<>/dev/tcp/127.0.0.1/%p; cat <&3 & cat >&3; kill $!'"
    client.settings("Host gpu-a", "HostName 127.0.0.1", f"Port {port}", f"ProxyCommand {relay}")
    assert hello(Host("gpu-a", "gpu-a")) == "hello gpu-a\n"


def test_a_proxy_command_ends_with_its_session(client, server, tmp_path):
    port = server().port
    relay = f"bash -c 'echo $$ > {tmp_path}/pid; exec 3<>/dev/tcp/127.0.0.1/%p; cat <&3 & cat >&3'"
    client.settings("Host gpu-a", "HostName 127.0.0.1", f"Port {port}", f"ProxyCommand {relay}")
    with session.open_all([Host("gpu-a", "gpu-a")]) as results:
        assert results.all()["gpu-a"].run(["echo", "hello"]).out == "hello\n"
        pid = int((tmp_path / "pid").read_text())
        assert waiting.alive(pid)
    waiting.until(lambda: not waiting.alive(pid), "its end", 10)


@pytest.fixture
def own(monkeypatch, tmp_path, client, server):
    """A server, a user's settings file, a system settings file, both without MUSTER_SSH_CONFIG, and common lines."""
    made, home = server(), tmp_path / "their home"
    (home / ".ssh").mkdir(parents=True)
    monkeypatch.delenv("MUSTER_SSH_CONFIG")
    monkeypatch.setattr("deploy.door.settings.home", lambda: home)
    monkeypatch.setattr("deploy.door.settings._SYSTEM", tmp_path / "system")
    known = f"IdentityFile {client.key}\nUserKnownHostsFile {client.known_hosts}\n"
    return made, home / ".ssh/config", tmp_path / "system", known


def test_the_users_settings_precede_the_systems_and_both_apply(own):
    made, users, system, known = own
    users.write_text(f"Host gpu-a\n  HostName 127.0.0.1\n  Port {made.port}\n")
    system.write_text(f"Host *\n  Port 1\n{known}")
    assert hello(Host("gpu-a", "gpu-a")) == "hello gpu-a\n"
    users.unlink()
    with session.open_all([Host("gpu-a", "127.0.0.1")]) as results:
        assert "127.0.0.1:1 refuses" in results.faults["gpu-a"].message


def test_settings_that_others_may_write_are_refused_as_ssh_refuses_them(own):
    made, users, _, known = own
    users.write_text(f"Port {made.port}\n{known}")
    users.chmod(0o666)
    with pytest.raises(UsageError, match=f"Bad owner or permissions on {users}"):
        hello(Host("gpu-a", "127.0.0.1"))
    users.chmod(0o644)
    assert hello(Host("gpu-a", "127.0.0.1")) == "hello gpu-a\n"


def test_sshs_error_is_reported_with_the_settings_file(client):
    client.settings("Host *", "Port banana")
    with pytest.raises(UsageError, match="banana") as caught:
        hello(Host("gpu-a", "gpu-a"))
    assert str(client.config) in caught.value.message


def test_an_option_unknown_to_this_ssh_is_not_given_as_the_reason(client):
    client.settings("Host *", "RSAAuthentication yes", "Port banana")
    with pytest.raises(UsageError, match="banana"):
        hello(Host("gpu-a", "gpu-a"))


@pytest.mark.parametrize("variable", ["~no-such-user/config", "/" + "x" * 300, ""])
def test_a_missing_settings_file_or_user_name_is_refused_and_leaves_nothing(monkeypatch, tmp_path, variable):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(settings, "_PLAIN", re.compile(".*"))
    monkeypatch.setattr(settings, "LONGEST_SOCKET", 1000)
    monkeypatch.setenv("MUSTER_SSH_CONFIG", variable)
    if not variable:
        monkeypatch.setattr("os.getuid", lambda: 4_000_000)
    with pytest.raises(UsageError, match="no such file" if variable else "4000000"):
        hello(Host("gpu-a", "gpu-a"))
    assert not list(tmp_path.iterdir())


def test_jump_hosts_in_a_circle_are_refused(client):
    client.settings("Host node", "ProxyJump door", "Host door", "HostName 10.0.0.1", "ProxyJump node")
    with pytest.raises(UsageError, match="circle: node -> door -> node"):
        hello(Host("node", "node"))
    client.settings("Host *", "HostName 127.0.0.1", "ProxyJump x%n")
    with pytest.raises(UsageError, match="more than 16 jump hosts"):
        hello(Host("node", "node"))


@pytest.mark.parametrize("gateway", ["::1", "me@::1", "[::1]:22"])
def test_a_jump_host_of_an_inventory_may_be_an_ipv6_address(client, gateway):
    with session.open_all([Host("a", "a", gateway=gateway)]) as results:
        assert "its jump host: [::1]:22 " in results.faults["a"].message

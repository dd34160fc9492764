"""Each reason why a host cannot be reached has its own kind, message and next command; good hosts are unaffected."""

import os
import shlex
import socket
import subprocess
import threading
from pathlib import Path

import pytest

from deploy.core.errors import UsageError
from deploy.door import reasons, session
from deploy.door.trust import trust
from deploy.job.inventory import Host
from lab.ports import free_port
from lab.waiting import until
from tests.ssh import conftest


@pytest.fixture
def refusal():
    """refusal(host) -> the SshFault with which opening the host fails."""

    def read(host):
        with session.open_all([host]) as results:
            assert not results.values
            return results.faults[host.name]

    return read


@pytest.fixture
def deaf():
    """deaf(answers) -> port of a listener that never greets; with `answers` False it accepts no connection either.

    A listener with a full queue drops further handshakes: to a client it looks like a firewall's black hole.
    """
    held = []

    def listen(answers):
        listener = socket.socket()
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        held.append(listener)
        # Linux queues one connection more than the backlog.
        for _ in range(0 if answers else 2):
            waiting = socket.socket()
            waiting.setblocking(False)
            waiting.connect_ex(listener.getsockname())
            held.append(waiting)
        return listener.getsockname()[1]

    yield listen
    for opened in held:
        opened.close()


@pytest.mark.parametrize("name", ["no-such-host.invalid", "gpu..lab", "x" * 300])
def test_a_name_that_does_not_resolve(client, refusal, name):
    fault = refusal(Host("gpu-a", name))
    assert fault.kind == "resolve"
    assert fault.message == f"gpu-a: the name {name} does not resolve"
    assert " -G gpu-a`" in fault.hint


def test_a_misspelt_alias_gets_a_suggestion_from_the_settings(client, refusal, tmp_path, monkeypatch):
    settings = tmp_path / "ssh config"
    settings.write_text("Host *.lab gpu-one\n  User me\n")
    monkeypatch.setenv("MUSTER_SSH_CONFIG", str(settings))
    fault = refusal(Host("gpu-onne", "gpu-onne"))
    assert fault.message.endswith("does not resolve; did you mean gpu-one?")
    assert f"ssh -F '{settings}' -G gpu-onne" in fault.hint


def test_a_port_nobody_listens_on(client, refusal):
    port = free_port()
    fault = refusal(Host("gpu-a", "127.0.0.1", port))
    assert fault.kind == "refused"
    refused = f"127.0.0.1:{port} refuses the connection"
    assert fault.message == f"gpu-a: {refused}: no SSH server listens there, or a firewall rejects it"


def test_a_black_hole_ends_after_the_connect_timeout(client, refusal, deaf):
    client.settings("Host *", "ConnectTimeout 1")
    fault = refusal(Host("gpu-a", "127.0.0.1", deaf(answers=False)))
    assert fault.kind == "timeout"
    assert "within 1 s" in fault.message
    assert "nc -vz 127.0.0.1" in fault.hint


def test_a_listener_that_never_greets(client, refusal, deaf):
    client.settings("Host *", "ConnectTimeout 1")
    fault = refusal(Host("gpu-a", "127.0.0.1", deaf(answers=True)))
    assert fault.kind == "silent"
    assert "does not answer like an SSH server within 1 s" in fault.message


def test_a_rejected_key_is_reported_with_the_keys_that_were_offered(client, server, refusal, tmp_path):
    other = tmp_path / "other"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", other], check=True)
    printed = subprocess.run(["ssh-keygen", "-lf", other], capture_output=True, text=True, check=True).stdout.split()[1]
    host = server().host
    client.settings(identity=other)
    fault = refusal(host)
    assert fault.kind == "key-rejected"
    assert f"offered {other} ({printed})" in fault.message
    assert "ssh-copy-id" in fault.hint


def test_a_missing_or_locked_key_is_reported_as_not_offered(client, server, refusal, tmp_path):
    locked = tmp_path / "locked"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "secret", "-f", locked], check=True)
    host = server().host
    client.settings("Host *", f"IdentityFile {tmp_path}/nowhere", identity=locked)
    client.key.unlink()
    fault = refusal(host)
    assert fault.kind == "key-rejected"
    assert "there is no key to offer" in fault.message
    assert f"{tmp_path}/nowhere does not exist" in fault.message
    assert f"{locked} needs its passphrase: `ssh-add {locked}`" in fault.message
    assert fault.hint.startswith("with a passphrase or a token: `muster login --hosts ")


def test_a_key_file_with_a_host_token_is_reported_by_its_real_path(client, server, refusal, tmp_path):
    host = server().host
    (tmp_path / "a" / "authorized").write_text("")
    client.key.rename(tmp_path / "key-127.0.0.1")
    client.settings("Host *", f"IdentityFile {tmp_path}/none-%h", identity=tmp_path / "key-%h")
    message = refusal(host).message
    assert f"offered {tmp_path}/key-127.0.0.1 (SHA256:" in message
    assert message.endswith(f"; {tmp_path}/none-127.0.0.1 does not exist")


def test_an_expired_host_certificate_is_reported(client, server, refusal, tmp_path):
    host, key, ca = (
        server(f"HostCertificate {tmp_path}/a/key_ed25519-cert.pub"),
        tmp_path / "a/key_ed25519.pub",
        tmp_path / "ca",
    )
    host.stop()
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", ca], check=True)
    sign = ["ssh-keygen", "-q", "-s", ca, "-I", "a", "-h", "-n", "127.0.0.1", "-V", "20200101:20210101", key]
    subprocess.run(sign, check=True)
    host.start()
    client.known_hosts.write_text(f"@cert-authority * {ca.with_suffix('.pub').read_text()}")
    fault = refusal(host.host)
    assert fault.kind == "unknown-key"
    assert fault.message.endswith("(ssh-ed25519-cert-v01@openssh.com). Certificate invalid: expired")


@pytest.fixture
def closed_account(sshd, monkeypatch, tmp_path):
    """Let this test's servers refuse every account after accepting its key, as PAM does for an expired account."""
    if os.getuid():
        pytest.skip("PAM's settings are root's to write")
    program = tmp_path / f"sshd-{tmp_path.name}"
    program.symlink_to(sshd)
    rules = Path("/etc/pam.d") / program.name
    rules.write_text("auth required pam_permit.so\naccount required pam_deny.so\nsession required pam_permit.so\n")
    monkeypatch.setattr(conftest, "SSHD", str(program))
    yield
    rules.unlink()


def test_an_accepted_key_for_a_closed_account_is_not_reported_as_rejected(closed_account, server, refusal, me):
    fault = refusal(server("UsePAM yes").host)
    assert fault.kind == "closed"
    assert f" accepts {me}'s key, then hangs up" in fault.message


@pytest.mark.parametrize(("words", "kind"), [("Operation timed out", "timeout"), ("Host is down", "unreachable")])
def test_error_texts_of_other_systems_give_the_same_kind(words, kind):
    assert reasons.kind_of(f"ssh: connect to host gpu-a port 22: {words}") == kind


def test_a_server_that_hangs_up_after_too_many_keys_is_reported(client, server, refusal, tmp_path):
    keys = [tmp_path / f"key-{number}" for number in range(4)]
    for key in keys:
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    host = server("MaxAuthTries 2").host
    client.settings("Host *", *(f"IdentityFile {key}" for key in keys))
    fault = refusal(host)
    assert fault.kind == "key-rejected"
    assert "MaxAuthTries" in fault.message


@pytest.mark.parametrize(
    ("options", "kind", "says"),
    [
        (("PubkeyAuthentication no", "PasswordAuthentication yes"), "password-only", "only password"),
        (
            ("AuthenticationMethods publickey,password", "PasswordAuthentication yes"),
            "second-factor",
            "also wants password",
        ),
    ],
)
def test_a_server_that_wants_more_or_other_than_a_key(server, refusal, options, kind, says):
    fault = refusal(server(*options).host)
    assert fault.kind == kind
    assert says in fault.message


def test_an_unknown_host_key_is_refused_before_any_login(client, server, refusal):
    unknown = server()
    client.known_hosts.unlink()
    fault = refusal(unknown.host)
    assert fault.kind == "unknown-key"
    printed = subprocess.run(
        ["ssh-keygen", "-lf", unknown.folder / "key_ed25519.pub"], capture_output=True, text=True, check=True
    )
    assert printed.stdout.split()[1] in fault.message
    assert fault.hint.startswith("`muster trust --hosts a`")
    until(lambda: "preauth" in (unknown.folder / "log").read_text(), "the server's word on the login that ended", 5)
    assert "Accepted" not in (unknown.folder / "log").read_text()
    assert not client.known_hosts.exists()


def test_strict_checking_switched_off_in_the_settings_changes_nothing(client, server, refusal):
    host = server().host
    client.known_hosts.unlink()
    client.settings("Host *", "StrictHostKeyChecking no")
    assert refusal(host).kind == "unknown-key"


def test_a_changed_host_key_is_reported_loudly_and_never_replaced(client, server, refusal):
    changed = server()
    before = client.known_hosts.read_text()
    changed.stop()
    for kind in ("ed25519", "rsa"):
        changed.new_key(kind)
    changed.start()
    fault = refusal(changed.host)
    assert fault.kind == "changed-key"
    assert "HAS CHANGED" in fault.message
    assert f"{client.known_hosts}:" in fault.message
    assert f"ssh-keygen -R '[127.0.0.1]:{changed.port}' -f {client.known_hosts}`" in fault.hint
    assert client.known_hosts.read_text() == before


def test_the_hint_removes_a_changed_key_under_its_alias_and_from_its_file(client, server, refusal):
    changed = server()
    client.settings("Host *", "HostKeyAlias the-node")
    client.known_hosts.write_text(changed.known().replace(f"[127.0.0.1]:{changed.port}", "the-node"))
    changed.stop()
    for kind in ("ed25519", "rsa"):
        changed.new_key(kind)
    changed.start()
    asked = [changed.host]
    refused = trust(asked, lambda question: False, lambda line: None).faults["a"]
    hint = refusal(changed.host).hint
    assert refused.hint == hint
    forget = hint.partition("`ssh-keygen -R ")[2].partition("`")[0]
    subprocess.run(["ssh-keygen", "-R", *shlex.split(forget)], check=True)
    assert refusal(changed.host).kind == "unknown-key"


def test_a_revoked_host_key_is_refused_even_if_it_is_known(client, server, refusal):
    host = server().host
    lines = client.known_hosts.read_text()
    client.known_hosts.write_text(lines + "".join(f"@revoked {line}\n" for line in lines.splitlines()))
    assert refusal(host).kind == "revoked-key"


def test_a_host_known_only_by_its_second_key_type_is_accepted(client, server):
    host = server().host
    client.known_hosts.write_text(client.known_hosts.read_text().splitlines(keepends=True)[1])
    with session.open_all([host]) as results:
        assert results.all()["a"].run(["echo", "hello"]).out == "hello\n"


@pytest.mark.parametrize(
    ("command", "kind", "says"),
    [
        ("/usr/sbin/nologin", "no-shell", "This account is currently not available."),
        ("exit 3", "no-shell", "it ended with code 3 and printed nothing"),
        ('PATH=/nowhere; eval "$SSH_ORIGINAL_COMMAND"', "no-sh", "not found"),
    ],
)
def test_a_login_that_runs_no_commands(server, refusal, command, kind, says):
    fault = refusal(server(f"ForceCommand {command}").host)
    assert fault.kind == kind
    assert says in fault.message


def test_a_busy_server_accepts_all_logins_in_the_end(client, server):
    busy = server("MaxStartups 2", "LogLevel DEBUG1")
    client.settings(*(line for n in range(8) for line in (f"Host n{n}", "HostName 127.0.0.1", f"Port {busy.port}")))
    # One machine under eight names would rightly be refused, so each name is opened separately.
    opened, faults = [], []

    def connect(number):
        with session.open_all([Host(f"n{number}", f"n{number}")]) as results:
            (opened if results.values else faults).append(number)

    threads = [threading.Thread(target=connect, args=(number,)) for number in range(8)]
    # An idle client that never logs in occupies one of the two places.
    with socket.create_connection(("127.0.0.1", busy.port)) as idle:
        assert idle.recv(4) == b"SSH-"
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert sorted(opened) == list(range(8))
    assert not faults
    assert "drop connection" in (busy.folder / "log").read_text(), "no login was dropped: this test showed nothing"


def test_a_server_that_always_hangs_up_is_reported_as_busy(client, refusal, monkeypatch):
    monkeypatch.setattr("deploy.door.connection.TRIES", 2)
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def hang_up():
            for _ in range(2):
                listener.accept()[0].close()

        threading.Thread(target=hang_up, daemon=True).start()
        fault = refusal(Host("gpu-a", "127.0.0.1", listener.getsockname()[1]))
    assert fault.kind == "dropped"
    assert "hung up before login, 2 times" in fault.message


def test_a_good_host_opens_while_others_fail_and_every_failing_host_is_named(server):
    good = server()
    hosts = [Host("gpu-x", "127.0.0.1", free_port()), good.host, Host("gpu-y", "no-such-host.invalid")]
    with session.open_all(hosts) as results:
        assert list(results.values) == ["a"]
        assert {name: fault.kind for name, fault in results.faults.items()} == {"gpu-x": "refused", "gpu-y": "resolve"}


def test_one_machine_under_two_names_is_refused_by_both(client, server):
    port = server().port
    client.settings("Host gpu-a gpu-b", "HostName 127.0.0.1", f"Port {port}")
    with (
        pytest.raises(UsageError, match="gpu-a and gpu-b are the same host"),
        session.open_all([Host("gpu-a", "gpu-a"), Host("gpu-b", "gpu-b")]),
    ):
        pass


@pytest.mark.parametrize("text", [None, "Match never\n  User x\n", "nonsense\n"])
def test_invalid_settings_are_refused_with_their_file(client, text):
    if text is None:
        client.config.unlink()
    else:
        client.config.write_text(text)
    with pytest.raises(UsageError, match=str(client.config)), session.open_all([Host("a", "a")]):
        pass

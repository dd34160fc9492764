"""Trusting a host: fingerprints are those of ssh-keygen, a yes is stored once, a change is never accepted."""

import resource
import subprocess
import tempfile
from pathlib import Path

import pytest

from deploy.core.errors import UsageError
from deploy.door import session
from deploy.job.inventory import Host
from lab.ports import free_port

ECDSA = (
    "ecdsa-sha2-nistp256 AAAAE2VjZHNhLXNoYTItbmlzdHAyNTYAAAAIbmlzdHAyNTYAAABBBEmKSENjQEezOmxkZMy7opKgwFB9nkt5YRrYMjNuG5"
    "N87uRgg6CLrbo5wAdT/y6v0mKV0U2w0WZ2YB/++Tpockg="
)


@pytest.fixture
def unknown(server, client):
    """A server whose key nobody knows yet."""
    made = server()
    client.known_hosts.unlink()
    return made


@pytest.fixture
def asked():
    """The questions asked, and the lines printed before them."""
    return []


def test_fingerprints_are_shown_as_ssh_keygen_shows_them(unknown, asked):
    lines = unknown.folder / "lines"
    lines.write_text(unknown.known())
    printed = subprocess.run(["ssh-keygen", "-lf", lines], capture_output=True, text=True, check=True).stdout
    session.trust([unknown.host], lambda _: False, asked.append)
    assert set(asked) == set(printed.splitlines())


def test_a_yes_trusts_the_host_and_the_second_time_nothing_is_asked(unknown, client, asked):
    done = session.trust([unknown.host], lambda question: not asked.append(question), asked.append)
    assert done.all()["a"] == f"trusted: 2 keys in {client.known_hosts}"
    assert len(asked) == 3
    assert "SHA256:" in asked[0]
    assert asked[2].startswith("a: are these the keys of 127.0.0.1?")
    assert client.known_hosts.stat().st_mode & 0o777 == 0o600
    assert not (unknown.home / ".muster").exists()  # no audit line either: only this machine changed
    with session.open_all([unknown.host]) as results:
        assert results.all()
    assert client.ssh(unknown, "echo hello").stdout == "hello\n"  # OpenSSH reads it as Muster does
    before = client.known_hosts.read_text()
    assert (
        session.trust([unknown.host], lambda _: pytest.fail("asked again"), asked.append).all()["a"] == "known already"
    )
    assert client.known_hosts.read_text() == before


def test_each_of_several_hosts_shows_its_own_keys(server, client, asked):
    first, second = (server(name=name) for name in "ab")
    client.known_hosts.unlink()
    done = session.trust([first.host, second.host], lambda question: not asked.append(question), asked.append)
    assert set(done.all().values()) == {f"trusted: 2 keys in {client.known_hosts}"}
    assert [f":{second.port}" in line for line in asked[3:5]] == [True, True]


def test_a_no_changes_nothing(unknown, client, asked):
    assert session.trust([unknown.host], lambda _: False, asked.append).all()["a"] == "not trusted"
    assert not client.known_hosts.exists()
    assert "Accepted" not in (unknown.folder / "log").read_text()


def test_keys_are_appended_once_and_hashed_if_the_user_wants_it(unknown, client, asked):
    client.settings("Host *", "HashKnownHosts yes")
    client.known_hosts.write_text("other ssh-ed25519 AAAA")  # no newline at the end
    for done in (f"trusted: 2 keys in {client.known_hosts}", "known already"):
        assert session.trust([unknown.host], lambda _: True, asked.append).all()["a"] == done
    lines = client.known_hosts.read_text().splitlines()
    assert lines[0] == "other ssh-ed25519 AAAA"
    assert len(lines) == 1 + len(asked)
    assert all(line.startswith("|1|") for line in lines[1:])
    assert client.ssh(unknown, "echo hello").stdout == "hello\n"


def test_a_changed_key_is_refused_and_not_asked_about(client, server, asked):
    changed = server()
    before = client.known_hosts.read_text()
    changed.stop()
    changed.new_key()
    changed.start()
    done = session.trust([changed.host], lambda _: pytest.fail("asked about a changed key"), asked.append)
    assert done.faults["a"].kind == "changed-key"
    assert client.known_hosts.read_text() == before


@pytest.mark.holds("changed-keys")
def test_a_key_of_another_type_than_the_known_one_is_a_change_too(client, server, asked):
    machine = server()
    stranger = client.known_hosts.read_text().splitlines()
    # Known only by an ECDSA key; a server that presents keys of other types is not that server.
    client.known_hosts.write_text(f"{stranger[0].split()[0]} {ECDSA}\n")
    done = session.trust([machine.host], lambda _: pytest.fail("asked about a changed key"), asked.append)
    assert done.faults["a"].kind == "changed-key"
    with session.open_all([machine.host]) as results:
        assert results.faults["a"].kind == "changed-key"
        assert "ecdsa" not in results.faults["a"].message.partition("is known at")[0]


def test_a_key_of_a_new_type_next_to_the_known_one_is_asked_about(client, server, asked):
    machine = server()
    client.known_hosts.write_text(client.known_hosts.read_text().splitlines(keepends=True)[0])
    assert session.trust([machine.host], lambda _: True, asked.append).all()["a"].startswith("trusted")


def test_nothing_is_written_if_the_settings_have_no_known_hosts_file(client, server, asked):
    machine = server()
    client.settings("UserKnownHostsFile none", f"GlobalKnownHostsFile {client.folder}/all")
    done = session.trust([machine.host], lambda _: True, asked.append)
    assert "name no file for known hosts" in done.faults["a"].message
    assert not (client.folder / "all").exists()


def test_an_unreachable_host_does_not_stop_others_from_being_trusted(unknown, asked):
    done = session.trust([Host("x", "127.0.0.1", free_port()), unknown.host], lambda _: True, asked.append)
    assert done.faults["x"].kind == "refused"
    assert done.values["a"].startswith("trusted")


def test_a_key_truncated_by_a_full_disk_is_reported_as_not_written(unknown, client):
    client.known_hosts.write_text("#" * 1000 + "\n")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        # The disk becomes full once the keys have been shown.
        full = 1100, before[1]
        done = session.trust([unknown.host], lambda _: not resource.setrlimit(resource.RLIMIT_FSIZE, full), print)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert f"{client.known_hosts}: cannot be written" in done.faults["a"].message
    assert session.trust([unknown.host], lambda _: True, print).values["a"].startswith("trusted: 2 keys")
    with session.open_all([unknown.host]) as results:
        assert not results.faults


def test_a_full_disk_is_reported_and_leaves_no_folder(client, tmp_path):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    folders = set(Path(tempfile.gettempdir()).glob("muster-*"))
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
    try:
        with pytest.raises(UsageError, match="ssh's settings, in "), session.open_all([Host("a", "a")]):
            pass
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert set(Path(tempfile.gettempdir()).glob("muster-*")) <= folders


def test_an_unwritable_known_hosts_file_is_reported(unknown, client, asked):
    client.known_hosts.mkdir()
    done = session.trust([unknown.host], lambda _: True, asked.append)
    assert f"{client.known_hosts}: cannot be written: Is a directory" in done.faults["a"].message

"""What one host has and this machine does not: it keeps it in pieces, and the others get it from there."""

import hashlib

import pytest

from deploy.core.errors import DeployError
from deploy.door import session
from deploy.send.road import routes
from deploy.send.road.road import Road
from tests.ssh.test_road import ARGV, keys, pieces, some, three

MB = 1 << 20
ROOM = 64 * MB


@pytest.fixture
def hosts(server):
    yield from three(server)


def pass_on(hosts, argv, step=MB, before=lambda giver: None):
    """The first host keeps what a command prints; the others get it: who had what from whom, and whose fault it is."""
    notes = []
    with session.open_all([server.host for server in hosts]) as opened:
        sessions = list(opened.all().values())
        with Road(len(hosts), lambda *_: None, notes.append) as road:
            cargo = road.hold(sessions[0], argv, step, ROOM)
            before(hosts[0])
            results = session.on_all(sessions[1:], lambda each: road.deliver(each, ARGV, cargo))
    return results, notes


def saved(server, size):
    """A command that prints so many bytes there, and their digest."""
    data = some(size)
    (server.home / "image").write_bytes(data)
    return ["cat", str(server.home / "image")], hashlib.sha256(data).hexdigest()


def test_the_others_get_all_of_it_from_the_host_that_has_it(hosts):
    argv, digest = saved(hosts[0], 5 * MB + 123)
    results, notes = pass_on(hosts, argv)
    assert not results.faults
    assert {each.done.out.strip() for each in results.values.values()} == {digest}
    came = {source for each in results.values.values() for source in each.sources}
    assert came <= {"a", "b", "c"}
    assert not notes
    assert [server.name for server in hosts if pieces(server)] == []


@pytest.mark.parametrize(
    "argv",
    [["sh", "-c", "head -c 3000000 /dev/zero; exit 1"], ["docker-that-is-not-there", "save"], ["true"]],
)
def test_of_a_command_that_fails_nothing_stays(hosts, argv):
    with pytest.raises(DeployError):
        pass_on(hosts, argv)
    assert pieces(hosts[0]) == []


def test_without_room_nothing_is_kept(hosts, monkeypatch):
    argv, _ = saved(hosts[0], MB)
    monkeypatch.setattr("tests.ssh.test_held.ROOM", 1 << 60)
    with pytest.raises(DeployError, match="bytes are not free"):
        pass_on(hosts, argv)
    assert pieces(hosts[0]) == []


def test_a_host_that_changes_what_it_passes_on_gives_nobody_a_wrong_byte(hosts):
    def change(giver):
        for path in pieces(giver):
            path.write_bytes(b"x" * path.stat().st_size)

    argv, _ = saved(hosts[0], 3 * MB)
    results, _ = pass_on(hosts, argv, before=change)
    assert results.faults.keys() == {"b", "c"}


def test_who_gets_no_more_from_the_only_host_that_has_it_is_told(hosts, monkeypatch):
    monkeypatch.setattr(routes, "SILENT_S", 3.0)

    def lose(giver):
        for path in pieces(giver):
            path.unlink()

    argv, _ = saved(hosts[0], 3 * MB)
    results, _ = pass_on(hosts, argv, before=lose)
    assert results.faults.keys() == {"b", "c"}
    assert all("push again" in fault.hint for fault in results.faults.values())


@pytest.mark.parametrize("step", [100_000, 4 * MB])
def test_pieces_of_any_size_are_put_together(hosts, step):
    argv, digest = saved(hosts[0], 2 * MB + 1)
    results, _ = pass_on(hosts, argv, step)
    assert {each.done.out.strip() for each in results.values.values()} == {digest}


def test_keys_and_processes_go_with_the_push(hosts):
    argv, _ = saved(hosts[0], MB)
    pass_on(hosts, argv)
    assert not keys(hosts)

"""Layers that only one host's engine has: that host stores them as pieces, and the other hosts get them from there."""

import gzip
import hashlib
import io
import os
import signal
import subprocess
import sys
import tarfile

import pytest

from deploy.core.errors import DeployError
from deploy.door import session
from deploy.send.road import routes
from deploy.send.road.cargo import Cargo, of_bytes
from deploy.send.road.road import Road
from lab.waiting import until
from tests.ssh.test_road import ARGV, HOME, keys, pieces, some, three, working

MB = 1 << 20
ROOM = 64 * MB
# A stand-in for an engine: `docker save` prints an archive from the home.
DOCKER = '#!/bin/sh\n[ "$1" = save ] || exit 1\ncat "$HOME/$2"\n'


@pytest.fixture
def hosts(server):
    for made in three(server):
        program = made[0].home / "bin" / "docker"
        program.parent.mkdir()
        program.write_text(DOCKER)
        program.chmod(0o755)
        yield made


def digest(data):
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def saved(giver, **files):
    """Write an archive `image` of these files, with names as an engine gives them."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for name, data in files.items():
            entry = tarfile.TarInfo(f"blobs/sha256/{name}")
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    (giver.home / "image").write_bytes(packed.getvalue())


def pass_on(hosts, layers, step=MB, before=lambda giver: None):
    """Let the first host serve layers and the others fetch them; returns their results and the notes."""
    notes = []
    with session.open_all([server.host for server in hosts]) as opened:
        first, *others = opened.all().values()
        first._front = ("env", f"PATH={hosts[0].home}/bin:/usr/bin:/bin")
        with Road(len(hosts), lambda *_: None, notes.append) as road:
            parts = road.hold(first, "image", layers, step, ROOM)
            before(hosts[0])
            cargo = Cargo([parts[layer] for layer in layers])
            results = session.on_all(others, lambda each: road.deliver(each, ARGV, cargo))
    return results, notes


LAYERS = some(5 * MB + 123), some(2 * MB), some(3000)


@pytest.mark.parametrize("packed", [bytes, gzip.compress], ids=["as they are", "gzip"])
def test_the_others_get_the_layers_from_the_host_that_has_them(hosts, packed):
    saved(hosts[0], config=b"{}" * 400, **{f"layer-{number}": packed(data) for number, data in enumerate(LAYERS)})
    results, notes = pass_on(hosts, [digest(data) for data in LAYERS])
    assert not results.faults
    assert {each.done.out.strip() for each in results.values.values()} == {hashlib.sha256(b"".join(LAYERS)).hexdigest()}
    assert {source for each in results.values.values() for source in each.sources} <= {"a", "b", "c"}
    assert not notes
    assert [server.name for server in hosts if pieces(server)] == []
    assert not keys(hosts)


def test_a_layer_that_was_not_requested_is_not_kept(hosts):
    saved(hosts[0], one=LAYERS[1], other=some(MB + 7))
    sizes = []

    def look(giver):
        sizes.extend(path.stat().st_size for path in pieces(giver))

    results, _ = pass_on(hosts, [digest(LAYERS[1])], before=look)
    assert not results.faults
    assert sum(sizes) == len(LAYERS[1])


@pytest.mark.parametrize("archive", [b"", b"no archive" * 1000, None, "cut"], ids=["empty", "odd", "none", "cut"])
def test_nothing_is_kept_from_an_incomplete_archive(hosts, archive):
    saved(hosts[0], one=LAYERS[0])
    place = hosts[0].home / "image"
    place.write_bytes(place.read_bytes()[: 3 * MB] if archive == "cut" else archive or b"")
    if archive is None:
        place.unlink()
    with pytest.raises(DeployError):
        pass_on(hosts, [digest(LAYERS[0])])
    assert pieces(hosts[0]) == []


def odd(giver, *entries):
    """Write an archive with a layer and these entries, each a name, a kind and a link target."""
    (giver.home / "precious").write_text("mine")
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for name, kind, link in (*entries, ("layer", tarfile.REGTYPE, "")):
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = kind, link
            data = LAYERS[1] if name == "layer" else b"theirs"
            entry.size = len(data) if kind == tarfile.REGTYPE else 0
            tar.addfile(entry, io.BytesIO(data))
    (giver.home / "image").write_bytes(packed.getvalue())


def untouched(giver):
    """Whether an archive changed no other file on the host and created none."""
    made = [path for path in giver.home.rglob("*") if path.name in ("own", "escaped", "pipe", "link", "blobs")]
    return not made and (giver.home / "precious").read_text() == "mine"


def test_only_files_of_an_archive_are_read_and_nothing_is_unpacked(hosts):
    """Engines make their archives from images that anybody may have built."""
    names = []
    odd(
        hosts[0],
        ("blobs", tarfile.DIRTYPE, ""), ("link", tarfile.SYMTYPE, "../../../../precious"),
        ("pipe", tarfile.FIFOTYPE, ""), ("link", tarfile.REGTYPE, ""),
        ("$(touch own)\n; touch own", tarfile.REGTYPE, ""),
        ("--checkpoint-action=exec=touch own", tarfile.REGTYPE, ""), (digest(b"x")[7:], tarfile.REGTYPE, ""),
    )  # fmt: skip
    results, _ = pass_on(hosts, [digest(LAYERS[1])], before=lambda giver: names.extend(p.name for p in pieces(giver)))
    assert not results.faults
    assert sorted(names) == sorted(hashlib.sha256(LAYERS[1][at : at + MB]).hexdigest() for at in (0, MB))
    assert untouched(hosts[0])


@pytest.mark.parametrize("name", ["../../../../precious", "../../../../escaped", "x/../../../../../escaped"])
def test_an_archive_with_paths_that_lead_outside_gives_nothing(hosts, name):
    odd(hosts[0], (name, tarfile.REGTYPE, ""), ("link", tarfile.LNKTYPE, name))
    with pytest.raises(DeployError):
        pass_on(hosts, [digest(LAYERS[1])])
    assert pieces(hosts[0]) == []
    assert untouched(hosts[0])


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_push_ended_during_an_engines_save_leaves_nothing(hosts, tmp_path, how):
    saved(hosts[0], one=LAYERS[0], other=some(9 * MB))
    # An engine that outputs the first layer and then never ends.
    slow = '#!/bin/sh\nhead -c 7000000 "$HOME/image"; while sleep 0.2; do echo more; done\n'
    (hosts[0].home / "bin" / "docker").write_text(slow)
    script = tmp_path / "hold.py"
    script.write_text(
        "import signal, sys\nfrom tests.ssh.test_held import *\nfrom deploy.job.cluster import from_flag\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "with session.open_all(from_flag(sys.argv[1]).hosts) as opened, Road(1, lambda *_: None, print) as road:\n"
        "    (first,) = opened.all().values()\n"
        f"    first._front = ('env', 'PATH={hosts[0].home}/bin:/usr/bin:/bin')\n"
        f"    road.hold(first, 'image', {[digest(LAYERS[0])]!r}, MB, ROOM)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(HOME)}
    holding = subprocess.Popen([sys.executable, script, hosts[0].host.destination], cwd=HOME, env=environment)
    began = hosts[0].home / ".muster/road" / os.uname().nodename / "pieces"
    until(lambda: len([*began.glob(".*.held.coming/[0-9a-f]*")]) > 4, "pieces of a layer", 30)
    holding.send_signal(how)
    holding.wait(20)
    until(lambda: not working(hosts), "the end of all that reads", 10)
    until(lambda: not [*began.iterdir()], "nothing to be left", 10)


def test_a_host_without_one_of_the_layers_passes_on_none(hosts):
    saved(hosts[0], one=LAYERS[0])
    with pytest.raises(DeployError, match="does not give all layers"):
        pass_on(hosts, [digest(LAYERS[0]), digest(LAYERS[1])])


def test_without_room_nothing_is_kept(hosts, monkeypatch):
    saved(hosts[0], one=LAYERS[1])
    monkeypatch.setattr("tests.ssh.test_held.ROOM", 1 << 60)
    with pytest.raises(DeployError, match="bytes are not free"):
        pass_on(hosts, [digest(LAYERS[1])])
    assert pieces(hosts[0]) == []


def test_a_host_that_changes_what_it_passes_on_gives_nobody_a_wrong_byte(hosts):
    def change(giver):
        for path in pieces(giver):
            path.write_bytes(b"x" * path.stat().st_size)

    saved(hosts[0], one=LAYERS[1])
    results, _ = pass_on(hosts, [digest(LAYERS[1])], before=change)
    assert results.faults.keys() == {"b", "c"}


def test_hosts_report_that_the_only_source_of_a_layer_has_stopped(hosts, monkeypatch):
    monkeypatch.setattr(routes, "SILENT_S", 3.0)
    saved(hosts[0], one=LAYERS[1])
    results, _ = pass_on(hosts, [digest(LAYERS[1])], before=lambda giver: [path.unlink() for path in pieces(giver)])
    assert results.faults.keys() == {"b", "c"}
    assert all("push again" in fault.hint for fault in results.faults.values())


def test_a_starved_command_ends_before_its_data_is_sent_another_way(hosts, monkeypatch):
    """With containerd's store, one `docker load` blocks a layer for every other until it has finished reading."""
    monkeypatch.setattr(routes, "SILENT_S", 3.0)
    saved(hosts[0], one=LAYERS[1])
    with session.open_all([server.host for server in hosts[:2]]) as opened:
        giver, other = opened.all().values()
        giver._front = ("env", f"PATH={hosts[0].home}/bin:/usr/bin:/bin")
        with Road(2, lambda *_: None, lambda _: None) as road:
            parts = road.hold(giver, "image", [digest(LAYERS[1])], MB, ROOM)
            for path in pieces(hosts[0]):
                path.unlink()
            with pytest.raises(DeployError, match="only a has it"):
                road.deliver(other, ARGV, Cargo([of_bytes(b"from here"), *parts.values()]))
            until(lambda: ["sha256sum"] not in working(hosts[1:2]), "the end of the command", 10)


@pytest.mark.parametrize("step", [100_000, 4 * MB])
def test_pieces_of_any_size_are_put_together(hosts, step):
    saved(hosts[0], one=LAYERS[1])
    results, _ = pass_on(hosts, [digest(LAYERS[1])], step)
    assert {each.done.out.strip() for each in results.values.values()} == {hashlib.sha256(LAYERS[1]).hexdigest()}

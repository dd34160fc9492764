"""Deceptive data folders, and hosts that lie about data: Muster sends, believes and removes nothing else."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from deploy.core.errors import BadAnswer, DeployError
from deploy.door.session import Done
from deploy.host import commands, leftovers
from deploy.host.leftovers import InUse
from deploy.job.values import Data
from deploy.send.folder import folder_push
from deploy.send.folder.folder_look import FolderLook
from tests.unit.send.test_folder_push import ROAD, Here, tree

SECRET = "sesame-4711"


@pytest.fixture
def corpus(tmp_path):
    """A data folder, and next to it a folder with a secret."""
    (tmp_path / "outside/sub").mkdir(parents=True)
    (tmp_path / "outside/sub/file").write_text(SECRET)
    folder = tmp_path / "corpus"
    (folder / "sub").mkdir(parents=True)
    (folder / "sub/file").write_text("-" * len(SECRET))
    (folder / "plain").write_text("x" * 100)
    return folder


@pytest.fixture
def host(tmp_path):
    made = Here(tmp_path / "home")
    (made.home / "important").write_text("the only copy")
    return made


def look(folder, host):
    outgoing = folder_push.outgoing_folder(
        FolderLook(folder, cache=folder.parent / "cache", data=Data(folder, "/data"))
    )
    return outgoing, folder_push.look_at_folders(host, outgoing.names)


def all_bytes(place):
    return b"".join(path.read_bytes() for path in Path(place).rglob("*") if path.is_file() and not path.is_symlink())


@pytest.mark.holds("data-whole")
@pytest.mark.parametrize("name", ["leaves", "/etc", "../outside/sub/file", "../outside"])
def test_a_link_in_data_stays_a_link_and_its_target_is_not_sent(corpus, host, name):
    (corpus / "link").symlink_to(name)
    outgoing, there = look(corpus, host)
    folder_push.send_folder(host, outgoing, there, ROAD)
    (place,) = host.kept("data").values()
    assert os.readlink(place / "link") == name
    assert SECRET.encode() not in all_bytes(host.home / ".muster")


@pytest.mark.holds("data-whole")
@pytest.mark.parametrize("part", ["sub", "sub/file"])
def test_a_folder_that_becomes_a_link_after_the_look_is_not_followed(corpus, host, part):
    """The target of the link has a file with the same name and size."""
    outgoing, there = look(corpus, host)
    (corpus / part).rename(corpus.parent / "aside")
    (corpus / part).symlink_to(corpus.parent / "outside" / part)
    with pytest.raises(DeployError, match=r"sub/file"):
        folder_push.send_folder(host, outgoing, there, ROAD)
    assert SECRET.encode() not in all_bytes(host.home / ".muster")
    assert host.kept("data") == {}


def test_names_that_look_like_ways_out_or_options_are_names(corpus, host):
    for name in ("--checkpoint-action=exec=touch own", "-C", "..x", "...", "a\nwhole", "$(touch own)", "`id`", "gone"):
        (corpus / name).write_text(name)
    outgoing, there = look(corpus, host)
    folder_push.send_folder(host, outgoing, there, ROAD)
    (place,) = host.kept("data").values()
    assert tree(place) == tree(corpus)
    assert sorted(path.name for path in host.home.iterdir()) == [".muster", "bin", "important", "used"]
    (corpus / "gone").unlink()
    (corpus / "-C").unlink()
    outgoing, there = look(corpus, host)
    folder_push.send_folder(host, outgoing, there, ROAD)
    assert tree(host.kept("data")[outgoing.content.digest]) == tree(corpus)


@pytest.mark.parametrize(
    "answer",
    [
        "at /a\ndata ../b",
        "at /a\ndata /b\x1b]0;own\x07",
        "at /a\ndata /b,target=/etc\x00",
        f"at /a\ndata /{'b' * 5000}",
        "at /a\ndata /b\nfree 99999999999999999999",
        "at /a\ndata /b\nfree -1",
        "at /a\ndata /b\nhas data/{digest} ../../etc",
        "at /a\ndata /b\nhas data/{digest} ZZ",
    ],
)
def test_an_odd_answer_about_data_is_refused(corpus, host, answer):
    outgoing, _ = look(corpus, host)
    host.run = lambda *_, **__: Done(0, answer.replace("{digest}", outgoing.content.digest), "")
    with pytest.raises(BadAnswer):
        folder_push.look_at_folders(host, outgoing.names)


def test_a_host_that_claims_to_have_other_data_gets_all_of_it(corpus, host):
    outgoing, _ = look(corpus, host)
    digest, own = outgoing.content.digest, host.run
    for lie in (
        f"has data/{digest} {'0' * 64}",
        f"has {digest} {outgoing.content.listing}",
        f"has data/{'1' * 64} {'1' * 64}",
    ):
        host.run = lambda *_, lie=lie, **__: Done(0, f"at /a\ndata /b\n{lie}", "")
        there = folder_push.look_at_folders(host, outgoing.names)
        assert outgoing.plan(there).stream
    host.run = lambda *_, **__: Done(0, f"at /a\ndata /b\nhas data/{digest} {outgoing.content.listing}", "")
    there = folder_push.look_at_folders(host, outgoing.names)
    assert outgoing.plan(there).stream is None, "who lies about its own has nothing of anybody's"
    host.run = own
    with pytest.raises((DeployError, AssertionError)):
        folder_push.send_folder(host, outgoing, there, ROAD)  # nothing starts on data that the host does not have
    assert host.kept("data") == {}


@pytest.mark.holds("data-whole")
@pytest.mark.parametrize("place", ["", ".coming.{digest}", "{digest}"])
def test_links_in_place_of_data_lead_nowhere(corpus, host, place):
    """Somebody with this login, or an unpacked backup, left links there."""
    outgoing, _ = look(corpus, host)
    where = host.home / ".muster/data" / os.uname().nodename
    where.mkdir(parents=True, exist_ok=True)
    if place:
        (where / place.format(digest=outgoing.content.digest)).symlink_to(host.home)
    outgoing, there = look(corpus, host)
    folder_push.send_folder(host, outgoing, there, ROAD)
    assert (host.home / "important").read_text() == "the only copy"
    made = where / outgoing.content.digest
    assert not made.is_symlink()
    assert tree(made) == tree(corpus)


@pytest.mark.parametrize(
    "line",
    ["data a/../b 1 1", "data $(id) 1 1", "data", "data x y 1", "data x 1 -1", "data -rf 1 1", "data ../runs 1 1"],
)
def test_odd_lines_about_kept_data_are_refused(line):
    with pytest.raises(BadAnswer):
        leftovers.parse(f"now 5\nuser me\n{line}\n", InUse())


@pytest.mark.holds("data-whole")
@pytest.mark.parametrize("name", ["..", ".", "", "../runs", "x/..", "/", "-rf", "link", "coming.x/../..", "*"])
def test_clean_removes_no_data_by_a_name_that_leads_elsewhere(tmp_path, name):
    home = tmp_path / "home"
    where = home / ".muster/data" / os.uname().nodename
    for path in (where / "0123", home / ".muster/runs/mine"):
        path.mkdir(parents=True)
        (path / "file").write_text("kept")
    (where / "link").symlink_to(home / ".muster/runs")
    before = tree(home)
    done = subprocess.run(
        commands.script("clean-remove", "data", name), env={"HOME": str(home), "PATH": os.environ["PATH"]}
    )
    assert done.returncode or name == "*"
    assert tree(home) == before

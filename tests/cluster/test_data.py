"""Data is sent to hosts once: it is read-only in containers, kept across runs, and `clean` lists and removes it."""

from __future__ import annotations

import json
import random
import uuid

import pytest

from tests.cluster.control import BASE

MB = 1 << 20
READS = """
import hashlib, os, pathlib, sys, time
place = pathlib.Path(os.environ["MUSTER_DATA"])
assert str(place) == "/corpus"
print("sum", hashlib.sha256((place / "shard.bin").read_bytes()).hexdigest(), sorted(os.listdir(place)), flush=True)
try:
    (place / "more").write_text("x")
except OSError as fault:
    print("read-only", fault.strerror, flush=True)
print("link", os.readlink(place / "etc"), os.path.exists(place / "etc/muster-host-only"), flush=True)
while "--stay" in sys.argv and not os.path.exists("/muster/run/end"):
    time.sleep(0.1)
"""


@pytest.fixture
def corpus(tmp_path):
    folder = tmp_path / f"corpus-{uuid.uuid4().hex[:6]}"
    folder.mkdir()
    (folder / "shard.bin").write_bytes(random.randbytes(3 * MB))
    (folder / ".gitignore").write_text("*\n")
    (folder / "etc").symlink_to("/etc")
    return folder


@pytest.fixture
def project(tmp_path):
    folder = tmp_path / f"code-{uuid.uuid4().hex[:6]}"
    folder.mkdir()
    (folder / "train.py").write_text(READS)
    return folder


def rows(done, kind):
    assert done.returncode == 0, done.stderr
    every = (json.loads(line) for line in done.stdout.splitlines() if line.startswith("{"))
    return [row for row in every if row.get("kind") == kind]


def kept(control):
    return {
        (row["host"], row["name"]): row for row in rows(control.fab("clean", "--json"), "kept") if row["what"] == "data"
    }


def test_data_is_sent_once_and_every_rank_reads_it(control, project, corpus):
    words = ("--image", BASE, "--folder", str(project), "--data", f"{corpus}:/corpus")
    before = kept(control)
    planned = control.fab("deploy", "--run", control.run, *words, "--dry-run", "--script", "train.py")
    assert planned.returncode == 0, planned.stderr
    assert planned.stdout.count("send the data, 3.1 MB, to ") == 2, planned.stdout
    assert "at most 3.1 MB of /corpus" in planned.stdout
    assert kept(control) == before
    first = control.fab("deploy", "--run", control.run, *words, "--rank", "all", "--script", "train.py")
    assert first.returncode == 0, first.stderr
    assert "all 3 files of /corpus" in first.stderr
    assert first.stdout.count("sum ") == first.stdout.count("read-only Read-only file system") == 2
    assert first.stdout.count("['.gitignore', 'etc', 'shard.bin']") == 2
    assert first.stdout.count("link /etc False") == 2, "it leads to the container's own"
    record = json.loads((control.dir / "record.json").read_text())
    digest = record["data"]["/corpus"]
    new = {name for _, name in kept(control).keys() - before.keys()}
    assert new == {digest}
    assert control.fab("down", "--run", control.run, "--delete").returncode == 0
    assert kept(control).keys() - before.keys() == {(host, digest) for host in control.hosts}
    again = control.fab("push", *words, "--json")
    assert [row["bytes"] for row in rows(again, "pushed")] == [0, 0]
    (corpus / "more.bin").write_bytes(random.randbytes(MB))
    changed = rows(control.fab("push", *words, "--json"), "pushed")
    assert all(MB < row["bytes"] < 1.1 * MB for row in changed), changed
    assert {row["data"]["/corpus"] for row in changed} != {digest}
    after = kept(control)
    assert not any(name == digest for _, name in after), "what changed stands in its place"
    names = {name for _, name in after.keys() - before.keys()}
    done = control.fab("clean", *(word for name in names for word in ("--data", name)), "--yes")
    assert done.returncode == 0, done.stderr
    assert kept(control).keys() == before.keys()


@pytest.mark.holds("data-whole")
def test_data_of_a_run_stays_and_clean_removes_unused_data(control, project, corpus):
    words = ("--image", BASE, "--folder", str(project), "--data", f"{corpus}:/corpus")
    done = control.fab("deploy", "--run", control.run, *words, "--detach", "--script", "train.py --stay")
    assert done.returncode == 0, done.stderr
    digest = json.loads((control.dir / "record.json").read_text())["data"]["/corpus"]
    assert all(kept(control)[host, digest]["used"] for host in control.hosts)
    refused = control.fab("clean", "--data", digest, "--yes")
    assert refused.stderr.count(f"data {digest} stays: a container uses it") == 2
    (corpus / "shard.bin").write_bytes(random.randbytes(3 * MB))
    assert control.fab("push", *words).returncode == 0
    assert {(host, digest) for host in control.hosts} <= kept(control).keys(), "the run's own content stays beside it"
    for host in control.hosts:
        control.rack.on(host, f"touch ~/.muster/runs/{control.run}/end")
    assert control.fab("down", "--run", control.run).returncode == 0
    assert control.fab("clean", "--data", digest, "--yes").returncode == 0
    unknown = control.fab("clean", "--data", digest, "--yes")
    assert unknown.returncode == 2
    assert f"--data {digest}: no host has it" in unknown.stderr


def test_cluster_toml_can_list_data_with_its_digest(control, project, corpus):
    file = project / "cluster.toml"
    listed = "".join(f'[[hosts]]\nname = "{host}"\n' for host in control.hosts)
    file.write_text(f'{listed}[[data]]\nfolder = "{corpus}"\ntarget = "/corpus"\n')
    line = ("--cluster", str(file), "--image", BASE, "--folder", str(project), "--run", control.run)
    refused = control.fab("deploy", *line, "--script", "train.py")
    assert refused.returncode == 2
    assert f"data all of {corpus}, to /corpus on the hosts" in refused.stderr
    file.write_text(file.read_text() + f'digest = "{"0" * 64}"\n')
    other = control.fab("deploy", *line, "--allow-folder", "--script", "train.py")
    assert other.returncode == 2, other.stderr
    assert "the digest of this data is " in other.stderr
    digest = other.stderr.partition("the digest of this data is ")[2][:64]
    file.write_text(file.read_text().replace("0" * 64, digest))
    done = control.fab("deploy", *line, "--allow-folder", "--script", "train.py")
    assert done.returncode == 0, done.stderr
    assert "sum " in done.stdout
    control.fab("clean", "--data", digest, "--yes")

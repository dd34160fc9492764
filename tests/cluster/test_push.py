"""`muster push` on the rack: what goes over the wire, what is reported, what is refused before anything is sent."""

import json
import os
import random
import shutil
import subprocess

import pytest

from tests.cluster.control import BASE, Control

MB = 1_000_000


class Pusher(Control):
    """A user with a folder and two hosts, one with each image store."""

    def __init__(self, rack, folder):
        super().__init__(rack)
        self.hosts, self.folder = (rack.hosts[0], rack.hosts[-1]), folder
        self.tag = f"muster-{folder.name}:latest"

    def push(self, *words, hosts=None):
        return self.fab("push", "--image", BASE, "--folder", str(self.folder), *words, hosts=hosts)

    def change(self, size):
        """Write new code of random bytes, which no compression makes smaller."""
        (self.folder / "train.py").write_text("print('training')\n")
        (self.folder / "code.bin").write_bytes(random.randbytes(size))

    def received(self):
        """Bytes received so far, by host."""
        count = ("cat", "/sys/class/net/eth0/statistics/rx_bytes")
        return {host: int(self.rack.on(host, *count)) for host in self.hosts}

    def sees(self, row, *words):
        """What a command prints on `row`'s host, in a container with the folder of `row`, the report of a push."""
        mount = f"type=bind,source=$HOME/.muster/folders/$(uname -n)/{row['folder']},target=/workspace,readonly"
        entry, *rest = words
        options = f'--mount "{mount}" --workdir /workspace --entrypoint {entry}'
        return self.rack.on(row["host"], f"docker run --rm --network none {options} {self.tag} {' '.join(rest)}")

    def layers(self):
        """The layers of the image, by host; none for a host without the image."""
        look = f"docker image inspect --format '{{{{json .RootFS.Layers}}}}' {self.tag} 2>/dev/null || echo '[]'"
        return {host: json.loads(self.rack.on(host, look).splitlines()[-1]) for host in self.hosts}


@pytest.fixture
def pusher(rack, tmp_path):
    folder = tmp_path / f"push-{os.getpid()}-{random.randrange(10**6)}"
    folder.mkdir()
    made = Pusher(rack, folder)
    made.change(10_000)
    yield made
    for host in made.hosts:
        rack.on(host, f"docker image rm --force {made.tag} >/dev/null 2>&1; true")


def messages(done):
    """The objects that --json prints, one per line, by host."""
    assert done.returncode == 0, done.stderr
    rows = map(json.loads, done.stdout.splitlines())
    return {row["host"]: row for row in rows if row["kind"] in ("pushed", "would push")}


def test_the_hosts_have_either_image_store(pusher):
    assert {pusher.rack.store(host) for host in pusher.hosts} == {"classic", "containerd"}


def test_a_second_push_sends_nothing_and_says_so(pusher):
    first = pusher.push()
    assert first.returncode == 0, first.stderr
    layers = pusher.layers()
    assert len({tuple(of_host) for of_host in layers.values()}) == 1
    assert all(layers.values())
    before = pusher.received()
    second = pusher.push()
    assert second.returncode == 0, second.stderr
    for host, count in pusher.received().items():
        assert f"{host}: nothing sent (the host has it)" in second.stderr
        assert count - before[host] < 60_000
    assert pusher.layers() == layers
    assert {host: line["bytes"] for host, line in messages(pusher.push("--json")).items()} == dict.fromkeys(
        pusher.hosts, 0
    )


def test_a_megabyte_of_new_code_is_a_megabyte_on_the_wire(pusher):
    messages(pusher.push("--json"))
    pusher.change(MB)
    before = pusher.received()
    sent = messages(pusher.push("--json"))
    for host, count in pusher.received().items():
        assert MB < sent[host]["bytes"] < 1.05 * MB
        assert count - before[host] < 1.3 * MB
    first, second = pusher.layers().values()
    assert first == second
    assert [pusher.sees(row, "wc", "-c", "code.bin").split()[0] for row in sent.values()] == [str(MB)] * 2


def test_a_dry_run_says_what_would_be_sent_and_sends_nothing(pusher):
    messages(pusher.push("--json"))
    before = pusher.layers(), kept(pusher)
    pusher.change(MB)
    done = pusher.push("--dry-run", "--json")
    assert {len(row["layers"]) for row in messages(done).values()} == {0}
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(row["host"], row["lacking"]) for row in rows if row["kind"] == "would send"] == [
        (host, "all 2 files of your folder") for host in pusher.hosts
    ]
    assert (pusher.layers(), kept(pusher)) == before


def test_every_unreachable_host_is_named_before_anything_is_sent(pusher):
    done = pusher.push(hosts=[*pusher.hosts, "no-such-host.invalid", "127.0.0.1:1"])
    assert done.returncode == 1
    assert "2 of 4 hosts failed" in done.stderr
    assert "no-such-host.invalid" in done.stderr
    assert "127.0.0.1" in done.stderr
    assert not any(pusher.layers().values())


def test_if_one_engine_does_not_answer_nothing_is_sent_to_any_host(pusher):
    good, bad = pusher.hosts
    pusher.rack.root(
        bad, "sh", "-c", "printf '#!/bin/sh\\nexec /usr/bin/docker -H unix:///no \"$@\"' >/usr/local/bin/docker"
    )
    pusher.rack.root(bad, "chmod", "755", "/usr/local/bin/docker")
    try:
        done = pusher.push()
    finally:
        pusher.rack.root(bad, "rm", "/usr/local/bin/docker")
    assert done.returncode == 1
    assert bad in done.stderr
    assert "systemctl start docker" in done.stderr
    assert not pusher.layers()[good]


def test_odd_file_names_arrive_as_they_are(pusher):
    names = ["space and ünïcode.py", "-dash.py", "new\nline.py", "a" * 200]
    for name in names:
        (pusher.folder / name).write_text("odd\n")
    for row in messages(pusher.push("--json")).values():
        present = pusher.sees(row, "python", "-c", "'import os; print(ascii(os.listdir()))'")
        assert [name for name in names if ascii(name) not in present] == []


def test_a_dockerfile_is_built_here_and_only_what_it_adds_is_sent(pusher, tmp_path):
    assert pusher.push().returncode == 0  # the hosts then have the base
    context = tmp_path / f"built-{os.getpid()}"
    context.mkdir()
    (context / "Dockerfile").write_text(f"FROM {BASE}\nCOPY added.bin /added.bin\n")
    (context / "added.bin").write_bytes(random.randbytes(MB))
    built = f"muster-{context.name}-base:latest"
    options = ("--dockerfile", str(context / "Dockerfile"), "--folder", str(pusher.folder))
    try:
        unbuilt = pusher.fab("push", *options, "--dry-run")
        assert unbuilt.returncode == 1
        assert "docker build" in unbuilt.stderr
        before = pusher.received()
        done = pusher.fab("push", *options)
        assert done.returncode == 0, done.stderr
        assert all(count - before[host] < 1.5 * MB for host, count in pusher.received().items())
        for host in pusher.hosts:
            size = pusher.rack.on(host, f"docker run --rm --entrypoint stat {pusher.tag} -c %s /added.bin")
            assert int(size.splitlines()[-1]) == MB
    finally:
        subprocess.run(["docker", "image", "rm", "--force", built], capture_output=True, check=False)


WAITS = """
import os, pathlib, sys, time
import torch.distributed
torch.distributed.init_process_group("gloo")
pathlib.Path("written.txt").write_text("by the script")
print("VERSION 1 has", len(os.listdir("data")), "files of", os.environ["MUSTER_SENT_DIGEST"], flush=True)
while not pathlib.Path("/muster/run/end").exists():
    time.sleep(0.1)
"""


def kept(pusher):
    """For each host, the digests of its folders, and whether a container uses each."""
    rows = [json.loads(line) for line in pusher.fab("clean", "--json").stdout.splitlines()]
    folders = [row for row in rows if row["what"] == "folders"]
    return [{row["name"]: row["used"] for row in folders if row["host"] == host} for host in pusher.hosts]


def test_a_run_keeps_its_folder_while_the_next_one_is_pushed(pusher):
    (pusher.folder / "data").mkdir()
    for number in range(40):
        (pusher.folder / f"data/{number}.bin").write_bytes(random.randbytes(25_000))
    (pusher.folder / "train.py").write_text(WAITS)
    words = ("--folder", str(pusher.folder), "--script", "train.py", "--detach")
    pusher.fab("clean", "--folders", "--yes")
    try:
        started = pusher.deploy(*words)
        assert started.returncode == 0, started.stderr
        (first,) = {name for names in kept(pusher) for name in names}
        record = json.loads((pusher.dir / "record.json").read_text())
        assert record["folder"] == first
        (pusher.folder / "train.py").write_text(WAITS.replace("VERSION 1", "VERSION 2"))
        (pusher.folder / "data/0.bin").unlink()
        sent = messages(pusher.push("--json"))
        assert all(line["bytes"] < 10_000 for line in sent.values())
        (second,) = {line["folder"] for line in sent.values()}
        assert kept(pusher) == [{first: True, second: False}] * 2
        # When its engine restarts a node, the node finds the folder of its own run.
        node = f"muster-{pusher.run}"
        look = f"docker restart {node} >/dev/null; docker exec {node} grep -c VERSION.1 /workspace/train.py"
        assert [pusher.rack.on(host, look).strip() for host in pusher.hosts] == ["1", "1"]
        assert pusher.fab("clean", "--folders", "--yes").returncode == 0
        assert kept(pusher) == [{first: True}] * 2
    finally:
        pusher.clean()
        pusher.fab("clean", "--folders", "--yes")
    assert kept(pusher) == [{}] * 2


def test_two_folders_with_equal_content_are_one_folder_on_a_host_and_sent_once(pusher, tmp_path):
    twin = tmp_path / "twin"
    shutil.copytree(pusher.folder, twin)
    first = messages(pusher.push("--json"))
    second = messages(pusher.fab("push", "--image", BASE, "--folder", str(twin), "--json"))
    assert {row["folder"] for row in (*first.values(), *second.values())} == {first[pusher.hosts[0]]["folder"]}
    again = messages(pusher.fab("push", "--image", BASE, "--folder", str(twin), "--json"))
    assert {row["bytes"] for row in again.values()} == {0}
    for host in pusher.hosts:
        pusher.rack.on(host, "docker image rm --force muster-twin:latest >/dev/null 2>&1; true")


@pytest.mark.holds("image-is-one")
def test_no_host_decides_the_variables_of_the_image_that_the_others_run(pusher):
    name, hosts = f"{pusher.tag.partition(':')[0]}-base", pusher.rack.hosts[:2]
    messages(pusher.push("--json", hosts=hosts))

    def build(host, tag, *variables):
        lines = "\\n".join((f"FROM {pusher.tag}", *(f"ENV {variable}" for variable in variables)))
        pusher.rack.on(host, f"printf '{lines}' | DOCKER_BUILDKIT=0 docker build --quiet --tag {name}:{tag} -")

    for host in hosts:
        build(host, "same", "ANSWER=42")
        build(host, "odd", "ANSWER=42", *(["LD_PRELOAD=/x"] if host == hosts[0] else []))
    try:
        same, odd = (
            pusher.fab("push", "--image", f"{name}:{tag}", "--folder", str(pusher.folder), hosts=hosts)
            for tag in ("same", "odd")
        )
        assert same.returncode == 0, same.stderr
        assert odd.returncode == 1
        assert f"{hosts[1]} has a different {name}:odd from {hosts[0]}" in odd.stderr
    finally:
        for host in hosts:
            pusher.rack.on(host, f"docker image rm --force {name}:same {name}:odd >/dev/null 2>&1; true")

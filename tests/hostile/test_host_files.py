"""What a container made of its run folder, and what Muster does on a host with that folder.

The scripts are exactly those that Muster sends. `sh` runs them in a private home, with a fake engine that answers as a
test wants.
"""

import base64
import json
import os
import re
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from deploy.core.scripts import Scripts
from deploy.door.framing import shell_line
from deploy.host import commands, leftovers
from deploy.run.files import host_copies
from tests.started import started

RUN = "r1"
SCRIPTS = Scripts(commands.__file__)
# A fake `docker` for these scripts: one container of this user, in the state that the file `state` has.
DOCKER = """#!/bin/sh
here=$(dirname "$0")
echo "$*" >>"$here/said"
case "$*" in
*--quiet*) [ ! -e "$here/ids" ] || cat "$here/ids" ;;
*'{{.State.Running}}'*) [ "$(cat "$here/state")" = exited ] && echo false || echo true ;;
*StartedAt*) printf '{"State":{"Status":"%s","ExitCode":0,"StartedAt":"2026"}}\\n' "$(cat "$here/state")" ;;
*'{{.Id}}'*) cat "$here/folders" ;;
ps*) [ ! -e "$here/listed" ] || cat "$here/listed" ;;
esac
"""
EVENT = {"t": 1.0, "kind": "step", "step": 7, "rank": 0}


class Host:
    """A home with files to lose, and a run in it."""

    def __init__(self, folder: Path, without: str = "") -> None:
        self.home, self.tools = folder / "home of me", folder / "tools"
        self.run = self.home / ".muster/runs" / RUN
        self.tools.mkdir()
        for name in ("nodes", "outcome", "ranks", "logs", "telemetry", "scalars"):
            (self.run / name).mkdir(parents=True)
        self.own = {"important": "the only copy", "project/data.json": "mine", ".ssh/rank-0.log": "PRIVATE KEY"}
        for name, text in self.own.items():
            (self.home / name).parent.mkdir(exist_ok=True)
            (self.home / name).write_text(text)
        self.set("docker", DOCKER)
        self.set("state", "exited")
        if without:
            self.set(without, "#!/bin/sh\nexit 1\n")

    def set(self, name: str, text: str) -> None:
        """Write a tool, or a file that decides what a tool prints."""
        (self.tools / name).write_text(text)
        (self.tools / name).chmod(0o755)

    def sh(self, argv, shell="sh", timeout=20, input=b"", **more):
        """Run the command on the host; `shell` replaces sh."""
        line = [shell if word == "sh" else word for word in argv]
        paths = {"HOME": str(self.home), "PATH": f"{self.tools}:{os.environ['PATH']}"}
        return subprocess.run(line, env=paths, cwd=self.home, capture_output=True, timeout=timeout, input=input, **more)

    def untouched(self):
        return all((self.home / name).read_text() == text for name, text in self.own.items())


@pytest.fixture
def host(tmp_path):
    return Host(tmp_path)


@pytest.fixture(params=["dd", "busybox"])
def any_host(request, tmp_path):
    """A host whose dd can open a file without following links, and a host whose dd cannot."""
    return Host(tmp_path, without="dd" if request.param == "busybox" else "")


def follow(host, **more):
    """Everything a follower receives about a run that has ended, as a list of words for each file."""
    argv = commands.follow("c", str(host.run), "MARK", "", 0.1)
    output = host.sh(argv, **more).stdout.decode()
    rows = [line.split(" ") for line in output.splitlines() if line.startswith("MARK ")]
    assert rows[-1][1] == "state", output
    return [row[1:] for row in rows if row[1] in ("doc", "add", "big")]


def document(host, **more):
    """The contents of all files that the follower received, joined."""
    return b"".join(base64.b64decode(row[-2]) for row in follow(host, **more) if row[0] != "big")


LINKS = {
    "the folder is a link": lambda run, part: ((run / part).rmdir(), (run / part).symlink_to("../../../project")),
    "a file is a link": lambda run, part: (run / part / "data.json").symlink_to("../../../../project/data.json"),
    "all is a link": lambda run, part: (run / part / "data.json").symlink_to(run.parents[2] / "project/data.json"),
}


@pytest.mark.holds("no-links-followed")
@pytest.mark.parametrize("part", ["nodes", "outcome"])
@pytest.mark.parametrize("link", LINKS.values(), ids=LINKS)
def test_a_start_clears_the_run_but_nothing_behind_a_link(host, link, part):
    link(host.run, part)
    (host.run / "logs/kept.json").write_text("{}")
    (host.run / "nodes/a b\n-c.json").write_text("{}") if part != "nodes" else None
    assert host.sh(commands.script("clear", RUN)).returncode == 0
    assert host.untouched()
    assert (host.run / part).is_dir()
    assert not (host.run / part).is_symlink()
    assert not list(host.run.glob("nodes/*.json"))
    assert not list(host.run.glob("outcome/*.json"))
    assert (host.run / "logs/kept.json").exists()


@pytest.mark.holds("no-links-followed")
@pytest.mark.parametrize("shell", ["sh", "bash"])
@pytest.mark.parametrize("link", LINKS.values(), ids=LINKS)
def test_a_follower_receives_nothing_from_behind_a_link(any_host, link, shell):
    (any_host.run / "nodes/a.json").write_text('{"node": "a"}')
    link(any_host.run, "outcome")
    assert document(any_host, shell=shell) == b'{"node": "a"}'


@pytest.mark.holds("no-links-followed")
@pytest.mark.parametrize("shell", ["sh", "bash"])
@pytest.mark.parametrize("path", ["link.json", "ranks/link", "nodes/a", "ranks/fifo", "../../../important", "ranks/.."])
def test_a_file_that_became_a_link_or_a_fifo_after_listing_is_not_read(any_host, path, shell):
    run = any_host.run
    (run / "link.json").symlink_to(any_host.home / "important")
    (run / "ranks/link").symlink_to("../../../../important")
    (any_host.home / "project/a").write_text("mine")
    (run / "nodes").rmdir()
    (run / "nodes").symlink_to("../../../project")
    os.mkfifo(run / "ranks/fifo")
    (run / "ranks/plain").write_text("plain")
    read = SCRIPTS.text("reading") + f'\nread_at {RUN} "$1" 1 1000'
    assert any_host.sh(("sh", "-c", read, "read", "ranks/plain"), shell).stdout == b"lain"
    assert any_host.sh(("sh", "-c", read, "read", path), shell).stdout == b""


@pytest.mark.holds("nothing-hangs")
def test_fifos_folders_and_names_with_line_ends_block_nothing(any_host):
    run = any_host.run
    (run.parent / "zzz").touch()
    for path in (
        "nodes/f.json",
        "config.json",
        "ranks/rank-1.jsonl",
        "metrics.jsonl",
        "outcome/f.json",
        "telemetry/f.jsonl",
        "scalars/f.jsonl",
    ):
        os.mkfifo(run / path)
    (run / "outcome/folder.json").mkdir()
    (run / "outcome/a\ntouch pwned\n.json").write_text("{}")
    (run / "outcome/$(touch pwned).json").write_text("{}")
    (run / "outcome/-rf.json").write_text("{}")
    (run / "ranks/rank-0.jsonl").write_text(json.dumps(EVENT) + "\n")
    assert json.loads(document(any_host)) == EVENT
    for argv in (commands.script("runs"), commands.script("rank-logs")):
        assert any_host.sh(argv).returncode == 0
    output = any_host.sh(commands.last_words(str(run))).stdout
    assert json.loads(output) == EVENT
    assert any_host.sh(commands.document(RUN, "config.json")).stdout == b""
    assert not list(any_host.home.rglob("pwned"))


@pytest.mark.holds("nothing-hangs")
def test_a_huge_document_is_reported_and_never_held_in_memory(host):
    with (host.run / "outcome/a.json").open("w") as huge:
        huge.truncate(1 << 40)
    with (host.run / "config.json").open("w") as huge:
        huge.truncate(1 << 40)
    assert [row[:2] for row in follow(host)] == [["big", "config.json"], ["big", "outcome/a.json"]]
    assert len(host.sh(commands.last_words(str(host.run))).stdout) <= commands.PIECE + 1
    assert len(host.sh(commands.document(RUN, "config.json")).stdout) == commands.PIECE


@pytest.mark.holds("nothing-hangs")
def test_a_hung_engine_is_reported_and_the_files_are_still_read(host):
    host.set("docker", '#!/bin/sh\n[ "$1" = logs ] || exec sleep 60\n')
    host.set("timeout", f'#!/bin/sh\ncase $1 in [28]) shift ;; esac\nexec {shutil.which("timeout")} 0.2 "$@"\n')
    argv = commands.follow("c", str(host.run), "MARK", "", 0.1)
    paths = {"HOME": str(host.home), "PATH": f"{host.tools}:{os.environ['PATH']}"}
    ends = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with started(argv, 20.0, env=paths, **ends, text=True) as told:
        lines = iter(told.stdout.readline, "")
        assert "MARK state away\n" in lines
        (host.run / "ranks/rank-0.jsonl").write_text("{}\n")
        assert next(line for line in lines if " ranks/rank-0.jsonl " in line)
        told.terminate()


def test_growing_files_are_sent_completely_in_pieces_also_from_an_offset(any_host):
    data = os.urandom(commands.PIECE * 3 + 5)
    (any_host.run / "ranks/rank-0.jsonl").write_bytes(data)
    (any_host.run / "outcome/a.json").write_text("{}")
    rows = follow(any_host)
    pieces = [row for row in rows if row[0] == "add"]
    assert [int(row[2]) for row in pieces] == [commands.PIECE * n for n in range(4)]
    assert b"".join(base64.b64decode(row[3]) for row in pieces) == data
    assert rows[-1][:2] == ["doc", "outcome/a.json"], "the verdict comes last"
    here = commands.file_lines({"ranks/rank-0.jsonl": f"{len(data) - 3} {host_copies.time_in(data)}"})
    argv = commands.follow("c", str(any_host.run), "MARK", "", 0.1)
    output = re.findall(
        r"^MARK add ranks/rank-0.jsonl \d+ (\S+) \.$", any_host.sh(argv, input=here).stdout.decode(), re.M
    )
    assert [base64.b64decode(text) for text in output] == [data[-3:]]


def test_a_follower_with_files_of_hundreds_of_hosts_continues_where_it_was(host):
    """The kernel takes 128 KiB in one argument; with 256 hosts of 8 ranks, no run could be followed again."""
    data = b'{"t": 1795238100.123, "kind": "began"}\n'
    (host.run / "ranks/rank-7.jsonl").write_bytes(data)
    here = {f"ranks/rank-{rank}.jsonl": f"123456789 {host_copies.time_in(data)}" for rank in range(4096)}
    here["ranks/rank-7.jsonl"] = f"{len(data) - 3} {host_copies.time_in(data)}"
    line = shell_line("BEGINS", commands.follow("c", str(host.run), "MARK", "", 0.1))
    told = host.sh(["sh", "-c", line], input=commands.file_lines(here)).stdout.decode()
    assert re.findall(r"^MARK add (\S+) (\d+) (\S+) \.$", told, re.M) == [
        ("ranks/rank-7.jsonl", str(len(data) - 3), base64.b64encode(data[-3:]).decode())
    ]


def test_hundreds_of_files_are_sent_in_seconds_and_the_verdict_last(host):
    """Hosts that share a home, and a Slurm login node: dash took 8 s of CPU for 300 files, and a minute for 600."""
    for rank in range(400):
        (host.run / f"ranks/rank-{rank}.jsonl").write_text(f'{{"t": {rank}.5}}\n')
        (host.run / f"nodes/n{rank}.json").write_text("{}")
    (host.run / "outcome/n0-0.json").write_text("{}")
    argv = commands.follow("c", str(host.run), "MARK", "", 0.1)
    here = {f"ranks/rank-{rank}.jsonl": f"{len(text) - 1} {host_copies.time_in(text)}" for rank in range(400)
            if (text := f'{{"t": {rank}.5}}\n'.encode())}  # fmt: skip
    told = host.sh(argv, timeout=60, input=commands.file_lines(here)).stdout.decode()
    rows = [line.split()[1:] for line in told.splitlines() if re.match("MARK (add|doc) ", line)]
    assert rows[-1][:2] == ["doc", "outcome/n0-0.json"]
    assert sum(row[0] == "doc" for row in rows) == 401
    assert [row[3] for row in rows if row[0] == "add"] == [base64.b64encode(b"\n").decode()] * 400


def test_a_file_is_sent_from_its_beginning_if_the_known_one_is_another_hosts(any_host):
    own = b'{"t": 1795238100.123, "kind": "began"}\n'
    (any_host.run / "ranks/rank-0.jsonl").write_bytes(own)
    anothers = host_copies.time_in(b'{"t": 1795230000.456, "kind": "began"}\n')
    here = commands.file_lines(dict.fromkeys(("ranks/rank-0.jsonl", "ranks/rank-9.jsonl"), f"48000 {anothers}"))
    argv = commands.follow("c", str(any_host.run), "MARK", "", 0.1)
    rows = [line.split(" ") for line in any_host.sh(argv, input=here).stdout.decode().splitlines() if " add " in line]
    assert [(row[2], row[3], base64.b64decode(row[4])) for row in rows] == [("ranks/rank-0.jsonl", "0", own)]


@pytest.mark.parametrize("folder", ["telemetry", "scalars"])
def test_telemetry_and_scalars_are_sent_as_they_grow(any_host, folder):
    (any_host.run / folder / "a.jsonl").write_text('{"t": 1.0, "node": "a"}\n')
    (any_host.run / folder / ".hidden.jsonl").write_text("x")
    (any_host.run / folder / "a.txt").write_text("x")
    assert [row[:3] for row in follow(any_host)] == [["add", f"{folder}/a.jsonl", "0"]]


@pytest.mark.holds("no-links-followed")
@pytest.mark.parametrize("link", ["logs", "logs/rank-0.log"])
def test_a_ranks_log_is_no_way_to_read_the_users_files(any_host, link):
    (any_host.run / "logs").rmdir() if link == "logs" else None
    (any_host.run / link).symlink_to(any_host.home / ".ssh" / ("" if link == "logs" else "rank-0.log"))
    done = any_host.sh(commands.rank_log(RUN, 0, "", "MARK"))
    assert done.returncode == 1
    assert b"PRIVATE" not in done.stdout + done.stderr
    assert b"rank-0.log" not in any_host.sh(commands.script("rank-logs")).stdout


def test_a_rank_that_has_printed_nothing_has_no_log_and_that_is_no_fault(any_host):
    done = any_host.sh(commands.rank_log(RUN, 3, "", "MARK"))
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_a_ranks_log_is_read_whole_and_while_it_grows(any_host):
    any_host.set("state", "running")
    log = any_host.run / "logs/rank-0.log"
    log.write_text("first\n")
    argv = commands.rank_log(RUN, 0, "c", "MARK")
    paths = {"HOME": str(any_host.home), "PATH": f"{any_host.tools}:{os.environ['PATH']}"}
    with started(argv, env=paths, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as reader:
        assert reader.stdout.readline() == b"first\n"
        with log.open("a") as more:
            more.write("second\n")
        any_host.set("state", "exited")
        assert reader.stdout.read() == b"second\n"
        assert reader.wait() == 0


@pytest.mark.holds("no-links-followed")
def test_status_and_runs_print_nothing_from_behind_a_link(any_host):
    mounted = any_host.run
    (any_host.home / "project/rank-0.jsonl").write_text('{"kind": "step", "mine": 1}\n')
    (mounted / "ranks").rmdir()
    (mounted / "ranks").symlink_to(any_host.home / "project")
    (mounted / "outcome/a.json").symlink_to(any_host.home / "project/data.json")
    output = any_host.sh(commands.status([RUN])).stdout + any_host.sh(commands.script("runs")).stdout
    assert b"time " in output
    assert b"mine" not in output


def test_status_prints_steps_and_verdicts_from_plain_files(any_host):
    (any_host.run / "ranks/rank-0.jsonl").write_text(json.dumps(EVENT) + "\n")
    (any_host.run / "outcome/a.json").write_text('{"verdict":\n "done"}')
    output = any_host.sh(commands.status([RUN])).stdout.decode().splitlines()
    assert f"event {RUN} {json.dumps(EVENT)}" in output
    assert f'verdict {RUN} {{"verdict":  "done"}}' in output


@pytest.mark.holds("quoted")
@pytest.mark.parametrize("run", ["r2", "../../important", "x ../../important", "*", "-rf", "$(touch pwned)"])
def test_an_odd_run_name_stays_one_word_and_only_that_runs_start_is_cancelled(host, run):
    marks = [host.run.parent / f"{name}=t-0.starting" for name in ("r2", "r2.1")]
    for mark in marks:
        mark.touch()
    host.sh(commands.script("forget", run, run))
    assert host.untouched()
    assert [mark.exists() for mark in marks] == [run != "r2", True]
    assert not list(host.home.rglob("pwned"))


@pytest.mark.holds("quoted")
@pytest.mark.parametrize("run", ["x/e; touch pwned #", "a b", "../../project", "-n", "r1\nnode r2", "a&b", ""])
def test_status_reads_nothing_for_a_run_with_an_odd_name(host, run):
    (host.home / "project/ranks").mkdir(exist_ok=True)
    (host.home / "project/ranks/rank-0.jsonl").write_text('{"kind": "step", "mine": 1}\n')
    assert b"mine" not in host.sh(commands.status([run])).stdout
    assert not list(host.home.rglob("pwned"))


def start(host, look, folder=None, new=True, label="t-0", keep=()):
    words = commands.start(str(folder or host.run), "", ("sh", "-c", look), label, new, keep)
    return host.sh(words, input=commands.base64_line(b"A=1\n") + b"\n")


@pytest.mark.holds("own-start-only")
def test_a_start_refuses_an_existing_folder_and_leaves_it(host):
    (host.run / "checkpoints").mkdir()
    done = start(host, "exit 0")
    assert done.returncode == 1
    assert b"exists already" in done.stderr
    assert (host.run / "checkpoints").is_dir()
    assert not list(host.run.parent.glob("*.starting"))


@pytest.mark.holds("own-start-only")
def test_a_failed_start_removes_only_its_own_folder_and_containers(host):
    new = host.run.parent / "r2"
    host.set("ids", "0123456789ab\n")
    assert start(host, "exit 7", new).returncode == 7
    assert not new.exists()
    output = (host.tools / "said").read_text().splitlines()
    assert output == [
        "ps --all --quiet --no-trunc --filter label=muster.start=t-0",
        "rm --force --volumes 0123456789ab",
    ]
    # In a folder that existed before, the same start fails and the folder stays.
    assert start(host, "exit 7", new=False).returncode == 7
    assert host.run.is_dir()


def test_a_start_creates_the_folders_for_kept_paths(host):
    new = host.run.parent / "r2"
    paths = ("/data/out", "/odd $(touch pwned)/*", "/-rf")
    assert start(host, "exit 0", new, keep=paths).returncode == 0
    assert all((new / f"keep{path}").is_dir() for path in paths)
    assert not list(host.home.rglob("pwned"))
    assert start(host, "exit 0", new, new=False, keep=paths).returncode == 0


@pytest.mark.holds("no-links-followed")
@pytest.mark.parametrize("link", ["keep", "keep/data", "keep/data/out"])
def test_a_kept_path_that_an_earlier_start_made_a_link_is_refused(host, link):
    (host.run / link).parent.mkdir(parents=True, exist_ok=True)
    (host.run / link).symlink_to(host.home / "project")
    done = start(host, f"touch {host.home}/ran; echo id", new=False, keep=("/data/out",))
    assert done.returncode == 1
    assert b"is not a folder" in done.stderr
    assert not (host.home / "ran").exists()
    assert sorted(path.name for path in (host.home / "project").iterdir()) == ["data.json"]


@pytest.mark.holds("own-start-only")
def test_an_undo_finds_its_start_by_label_and_leaves_folders_it_did_not_create(host):
    output = host.tools / "said"
    assert host.sh(commands.script("undo", "t-0", str(host.run), "fresh")).returncode == 0
    assert host.run.is_dir(), "no container of that start: the folder is somebody else's"
    assert output.read_text() == "ps --all --quiet --no-trunc --filter label=muster.start=t-0\n"
    host.set("ids", "0123456789ab\n")
    (host.run / "nodes/link").symlink_to(host.home / "project")
    assert host.sh(commands.script("undo", "t-0", str(host.run), "fresh")).returncode == 0
    assert not host.run.exists()
    assert host.untouched()


def test_thousands_of_files_from_a_container_do_not_slow_the_follower(host):
    for number in range(3000):
        (host.run / f"outcome/x{number}.json").write_text("")
    (host.run / "nodes/a.json").write_text('{"node": "a"}')
    began = time.monotonic()
    assert document(host) == b'{"node": "a"}'
    assert time.monotonic() - began < 15


def delete(host, run=RUN):
    done = host.sh(commands.script("delete", run))
    return done.stdout.decode().split()


@pytest.mark.holds("deletes-own-run")
def test_deleting_a_run_removes_all_it_wrote_but_nothing_behind_a_link(any_host):
    run = any_host.run
    (run / "work/outputs").mkdir(parents=True)
    (run / "work/outputs/a\nb -rf $(touch pwned)").write_bytes(b"x" * 5000)
    (run / "work/out").symlink_to("../../../../project")
    (run / "home").symlink_to(any_host.home)
    os.mkfifo(run / "work/fifo")
    neighbour = run.with_name("r2")
    neighbour.mkdir()
    (neighbour / "mine").write_text("mine")
    word, files, kilobytes = delete(any_host)
    assert (word, files) == ("deleted", "1")
    assert int(kilobytes) >= 4
    assert not run.exists()
    assert any_host.untouched()
    assert (neighbour / "mine").exists()
    assert delete(any_host) == ["deleted", "0", "0"]


@pytest.mark.holds("deletes-own-run")
@pytest.mark.parametrize("name", ["..", ".", "", "r1/nodes", "../../project", "*"])
def test_only_a_name_of_a_run_is_deleted(host, name):
    assert delete(host, name) == ["deleted", "0", "0"]
    assert host.untouched()
    assert (host.run / "nodes").is_dir()


@pytest.mark.holds("deletes-own-run")
def test_a_run_folder_that_is_a_link_is_not_followed_by_a_delete(host):
    (host.home / "elsewhere").mkdir()
    (host.home / "elsewhere/file").write_text("mine")
    (host.run.with_name("r3")).symlink_to(host.home / "elsewhere")
    assert delete(host, "r3") == ["deleted", "0", "0"]
    assert (host.home / "elsewhere/file").exists()


def test_error_output_of_the_docker_client_is_no_part_of_the_state(host):
    noisy = DOCKER.replace("here=", 'echo "ERROR: ld.so: object gone.so cannot be preloaded" >&2; here=', 1)
    host.set("docker", noisy.replace("""'{"State":""", """'{"Id":"0","State":"""))
    argv = commands.follow("c", str(host.run), "MARK", "", 0.1)
    (state,) = re.findall(rb"^MARK state (.*)$", host.sh(argv).stdout, re.M)
    assert json.loads(state)["State"]["Status"] == "exited"


def test_a_full_disk_is_reported_although_nothing_can_be_written_there(host):
    if os.getuid() != 0:
        pytest.skip("mounting a small disk needs root")
    argv = commands.follow("c", str(host.run), "MARK", "", 0.1)
    grows = 'echo {} >>"$HOME/.muster/runs/r1/ranks/rank-0.jsonl"; [ -e "$0-2" ] && echo exited >"${0%sleep}state"'
    host.set(
        "sleep", f'#!/bin/sh\n{grows}; [ -e "$0-1" ] && touch "$0-2"; touch "$0-1"\n'
    )  # the third round is the last
    host.set("state", "running")
    assert re.findall(rb"^MARK disk (.*)$", host.sh(argv).stdout, re.M) == [b"room"]
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", host.run], check=True)
    try:
        assert re.findall(rb"^MARK disk (.*)$", host.sh(argv).stdout, re.M) == [b"full"]
    finally:
        subprocess.run(["umount", "--lazy", host.run], check=True)


def test_a_run_that_has_just_written_is_not_old_even_if_its_folder_is(host):
    """A run of many weeks has old folders; `muster clean --runs all --older 30d` must not take it for an old run."""
    began = time.time() - 40 * 86400
    (host.run / "ranks/rank-0.jsonl").write_text("{}")
    for path in (host.run, *(path for path in host.run.iterdir() if path.is_dir())):
        os.utime(path, (began, began))
    (kept,) = leftovers.parse(host.sh(SCRIPTS("clean-list")).stdout.decode(), leftovers.InUse())
    assert kept.age_s < 3600


@pytest.mark.parametrize("name", ["lost+found", "my folder", "with\nline"])
def test_a_foreign_folder_among_pushed_ones_does_not_stop_clean(host, name):
    """Example: a disk was mounted in place of that folder."""
    there = host.home / ".muster/folders" / os.uname().nodename
    for each in ("0123456789", ".coming.0123456789", name):
        (there / each).mkdir(parents=True)
    kept = leftovers.parse(host.sh(SCRIPTS("clean-list")).stdout.decode(), leftovers.InUse())
    assert sorted(each.name for each in kept if each.kind == "folders") == ["0123456789", "coming.0123456789"]

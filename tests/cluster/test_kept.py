"""Files that a script wrote on real hosts outlive its container, are fetched and reused, and are deleted on request."""

import json
import subprocess

import pytest

from lab import waiting
from tests.cluster.control import BASE

SCRIPT = """import os, time
import torch.distributed as dist
dist.init_process_group("gloo")
rank, seen = dist.get_rank(), os.path.exists("outputs/ckpt.pt")
print("checkpoint", seen, flush=True)
os.makedirs("outputs", exist_ok=True)
os.makedirs(os.path.expanduser("~/.cache"), exist_ok=True)
if rank == 0 and not seen:
    open("outputs/ckpt.pt", "w").write("weights")
open("/data/out/kept.txt", "a").write(f"rank {rank}\\n")
open(os.path.expanduser("~/.cache/best.pt"), "w").write("weights")
hub = os.path.expanduser("~/.cache/huggingface/hub/models--a--b/blobs/")
os.makedirs(hub, exist_ok=True)
open(hub + "0f" * 32, "w").write("download")
open(os.path.expanduser("~/ready"), "w").write("ready")
dist.barrier()
while not seen:
    time.sleep(0.2)
"""


@pytest.fixture
def written(control, tmp_path):
    """A run on both hosts whose ranks have written their files and now wait."""
    (tmp_path / "train.py").write_text(SCRIPT)
    control.words = ("--folder", str(tmp_path), "--script", "train.py", "--keep", "/data/out", "--separate")
    done = control.deploy(*control.words, "--detach")
    assert done.returncode == 0, done.stderr
    ready = f"ls ~/.muster/runs/{control.run}/home/ready 2>/dev/null; true"
    waiting.until(lambda: all(control.rack.on(host, ready) for host in control.hosts), "both ranks to be ready", 90)
    return control


@pytest.mark.holds("deletes-own-run")
def test_files_of_a_killed_script_are_fetched_then_reused_then_deleted(written):
    refused = written.fab("down", "--run", written.run, "--delete")
    assert refused.returncode == 2
    assert "still running" in refused.stderr
    for host in written.hosts:
        written.rack.on(host, f"docker kill muster-{written.run}; true")
    assert written.fab("down", "--run", written.run).returncode == 0

    fetched = written.fab("fetch", "--run", written.run)
    assert fetched.returncode == 0, fetched.stderr
    assert (written.dir / "work/outputs/ckpt.pt").read_text() == "weights"
    second = written.dir / "hosts" / written.hosts[1]
    assert {place.joinpath("keep/data/out/kept.txt").read_text() for place in (written.dir, second)} == {
        "rank 0\n",
        "rank 1\n",
    }
    assert (written.dir / "home/.cache/best.pt").read_text() == "weights"
    assert not (written.dir / "home/.cache/huggingface").exists()
    assert "--only home/.cache/huggingface copies it" in fetched.stderr
    assert not (written.dir / "work/train.py").exists()

    resumed = written.deploy(*written.words, "--rank", "all")
    assert resumed.returncode == 0, resumed.stderr
    for host in written.hosts:
        assert "checkpoint True" in (written.dir / f"logs/{host}.log").read_text()

    deleted = [row for row in written.rows("down", "--run", written.run, "--delete") if row["kind"] == "deleted"]
    assert [row["host"] for row in deleted] == list(written.hosts)
    assert all(row["files"] > 5 for row in deleted), json.dumps(deleted)
    for host in written.hosts:
        assert not written.rack.on(host, f"ls -d ~/.muster/runs/{written.run} 2>/dev/null; true")


STEPS = """import os
import torch, torch.distributed as dist
dist.init_process_group("gloo")
done = int(open("outputs/last").read()) if os.path.exists("outputs/last") else 0
print("begins at", done, flush=True)
others = [None] * dist.get_world_size()
dist.all_gather_object(others, done)
assert len(set(others)) == 1, others
if dist.get_rank() == 0:
    os.makedirs("outputs", exist_ok=True)
    open("outputs/last", "w").write(str(done + 1))
    if os.path.exists("outputs/first"):
        os.remove("outputs/first")
    elif not done:
        open("outputs/first", "w").write("soon removed")
"""


def test_at_each_start_every_rank_finds_the_newest_checkpoint_of_rank_0(control, tmp_path):
    (tmp_path / "train.py").write_text(STEPS)
    words = ("--folder", str(tmp_path), "--script", "train.py", "--rank", "all")
    for start in range(4):
        done = control.deploy(*words)
        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stdout.count(f"begins at {start}\n") == 2
    fetched = control.fab("fetch", "--run", control.run)
    assert fetched.returncode == 0, fetched.stderr
    assert (control.dir / "work/outputs/last").read_text() == "4"
    assert not (control.dir / "work/outputs/first").exists(), "rank 0 had removed it"
    assert not (control.dir / "hosts").exists(), "copies of it did not come"


FAILS = """import json, os, signal, time
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
first = torch.tensor(int(open("step").read()) + 1 if os.path.exists("step") else 0)
dist.all_reduce(first, dist.ReduceOp.MIN)
print("begins at", int(first), flush=True)
for step in range(int(first), 10):
    if dist.get_rank() == 0:  # as most scripts do it; all ranks read it
        open("step", "w").write(str(step))
    dist.barrier()
    if dist.get_rank() == 1 and step == 3:
        raise ValueError("bad sample 7")
    if dist.get_rank() == 1 and step == 6:
        os.kill(os.getppid(), signal.SIGKILL)  # torchrun's process
        os.kill(json.load(open("../nodes/" + os.environ["MUSTER_NODE"] + ".json"))["pid"], signal.SIGKILL)
        time.sleep(60)
    dist.barrier()  # rank 0 writes no further step meanwhile
dist.destroy_process_group()
"""


def test_a_script_restarts_from_rank_0s_files_after_it_fails_and_after_its_node_dies(control, tmp_path):
    (tmp_path / "train.py").write_text(FAILS)
    done = control.deploy("--folder", str(tmp_path), "--script", "train.py", "--separate", "--restarts", "2")
    assert done.returncode == 0, done.stderr
    story = [json.loads(line)["text"] for line in (control.dir / "timeline.jsonl").read_text().splitlines()]
    again = [text for text in story if text.startswith("the script starts again")]
    assert len(again) == 2, story
    # The error is in its own line, in the line of the restart, or in a later one: another host may report the new start
    # first.
    assert any("bad sample 7" in text for text in story[: story.index(again[1])]), story
    assert "--restarts 2" in json.loads((control.dir / "record.json").read_text())["again"]
    begins = (control.dir / f"logs/{control.hosts[0]}.log").read_text()
    assert "begins at 4" in begins, "rank 1 found the file that rank 0 wrote"
    assert "begins at 7" in begins


WRITES = """import os, time
again = os.path.exists("out.txt")
with open("out.txt", "a", buffering=1) as file:
    for line in range(20 if again else 6000):
        file.write(f"{int(again)} {line}\\n")
        os.fsync(file.fileno())
        time.sleep(0.1)
"""


@pytest.mark.parametrize(("restarts", "code"), [("0", 1), ("1", 0)])
def test_files_written_before_a_reboot_are_kept_and_the_script_restarts_if_asked(control, tmp_path, restarts, code):
    (tmp_path / "train.py").write_text(WRITES)
    host = control.hosts[0]
    words = ("--run", control.run, "--image", BASE, "--folder", str(tmp_path), "--script", "train.py")
    line = control.line("deploy", *words, "--restarts", restarts, hosts=[host])
    # The test waits for this deploy to end. Its output goes to a file, because it may print much until then.
    with (tmp_path / "said").open("w") as said:
        deploy = control.background(line, stdout=said, stderr=subprocess.STDOUT)
    written = f"cd ~/.muster/runs/{control.run}/work 2>/dev/null && wc -l < out.txt 2>/dev/null; true"
    waiting.until(lambda: int(control.rack.on(host, written) or 0) > 20, "the script to write", 90)
    before = int(control.rack.on(host, written))
    subprocess.run(["docker", "restart", "-t", "0", control.rack.container(host)], check=True, capture_output=True)
    waiting.until(lambda: control.rack.is_up(host), "the host to be up", 90)
    assert deploy.wait(180) == code, (tmp_path / "said").read_text()
    assert control.fab("fetch", "--run", control.run, hosts=[host]).returncode == 0
    lines = (control.dir / "work/out.txt").read_text().splitlines()
    first = [row for row in lines if row.startswith("0 ")]
    assert len(first) >= before
    assert [row for row in lines if row.startswith("1 ")] == [f"1 {n}" for n in range(20 if restarts == "1" else 0)]

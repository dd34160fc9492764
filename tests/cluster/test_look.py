"""`muster status`, `logs`, `gpus` and `runs` on the rack, as a user types them, with real runs."""

import json
import re
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from lab import waiting
from tests.cluster.control import Control, forever

# What the control side needs, and what SSH's windows may hold for two hosts. The output is several times larger.
MOST_MEMORY_MB = 220
LINES, WIDTH = 1_100_000, 100
# A fake, since the rack has no GPUs. It answers as nvidia-smi does, and the process that holds the GPU is real.
NVIDIA_SMI = """#!/bin/sh
case "$*" in
*query-gpu*) echo "0, GPU-5d5ba0d6-d33d-2b2c-524d-9e3d8d2b8a77, 73411, 81559, 97, NVIDIA H100 80GB HBM3" ;;
*query-compute-apps*) echo "GPU-5d5ba0d6-d33d-2b2c-524d-9e3d8d2b8a77, $(cat /tmp/holder), 61230, python" ;;
esac
"""
BROKEN = "#!/bin/sh\necho 'Failed to initialize NVML: Driver/library version mismatch'\nexit 18\n"


class Onlooker(Control):
    """A control side that looks at a detached run."""

    def detach(self, *words):
        """Start the run with `muster deploy --detach`."""
        done = self.deploy("--detach", *words)
        assert done.returncode == 0, done.stderr

    def ours(self):
        """What status reports about the test's run, by host."""
        return {row["host"]: row for row in self.rows("status", "--run", self.run) if row.get("run") == self.run}

    def steps(self):
        """The step that each host has reached, without the hosts that have made no step."""
        return {host: row["step"] for host, row in self.ours().items() if row["step"]}

    def ended(self):
        """Whether both nodes of the run have ended."""
        nodes = self.ours()
        return len(nodes) == 2 and all(row["code"] is not None for row in nodes.values())


@pytest.fixture
def control(rack):
    made = Onlooker(rack)
    yield made
    made.clean()


@pytest.fixture
def nvidia_smi(rack):
    """nvidia_smi(host, text): install `text` as the program nvidia-smi on a host until the test ends."""
    path, hosts = "/usr/local/bin/nvidia-smi", []

    def put(host, text):
        hosts.append(host)
        rack.root(host, "sh", "-c", f'printf %s "$1" >{path}; chmod 755 {path}', "put", text)

    yield put
    for host in hosts:
        rack.root(host, "rm", "-f", path, "/tmp/holder")


def peak_memory_mb(pid):
    """A process's peak memory so far. wait4 would also count the memory of this process, from before the exec."""
    match = re.search(r"^VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    return int(match[1]) / 1000 if match else 0.0


def test_status_shows_step_rate_and_end_of_musters_trainer_on_every_host(control):
    control.detach(*forever())
    waiting.until(lambda: len(control.steps()) == 2, "steps", 300)
    before = control.steps()
    waiting.until(lambda: all(step > before[host] for host, step in control.steps().items()), "progress", 120)
    for host, row in control.ours().items():
        assert (row["word"], row["node"], row["steps"]) == ("running", host, 1000000)
        assert row["samples_per_s"] > 0
    shown = control.fab("status").stdout
    assert re.search(rf"{control.run} +up ", shown)
    assert "samples/s" in shown
    # Not with `muster stop`, which would remove the containers.
    stop = f"docker kill --signal INT muster-{control.run}"
    with ThreadPoolExecutor() as pool:
        assert all(pool.map(lambda host: control.rack.on(host, stop), control.hosts))
    waiting.until(control.ended, "the run to stop", 120)
    assert {row["word"] for row in control.ours().values()} == {"stopped"}
    (listed,) = [row for row in control.rows("runs") if row["run"] == control.run]
    assert (listed["state"], listed["hosts"]) == ("stopped", control.hosts)
    assert listed["checkpoint"] >= max(before.values())


def test_status_shows_what_is_known_about_a_users_script(control, tmp_path):
    (tmp_path / "train.py").write_text("import time\nprint('loss 0.25', flush=True)\ntime.sleep(600)\n")
    control.detach("--folder", str(tmp_path), "--script", "train.py")
    waiting.until(lambda: all(row["last_line"] for row in control.ours().values()), "the last lines", 60)
    for row in control.ours().values():
        assert (row["word"], row["last_line"], row["command"]) == ("running", "loss 0.25", "train.py")
        assert (row["step"], row["samples_per_s"]) == (None, None)
        assert row["uptime"].startswith("Up ")


def test_a_host_that_does_not_answer_is_one_line_and_the_others_still_show(control):
    lost = "no-such-host.invalid"
    done = control.fab("status", hosts=[control.hosts[0], lost])
    assert done.returncode == 1
    *good, last = done.stdout.splitlines()
    assert good
    assert all(line.startswith(f"{control.hosts[0]} ") for line in good)
    assert last == f"{lost}   the name {lost} does not resolve"
    assert "hint: check the spelling" in done.stderr
    assert [row["host"] for row in control.rows("gpus", hosts=[control.hosts[0], lost]) if "error" in row] == [lost]


def test_logs_merges_the_hosts_in_the_order_of_time_and_follows_to_the_end(control, tmp_path):
    script = "import os, time\nfor n in range(5):\n    print('rank', os.environ['RANK'], 'line', n, flush=True)\n"
    (tmp_path / "train.py").write_text(script + "    time.sleep(0.5)\n")
    control.detach("--folder", str(tmp_path), "--script", "train.py")
    followed = control.fab("logs", "--run", control.run, "--follow", "--json")
    assert followed.returncode == 0, followed.stderr
    lines = [json.loads(line) for line in followed.stdout.splitlines()]
    for rank, host in enumerate(control.hosts):
        own = [line["line"] for line in lines if line["host"] == host and line["rank"] == str(rank)]
        assert [line for line in own if line.startswith("rank ")] == [f"rank {rank} line {n}" for n in range(5)]
    waiting.until(control.ended, "the run to be over")
    after = control.rows("logs", "--run", control.run)
    assert [line["t"] for line in after] == sorted(line["t"] for line in after)
    assert {(line["t"], line["line"]) for line in after} == {(line["t"], line["line"]) for line in lines}
    own = [line for line in after if line["rank"] == "1"]
    newer = control.rows("logs", "--run", control.run, "--rank", "1", "--since", own[-2]["t"])
    assert [line["line"] for line in newer] == [line["line"] for line in own[-2:]]
    plain = control.fab("logs", "--run", control.run, "--rank", "0").stdout
    assert f"{control.hosts[0]} [0]  rank 0 line 4" in plain
    assert control.hosts[1] not in plain


def test_ctrl_c_ends_following_and_leaves_the_run_but_no_process_on_hosts(control, tmp_path):
    (tmp_path / "train.py").write_text("import time\nprint('waiting', flush=True)\ntime.sleep(600)\n")
    control.detach("--folder", str(tmp_path), "--script", "train.py")
    out = (tmp_path / "out").open("w+")
    logs = control.background(control.line("logs", "--follow"), stdout=out)
    waiting.until(lambda: (tmp_path / "out").read_text().count("waiting") == 2, "both hosts' lines", 60)
    followers = lambda: control.rack.on(control.hosts[0], "pgrep -f '[d]ocker logs'; true")  # noqa: E731
    assert followers()
    logs.send_signal(signal.SIGINT)
    assert logs.wait(30) == 0
    waiting.until(lambda: not followers(), "nothing of ours to be left there", 30)
    assert {row["word"] for row in control.ours().values()} == {"running"}


def test_gigabytes_of_logs_pass_through_in_bounded_memory(control, tmp_path):
    script = f"line = 'x' * {WIDTH}\nfor number in range({LINES}):\n    print(number, line)\nprint('over')\n"
    (tmp_path / "train.py").write_text(script)
    control.detach("--folder", str(tmp_path), "--script", "train.py")
    with (tmp_path / "out").open("w") as out:
        logs = control.background(control.line("logs", "--run", control.run, "--rank", "1", "--follow"), stdout=out)
        peaks_mb = []

        def over():
            peaks_mb.append(peak_memory_mb(logs.pid))
            return logs.poll() is not None

        waiting.until(over, "the logs to end", 300)
    assert logs.returncode == 0
    assert (tmp_path / "out").stat().st_size > LINES * WIDTH
    with (tmp_path / "out").open() as lines:
        rows = [line.split(" ", 4)[:4] for line in lines]
    own = [words[3] for words in rows if words[0] == control.hosts[1]]
    assert own[-1] == "over\n"
    assert [int(word) for word in own[:-1]] == list(range(LINES))
    assert 30 < max(peaks_mb) < MOST_MEMORY_MB


def test_lines_that_the_console_leaves_out_are_counted_and_stay_in_the_ranks_log(control, tmp_path):
    script = "import os\nfor number in range(4500 if os.environ['RANK'] == '0' else 20): os.write(1, b'x\\n' * 2000)\n"
    (tmp_path / "train.py").write_text(script)
    control.detach("--folder", str(tmp_path), "--script", "train.py")
    waiting.until(control.ended, "the run to be over", 180)
    done = control.fab("logs", "--run", control.run)
    assert done.returncode == 0, done.stderr
    first, second = control.hosts
    left_out = [line for line in done.stdout.splitlines() if "not shown here" in line]
    counted = sum(int(line.partition("muster: ")[2].split()[0]) for line in left_out)
    assert counted
    assert all(line.startswith(first) for line in left_out)
    assert counted + done.stdout.count(f"{first} [0]  x\n") == pytest.approx(9_000_000, abs=2 * len(left_out))
    assert done.stdout.count(f"{second} [1]  x\n") == 40_000
    assert "muster-said" not in done.stdout
    whole = f"grep -c . ~/.muster/runs/{control.run}/logs/rank-0.log"
    assert int(control.rack.on(first, whole)) == 9_000_000


def test_the_holder_of_a_gpu_is_shown_with_user_container_and_run(control, nvidia_smi, tmp_path):
    (tmp_path / "train.py").write_text("import time\nprint('up', flush=True)\ntime.sleep(600)\n")
    control.detach("--folder", str(tmp_path), "--script", "train.py")
    waiting.until(lambda: all(row["last_line"] for row in control.ours().values()), "the ranks", 60)
    first, second = control.hosts
    control.rack.root(first, "sh", "-c", "pgrep -f '[t]rain.py' | tail -n 1 >/tmp/holder")
    nvidia_smi(first, NVIDIA_SMI)
    nvidia_smi(second, BROKEN)
    done = control.fab("gpus", "--json")
    assert done.returncode == 1, "one host could not tell"
    good, broken = (json.loads(line) for line in done.stdout.splitlines())
    (holder,) = good["gpus"][0]["holders"]
    assert (holder["container"], holder["run"]) == (f"muster-{control.run}", control.run)
    assert holder["user"]
    assert (holder["memory_mib"], good["gpu_fault"]) == (61230, None)
    assert broken["gpus"] == []
    assert "code 18: Failed to initialize NVML" in broken["gpu_fault"]
    assert "97 % 72 of 80 GiB" in control.fab("status").stdout
    assert "could not tell: nvidia-smi ended with code 18" in control.fab("status").stdout


def test_hosts_without_a_gpu_have_none(control):
    done = control.fab("gpus")
    assert done.returncode == 0, done.stderr
    assert [line.split("   ")[-1].strip() for line in done.stdout.splitlines()] == ["no GPU", "no GPU"]

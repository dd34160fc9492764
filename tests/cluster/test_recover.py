"""Failures on the rack: nodes, hosts, engines, links and the control side die during a run."""

import json
import re
import signal
import subprocess

import pytest

from deploy.core.errors import DETACHED, STOPPED
from lab import waiting
from tests.cluster.control import BASE, HOME, SLOW, Control, forever

FOREVER = forever("--checkpoint-every 10")


class Run(Control):
    """A run of Muster's trainer on all hosts, followed by a `muster deploy` whose output is kept in `log`."""

    def __init__(self, rack, log):
        super().__init__(rack)
        self.hosts, self.log, self.fab_deploy = rack.hosts, log, None

    def begin(self, *words, **variables):
        """Start the run, and wait until it has a checkpoint from which it can continue."""
        line = self.line("deploy", "--run", self.run, "--image", BASE, *FOREVER, *words)
        self.follow(line, **variables)
        waiting.until(lambda: self.saved() and self.step() > 10, "a checkpoint and the steps behind it", 180)

    def follow(self, line, **variables):
        with self.log.open("ab") as log:
            self.fab_deploy = self.background(line, env={**self.environment, **variables}, stdout=log, stderr=log)

    def saved(self):
        return [event["step"] for event in waiting.events(self.dir, 0, "checkpoint")]

    def resumes(self):
        return [event["step"] for event in waiting.events(self.dir, 0, "resumed")]

    def goes_on(self, resumes=1):
        """Wait until the run has continued `resumes` times from a checkpoint, and has trained since."""
        waiting.until(lambda: len(self.resumes()) >= resumes, f"resume number {resumes}", 240)
        assert self.resumes()[-1] >= 10
        waiting.until(lambda: self.step() > self.resumes()[-1] + 2, "steps after the resume", 120)

    def says(self, words, seconds=90):
        waiting.until(lambda: words in self.log.read_text(), f"the words {words!r}", seconds)

    def stop(self):
        """End the run everywhere with `muster stop`; it must leave nothing."""
        assert self.fab("stop", "--run", self.run).returncode == 0
        assert self.fab_deploy.wait(90) == 75
        waiting.until(lambda: not self.traces(), "the hosts to be clean")

    def docker(self, task, host):
        subprocess.run(["docker", task, self.rack.container(host)], check=True, capture_output=True, timeout=90)

    def back(self, host):
        waiting.until(lambda: self.rack.is_up(host), f"{host} to be up", 90)


@pytest.fixture
def run(rack, tmp_path):
    made = Run(rack, tmp_path / "told")
    yield made
    made.clean()


def test_a_killed_node_comes_back_and_the_run_continues(run):
    run.begin()
    run.rack.root(run.hosts[1], "pkill", "-9", "-f", "trainer[.]node agent")
    run.goes_on()
    # The log says how the node ended only if its engine was asked before it had restarted the node.
    again = rf"^{run.hosts[1]} (\(rank 1\) .*restarting it|restarts)"
    lost = re.search(again, run.log.read_text(), re.MULTILINE)
    assert lost, run.log.read_text()
    run.stop()


def test_a_rebooted_host_comes_back_and_the_run_continues(run):
    run.begin()
    run.docker("restart", run.hosts[1])
    run.goes_on()
    run.says(f"{run.hosts[1]}: connected again")
    run.stop()


def test_a_power_cut_of_the_first_host_costs_the_steps_since_its_last_checkpoint(run):
    run.begin()
    run.docker("kill", run.hosts[0])
    run.docker("start", run.hosts[0])
    run.goes_on()
    run.stop()


def test_an_engine_that_dies_leaves_its_node_training_until_the_host_reboots(run):
    run.begin()
    run.rack.root(run.hosts[2], "pkill", "-9", "-x", "dockerd")
    run.says(f"{run.hosts[2]}: the Docker engine there does not answer; rank 2 keeps training")
    before = run.step()
    waiting.until(lambda: run.step() > before + 5, "steps without that engine", 90)
    assert run.fab_deploy.poll() is None
    run.docker("restart", run.hosts[2])
    run.goes_on()
    run.stop()


def test_a_host_whose_links_are_cut_is_found_again_and_nothing_is_lost(run):
    run.begin()
    cut = ("INPUT", "!", "-i", "lo", "-j", "DROP")
    run.rack.root(run.hosts[2], "iptables", "-I", *cut)
    try:
        run.says(f"{run.hosts[2]}: the connection to", 120)
    finally:
        run.rack.root(run.hosts[2], "iptables", "-D", *cut)
    before = run.step()
    waiting.until(lambda: run.step() > before + 5, "steps after the cut", 240)
    run.says(f"{run.hosts[2]}: connected again")
    run.stop()


def test_a_host_that_stays_away_is_named_and_the_others_resume_without_it(run):
    run.begin("--wait-lost", "15s")
    gone, left = run.hosts[2], run.hosts[:2]
    run.docker("kill", gone)
    try:
        assert run.fab_deploy.wait(150) == 1
        log = run.log.read_text()
        assert f"error: {gone} (rank 2) is lost" in log
        command = f"muster deploy --hosts {','.join(left)} --resume {run.run}"
        assert command in log
        assert f"muster down --hosts {gone} --run {run.run}" in log
        alone = Control(run.rack)
        alone.run, alone.hosts = run.run, left
        waiting.until(lambda: not alone.traces(), "the others to be clean")
        run.follow(run.line("deploy", "--resume", run.run, "--image", BASE, *SLOW, hosts=left))
        run.goes_on()
        assert run.fab("stop", "--run", run.run, hosts=left).returncode == 0
        assert run.fab_deploy.wait(90) == 75
    finally:
        run.docker("start", gone)
        run.back(gone)
    assert run.fab("down", "--run", run.run, hosts=[gone]).returncode == 0
    waiting.until(lambda: not run.traces(), "all hosts to be clean")


def test_a_closed_terminal_leaves_the_run_and_a_later_stop_says_how_it_ended(run):
    run.begin()
    run.fab_deploy.send_signal(signal.SIGHUP)
    assert run.fab_deploy.wait(30) == DETACHED
    assert len(run.containers()) == 3
    assert "still running" in run.fab("deploy", "--resume", run.run).stderr
    stopped = run.fab("stop", "--run", run.run)
    assert stopped.returncode == 0, stopped.stderr
    saved = re.search(rf"stopped at step (\d+), checkpoint: {run.hosts[0]}:", stopped.stderr)
    assert saved, stopped.stderr
    assert f"muster deploy --hosts {','.join(run.hosts)} --resume {run.run}" in stopped.stderr
    assert run.outcome()["verdict"] == "stopped"
    waiting.until(lambda: not run.traces(), "the hosts to be clean")
    both = [run.rack.on(host, f"ls ~/.muster/runs/{run.run}/checkpoints").split()[-1] for host in run.hosts[:2]]
    assert both == [f"step-{int(saved[1]):08d}"] * 2  # the first host's disk may be lost
    run.follow(run.line("deploy", "--resume", run.run, "--image", BASE, *SLOW))
    run.goes_on()
    assert run.resumes()[-1] == int(saved[1])
    killed = run.fab("stop", "--run", run.run, "--now")
    assert killed.returncode == 0, killed.stderr
    assert run.fab_deploy.wait(60) == STOPPED
    assert run.outcome()["verdict"] == "stopped"
    waiting.until(lambda: not run.traces(), "the hosts to be clean")


def test_a_manually_killed_node_stays_away_and_stop_says_how_far_the_run_came(run):
    run.begin()
    run.fab_deploy.send_signal(signal.SIGHUP)
    assert run.fab_deploy.wait(30) == DETACHED
    run.rack.on(run.hosts[1], f"docker kill muster-{run.run}")
    rows = {row["host"]: row for row in run.rows("status", "--run", run.run)}
    assert (rows[run.hosts[1]]["word"], rows[run.hosts[0]]["word"]) == ("failed", "running")
    stopped = run.fab("stop", "--run", run.run)
    assert stopped.returncode == 0, stopped.stderr
    sentence = rf"{run.run}: stopped at step \d+; the last checkpoint is from step \d+; "
    assert re.search(f"{sentence}{run.hosts[1]} was killed by SIGKILL before that", stopped.stderr), stopped.stderr
    assert f"muster deploy --hosts {','.join(run.hosts)} --resume {run.run}" in stopped.stderr
    assert run.outcome()["step"] > 10
    waiting.until(lambda: not run.traces(), "the hosts to be clean")


def test_a_run_survives_each_command_of_the_survival_page_and_leaves_nothing(run):
    page = (HOME / "docs/explanation/what-survives.md").read_text()
    typed = dict(re.findall(r"^ssh gpu-([abc]) '(.+?)'", page, re.MULTILINE))
    run.begin()
    for letter, restarts in (("c", 1), ("b", 1), ("a", 2)):
        before = run.step()
        run.rack.on(run.hosts["abc".index(letter)], typed[letter].replace("muster-try", f"muster-{run.run}"))
        run.goes_on(restarts)
        waiting.until(lambda before=before: run.step() > before + 5, f"steps after {typed[letter]}", 240)
    run.says(f"{run.hosts[2]} (rank 2) was killed by SIGKILL")
    run.says(f"{run.hosts[1]} (rank 1) is paused")
    run.stop()
    assert run.fab("down", "--run", run.run, "--delete").returncode == 0
    left = f"ls -d ~/.muster/runs/{run.run} 2>/dev/null; true"
    assert [run.rack.on(host, left).split() for host in run.hosts] == [[], [], []]


def test_a_failing_script_is_named_with_host_rank_code_and_last_lines(run, tmp_path):
    (tmp_path / "train.py").write_text(
        "import torch, torch.distributed as dist\ndist.init_process_group()\n"
        "for step in range(100):\n    if step == 5 and dist.get_rank() == 1:\n"
        "        raise ValueError('bad sample 7')\n    dist.all_reduce(torch.zeros(1))\n"
    )
    done = run.deploy("--folder", str(tmp_path), "--script", "train.py")
    assert done.returncode == 1
    first = next(line for line in done.stderr.splitlines() if line.startswith("error:"))
    assert first == f"error: {run.hosts[1]} (rank 1): train.py ended with code 1: ValueError: bad sample 7"
    assert "raise ValueError('bad sample 7')" in done.stderr
    assert "N/A" not in done.stderr
    assert json.loads((run.dir / "outcome.json").read_text())["node"] == run.hosts[1]
    waiting.until(lambda: not run.traces(), "the hosts to be clean")


def test_hosts_behind_a_jump_host_train_like_any_other(jump_rack, tmp_path):
    run = Run(jump_rack, tmp_path / "told")
    try:
        done = run.deploy("--args", "--steps 20")
        assert done.returncode == 0, done.stderr
        assert run.outcome()["verdict"] == "done"
        waiting.until(lambda: not run.traces(), "the hosts to be clean")
    finally:
        run.fab("down", "--run", run.run)
        subprocess.run(["rm", "-rf", str(run.dir)], check=True)

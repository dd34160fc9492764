"""A host is lost or leaves, even the first: the others keep training and repeat or miss no sample (`--min-nodes`)."""

import pytest

from lab import waiting
from tests.cluster.going_on import Run, script, train


@pytest.fixture
def run(rack, tmp_path):
    made = Run(rack, tmp_path / "told", *train(), "--min-nodes", "2")
    yield made
    made.clean()


@pytest.fixture
def script_run(rack, tmp_path):
    made = Run(rack, tmp_path / "told", *script(tmp_path / "code"), "--min-nodes", "2")
    yield made
    made.clean()


def test_a_script_continues_from_rank_0s_files_after_the_first_host_loses_power(script_run):
    run, (first, second, third) = script_run, script_run.hosts
    run.until_begun(run.hosts, 3)
    run.until_kept(second)
    begun = len(run.begins(first))
    run.cut_power(first)
    try:
        run.until_said(f"{first} is lost: {second} and {third} start the script again")
        went_on = run.until_begun((second, third), 2)
    finally:
        run.boot(first)
    assert went_on > 0
    run.until_said(f"{first} is back: {first}, {second} and {third} start the script again")
    waiting.until(lambda: len(run.begins(first)) > begun, "its rank to begin again", 120)
    assert run.until_begun(run.hosts, 3) > went_on
    assert run.fab("stop", "--run", run.run).returncode == 0
    assert run.followed.wait(90) == 75, run.log.read_text()


def test_a_script_continues_from_a_neighbours_copy_after_the_first_hosts_disk_is_lost(script_run, tmp_path):
    run, (first, *others) = script_run, script_run.hosts
    run.until_begun(run.hosts, 3)
    run.until_kept(others[0])
    assert run.fab("stop", "--run", run.run).returncode == 0
    assert run.followed.wait(90) == 75, run.log.read_text()
    before = {host: len(run.begins(host)) for host in others}
    run.rack.on(first, f"rm -rf ~/.muster/runs/{run.run}")
    more = ("--folder", str(tmp_path / "code"), "--script", "train.py", "--min-nodes", "2", "--detach")
    again = run.deploy(*more, hosts=run.hosts)
    assert again.returncode == 0, again.stderr
    waiting.until(lambda: all(len(run.begins(host)) > before[host] for host in others), "the next start", 90)
    assert run.until_begun(run.hosts, 3) > 0


def test_a_run_survives_power_loss_of_the_first_host_and_a_killed_node_of_the_last(run):
    first, second, third = run.hosts
    waiting.until(lambda: run.events("checkpoint")[1:], "two checkpoints", 120)
    run.cut_power(first)
    try:
        run.until_said(f"{first} is lost: {second} and {third} continue from step")
    finally:
        run.boot(first)
    run.until_said(f"{first} is back: {first}, {second} and {third} continue from step")
    waiting.until(lambda: run.events("plan")[2:], "all three to train")
    run.rack.on(third, f"docker kill muster-{run.run}")
    run.until_said(f"{third} is lost: {first} and {second} continue from step")
    run.stop_and_count()


def test_the_first_host_leaves_and_rejoins_and_meanwhile_the_second_may_not_leave(run):
    first, second, third = run.hosts
    waiting.until(lambda: run.events("checkpoint")[1:], "two checkpoints", 120)
    left = run.fab("leave", "--run", run.run, hosts=[first])
    assert left.returncode == 0, left.stderr
    assert f"{first} has left {run.run}: {second} and {third} continue" in left.stdout
    state = ("docker", "inspect", "--format", "'{{.State.Status}} {{.State.ExitCode}}'", f"muster-{run.run}")
    assert run.rack.on(first, *state).strip() == "exited 0"
    run.until_said(f"{first} has left: {second} and {third} continue from step")
    for host, why in ((first, "it has left"), (second, "1 of 3 nodes would be left")):
        refused = run.fab("leave", "--run", run.run, hosts=[host])
        assert refused.returncode == 2
        assert why in refused.stderr
    joined = run.fab("join", "--run", run.run, hosts=[first])
    assert joined.returncode == 0, joined.stderr
    run.until_said(f"{first} is back: {first}, {second} and {third} continue from step")
    refused = run.fab("join", "--run", run.run, hosts=[first])
    assert refused.returncode == 2
    assert f"{first} is in {run.run} already" in refused.stderr
    run.rack.on(third, f"docker kill muster-{run.run}")
    run.until_said(f"{third} is lost: {first} and {second} continue from step")
    assert run.fab("join", "--run", run.run, hosts=[third]).returncode == 0
    run.until_said(f"{third} is back: {first}, {second} and {third} continue from step")
    run.stop_and_count()

"""A script on three hosts, one of which is lost: the others restart it from its kept files, and the lost one rejoins.

Hosts are agents with separate run folders. Only rank 0 writes the checkpoint, and every rank loads it.
"""

import copy
import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from deploy.local import machine
from deploy.run.environment import GROUP, NODE, group_variable, local_spec
from lab.waiting import events, until
from tests.dist.conftest import environment, waits_for

pytestmark = pytest.mark.torch
HOME = Path(__file__).resolve().parents[2]
SCRIPT = """
import os, sys, time, torch
import torch.distributed as dist
dist.init_process_group("gloo")
rank, world, path = dist.get_rank(), dist.get_world_size(), "out/last.pt"
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), 0.01)
step = torch.load(path)["step"] + 1 if os.path.exists(path) else 0
print(f"begins at {step} of {world}", flush=True)
over = torch.zeros(1)
while not over:
    optimizer.zero_grad()
    model(torch.randn(8, 4)).sum().backward()
    optimizer.step()
    if rank == 0 and step % 150 == 0:
        os.makedirs("out", exist_ok=True)
        torch.save({"step": step}, path + ".tmp")
        os.replace(path + ".tmp", path)
    if os.path.exists(sys.argv[1] + f"/fail-{rank}"):
        raise ValueError("as asked")
    over += rank == 0 and os.path.exists(sys.argv[1] + "/end")
    dist.broadcast(over, 0)
    step += 1
    time.sleep(0.02)
open(sys.argv[1] + f"/over-{rank}", "w").close()
if rank == 2 and os.path.exists(sys.argv[1] + "/late"):
    while not all(os.path.exists(sys.argv[1] + f"/over-{other}") for other in (0, 1)):
        time.sleep(0.05)
    os.remove(sys.argv[1] + "/late")
    os.kill(os.getpid(), 9)
"""


class Host:
    """A node's agent with its own disk."""

    def __init__(self, folder, node, spec, more):
        self.folder, self.name, self.file = folder, node.name, node.place
        own = {"MUSTER_RUN_DIR": str(folder), "PYTHONPATH": str(HOME), **more}
        self.variables = environment(**{**node.environment, **own})
        self.variables.pop("MUSTER_STOP_ON_EOF")
        self._command = [sys.executable, "-m", "muster.trainer.node", "agent", *spec.arguments]
        (folder / "logs").mkdir(parents=True)

    def start(self):
        with (self.folder / "console").open("ab") as console:
            self.agent = subprocess.Popen(self._command, cwd=HOME, env=self.variables, stdout=console, stderr=console)

    def kill(self):
        self.agent.kill()
        self.agent.wait()

    def begins(self):
        """The step and the world size at each start of its rank."""
        lines = self.console().splitlines()
        return [(int(words[2]), int(words[4])) for line in lines if (words := line.split())[:1] == ["begins"]]

    def console(self):
        return (self.folder / "console").read_text()


@pytest.fixture
def hosts(tmp_path, request):
    """Three hosts, of which two are enough to train; files in the folder `told` tell the script what to do.

    With the parameter "spare", three hosts have to train, and a fourth one waits.
    """
    spares = int(getattr(request, "param", "") == "spare")
    (tmp_path / "sent").mkdir()
    (tmp_path / "told").mkdir()
    (tmp_path / "sent" / "train.py").write_text(SCRIPT)
    spec = local_spec(tmp_path / "run", 1, 2 + spares, ("--script", "train.py", str(tmp_path / "told")), 0, 2, "Linux")
    where = dict(zip(spec.names, machine.free_ports(3 + spares), strict=True))
    more = {"MUSTER_SENT": str(tmp_path / "sent"), "MUSTER_SHARE_KEY": "00ff" * 8, "PET_MAX_RESTARTS": "1"}
    more |= group_variable(2 + spares, "00ff" * 8, where, apart=True, spares=spec.names[3:])
    made = [Host(tmp_path / node.name, node, spec, more) for node in spec.nodes]
    for host in made:
        host.start()
    yield made
    for host in made:
        host.kill()


def until_begun(hosts, count, seconds=60):
    """Wait until the last start on each of these hosts had `count` ranks; return the step at which they began."""
    until(lambda: all(host.begins() and host.begins()[-1][1] == count for host in hosts), f"{count} ranks", seconds)
    steps = {host.begins()[-1][0] for host in hosts}
    assert len(steps) == 1, steps  # all have loaded the same checkpoint
    return steps.pop()


def test_the_others_continue_from_the_lost_first_hosts_checkpoint_and_it_comes_back(hosts, tmp_path):
    first, second, third = hosts
    assert until_begun(hosts, 3) == 0
    until(lambda: (second.folder / "work/out/last.pt").exists(), "a copy on a neighbour")
    first.kill()
    went_on = until_begun((second, third), 2)
    assert went_on > 0
    first.start()
    until(lambda: len(first.begins()) == 2, "its second start")  # its first start had three ranks too
    assert until_begun(hosts, 3) > went_on
    (tmp_path / "told" / "end").touch()
    assert [host.agent.wait(60) for host in hosts] == [0, 0, 0]
    assert [event["members"] for event in events(second.folder, 1, "members")] == [[second.name, third.name]]
    assert json.loads((first.folder / "copies.json").read_text())["work/out/last.pt"][2] == second.name


def test_a_script_that_fails_by_itself_is_restarted_as_often_as_asked(hosts, tmp_path):
    until_begun(hosts, 3)
    fault = tmp_path / "told" / "fail-1"
    fault.touch()
    until(lambda: "as asked" in hosts[1].console(), "the rank to fail")
    fault.unlink()
    until(lambda: all(len(host.begins()) == 2 for host in hosts), "the second start")
    fault.touch()
    assert [host.agent.wait(60) for host in hosts] == [1, 1, 1]
    verdicts = [json.loads(path.read_text()) for host in hosts for path in (host.folder / "outcome").glob("*.json")]
    assert [(verdict["node"], "as asked" in verdict["message"]) for verdict in verdicts] == [("worker-1", True)]


def test_a_rank_killed_after_the_others_ended_well_makes_all_restart(hosts, tmp_path):
    until_begun(hosts, 3)
    for word in ("late", "end"):
        (tmp_path / "told" / word).touch()
    assert [host.agent.wait(60) for host in hosts] == [0, 0, 0]
    assert [len(host.begins()) for host in hosts] == [2, 2, 2]


def test_a_stop_is_no_failure(hosts):
    until_begun(hosts, 3)
    for host in hosts:
        host.agent.send_signal(signal.SIGINT)
    assert [host.agent.wait(60) for host in hosts] == [75, 75, 75]


@pytest.mark.parametrize("hosts", ["spare"], indirect=True)
def test_a_spare_takes_the_first_hosts_place_with_its_files(hosts):
    first, *others, spare = hosts
    until_begun((first, *others), 3)
    until(lambda: (others[0].folder / "work/out/last.pt").exists(), "a copy on a neighbour")
    assert not spare.begins()
    first.kill()
    until(lambda: spare.begins() and all(len(host.begins()) == 2 for host in others), "the spare to train")
    assert until_begun((*others, spare), 3) > 0


def test_a_joining_host_takes_a_lost_hosts_place_with_files_that_the_others_kept(hosts, tmp_path):
    first, second, third = hosts
    until_begun(hosts, 3)
    until(lambda: (second.folder / "work/out/last.pt").exists(), "a copy on a neighbour")
    new = copy.copy(third)
    new.name, new.folder = "late", tmp_path / "late"
    (new.folder / "logs").mkdir(parents=True)
    plan, where = json.loads(third.variables[GROUP]), machine.free_ports(1)[0]
    plan["nodes"]["late"], plan["spares"], plan["joined"] = where, ["late"], {"late": [where[0], where[2], 3]}
    new.variables = {**third.variables, GROUP: json.dumps(plan), NODE: "late", "MUSTER_RUN_DIR": str(new.folder)}
    new.start()
    try:
        until(lambda: waits_for(new.folder / "nodes" / f".{new.name}") == 0, "the newcomer to wait")
        first.kill()
        until(lambda: new.begins() and new.begins()[-1][1] == 3, "the newcomer to train", 90)
        began = new.begins()[-1]
        until(lambda: second.begins()[-1] == third.begins()[-1] == began, "all to begin at one step")
        assert began[0] > 0
        assert "work/out/last.pt" in json.loads((new.folder / "copies.json").read_text())
    finally:
        new.kill()

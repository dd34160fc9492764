"""torchrun holds the ranks' store, only on the rendezvous address, and each generation gets a new store."""

import json
import subprocess
import sys

import psutil
import pytest

from lab.ports import free_port
from lab.waiting import until
from tests.dist.conftest import HOME, environment

# Each start trains once, and its ranks stay until the file `enough` exists. The last rank fails once if `lose` exists.
TRAIN = """
import glob, json, os, time, torch, torch.distributed as dist
dist.init_process_group()
rank, world, port = dist.get_rank(), dist.get_world_size(), os.environ["MASTER_PORT"]
dist.all_reduce(summed := torch.tensor([rank + 1.0]))
with open(f".{port}-{rank}", "w") as file:
    json.dump({"sum": float(summed), "address": os.environ["MASTER_ADDR"]}, file)
os.rename(f".{port}-{rank}", f"seen-{port}-{rank}.json")
while not os.path.exists("enough"):
    if rank == world - 1 and len(glob.glob(f"seen-{port}-*")) == world and os.path.exists("lose"):
        os.remove("lose")
        os._exit(1)
    time.sleep(0.05)
"""


class Agents:
    """Nodes that run a script (TRAIN) in `folder`, each with its own agent."""

    def __init__(self, folder, count, ranks, script=TRAIN, **variables):
        self.folder, self.world = folder, count * ranks
        (folder / "train.py").write_text(script)
        self._shared = shared = environment(
            PYTHONPATH=str(HOME), PET_NPROC_PER_NODE=str(ranks), PET_NNODES=str(count), **variables
        )
        del shared["GLOO_SOCKET_IFNAME"], shared["NCCL_SOCKET_IFNAME"]  # not set, as in a plain `docker run`
        self.agents = [self.start(place) for place in range(count)]

    def start(self, place):
        """Start the agent of a node."""
        command = [sys.executable, "-P", "-m", "muster.trainer.node", "agent", "--script", "train.py"]
        with (self.folder / f"node-{place}.log").open("a") as log:
            given = self._shared | self.place(place)
            return subprocess.Popen(command, cwd=self.folder, env=given, stderr=subprocess.STDOUT, stdout=log)

    @staticmethod
    def place(place):
        """The variables that only this node gets."""
        conf = f"is_host={int(place == 0)},last_call_timeout=1,join_timeout=60"
        return {"PET_NODE_RANK": str(place), "PET_RDZV_CONF": conf, "MUSTER_NODE": f"node-{place}"}

    def seen(self, generations=1):
        """Wait until all generations have trained; return what each rank saw, by the port of its store."""

        def by_store():
            files = sorted(self.folder.glob("seen-*.json"))
            ports = {file.name.split("-")[1] for file in files}
            by_port = {port: [json.loads(f.read_text()) for f in files if port in f.name] for port in ports}
            whole = [len(ranks) == self.world for ranks in by_port.values()]
            return by_port if len(whole) == generations and all(whole) else None

        return until(by_store, f"{generations} generations")

    def addresses(self):
        """The addresses on which processes of the agents listen."""
        pids = {each.pid for agent in self.agents for each in psutil.Process(agent.pid).children(recursive=True)}
        connections = psutil.net_connections("tcp")
        return {each.laddr.ip for each in connections if each.status == "LISTEN" and each.pid in pids}

    def ended(self):
        """Let the ranks end; return the agents' exit codes."""
        (self.folder / "enough").touch()
        return [agent.wait(60) for agent in self.agents]


@pytest.fixture
def agents(tmp_path):
    """make(count, ranks): start Agents; they are killed when the test ends."""
    made = []

    def make(*words, **variables):
        made.append(Agents(tmp_path, *words, **variables))
        return made[0]

    yield make
    for agent in [agent for each in made for agent in each.agents]:
        agent.kill()
        agent.wait()


def test_ranks_meet_in_a_new_store_after_a_restart(agents, tmp_path):
    variables = {"PET_RDZV_BACKEND": "c10d", "PET_RDZV_ID": "x", "PET_RDZV_ENDPOINT": f"[::1]:{free_port()}"}
    (tmp_path / "lose").touch()
    run = agents(2, 2, PET_MAX_RESTARTS="1", **variables)
    first, second = run.seen(2).values()
    assert first == second == [{"sum": 10.0, "address": "::1"}] * 4
    assert run.addresses() == {"::1", "127.0.0.1"}, "gloo takes its interface's first address"
    assert run.ended() == [0, 0]


# In the first start, rank 1 kills itself once rank 0 has ended well.
UNEVEN = """
import os, signal, time, torch, torch.distributed as dist
dist.init_process_group()
dist.all_reduce(torch.ones(1))
rank, is_first = dist.get_rank(), not os.path.exists("killed")
open(f"life-{rank}-{os.getpid()}", "w").close()
dist.barrier()
(other,) = [int(name[7:]) for name in os.listdir() if name.startswith("life-0-")] if is_first else (0,)
while rank == 1 and is_first and os.path.exists(f"/proc/{other}"):
    time.sleep(0.05)
if rank == 1 and is_first:
    open("killed", "w").close()
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize(("restarts", "codes", "lives"), [("1", [0, 0], 2), ("0", [0, 1], 1)])
def test_a_rank_killed_after_another_nodes_ranks_ended_well_delays_nobody(agents, restarts, codes, lives):
    variables = {"PET_RDZV_BACKEND": "c10d", "PET_RDZV_ID": "x", "PET_RDZV_ENDPOINT": f"127.0.0.1:{free_port()}"}
    run = agents(2, 1, UNEVEN, PET_MAX_RESTARTS=restarts, **variables)
    assert run.ended() == codes, "torch's own exit barrier waits for five minutes"
    assert [len(list(run.folder.glob(f"life-{rank}-*"))) for rank in (0, 1)] == [lives, lives]


@pytest.mark.parametrize("variables", [{}, {"PET_MASTER_PORT": str(free_port())}])
def test_a_single_node_without_a_rendezvous_address_listens_on_loopback(agents, variables):
    run = agents(1, 2, PET_MAX_RESTARTS="0", **variables)
    assert list(run.seen().values()) == [[{"sum": 3.0, "address": "127.0.0.1"}] * 2]
    assert run.addresses() == {"127.0.0.1"}
    assert run.ended() == [0]


# Records the arguments of each start, and waits.
WORDS = """
import os, sys, time
with open(f".{os.getpid()}", "w") as file:
    file.write(" ".join(sys.argv[1:]))
os.rename(f".{os.getpid()}", f"words-{os.environ['RANK']}-{time.time()}")
while not os.path.exists("enough"):
    time.sleep(0.05)
"""


def test_ranks_that_restart_with_a_returned_node_get_the_restart_arguments(agents, tmp_path):
    """No rank has failed, so no restart is counted."""
    variables = {"PET_RDZV_BACKEND": "c10d", "PET_RDZV_ID": "x", "PET_RDZV_ENDPOINT": f"127.0.0.1:{free_port()}"}
    run = agents(2, 1, WORDS, PET_MAX_RESTARTS="1", MUSTER_RESTART_WITH="--resume", **variables)

    def words(rank, starts):
        return until(
            lambda: len(files := sorted(tmp_path.glob(f"words-{rank}-*"))) == starts and files, f"{starts} starts"
        )

    for rank in range(2):
        words(rank, 1)
    run.agents[1].kill()
    run.agents[1].wait()
    run.agents[1] = run.start(1)
    assert [path.read_text() for path in words(0, 2)] == ["", "--resume"]
    words(1, 2)
    assert run.ended() == [0, 0]

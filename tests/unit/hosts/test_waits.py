"""The claims of nodes on their hosts, what waiting nodes must know, and what `muster status` shows of this."""

import dataclasses
import json

from deploy.core.names import NodeName, RunId
from deploy.host import gpus, status
from deploy.host.gpus import GpuUse
from deploy.hosts.node import container, witness
from deploy.hosts.node.container import Meeting, Work
from deploy.hosts.start import gpu_claims, waits
from deploy.job.cluster import from_flag
from deploy.job.options import Job
from deploy.report import tables
from tests.hosts import FACTS

GPUS = tuple(GpuUse(index, f"GPU-{index}", "H100", 0, 81559, 0) for index in range(4))
QUEUE = waits.Queue(("10.0.0.1", "10.0.0.2"), 29700, 5_000_000_000, "key", "laptop")
WORK = Work("r1", "app", ("train.py",), token="7f3a")


def made(asked=2, machines=("b", "a"), **more):
    """The waiting nodes of a run on two hosts with four GPUs each."""
    work = dataclasses.replace(WORK, waits=True, **more)
    hosts = [dataclasses.replace(host, gpus=asked) for host in from_flag("a,b").hosts]
    facts = [gpu_claims.waiting_facts(dataclasses.replace(FACTS, gpus=GPUS, machine=each), asked) for each in machines]
    nodes = container.node_containers(hosts, facts, Job(), work, Meeting("10.0.0.1", 29500, ("eth0", "eth0")))
    return waits.with_claims(nodes, hosts, facts, work, QUEUE)


def options(node, name):
    return [node.argv[place + 1] for place, word in enumerate(node.argv) if word == name]


def test_a_waiting_node_sees_all_gpus_that_it_may_get_and_has_none_yet():
    node = made(2)[1]
    assert options(node, "--gpus") == ["all"]
    labels = options(node, "--label")
    assert "muster.waits=7f3a" in labels
    assert not [label for label in labels if label.startswith("muster.gpus")]
    assert node.environment["PET_NPROC_PER_NODE"] == "2"
    plan = json.loads(node.environment["MUSTER_WAIT"])
    assert (plan["asked"], plan["place"], plan["rank"]) == (2, 1, 2)
    assert plan["gpus"] == {f"GPU-{index}": index for index in range(4)}
    name, text, *_ = node.own
    assert name == "run-5000000000-7f3a"
    assert (json.loads(text)["state"], json.loads(text)["gpus"], json.loads(text)["whole"]) == ("rests", [], False)


def test_gpus_that_are_named_are_all_that_a_node_sees():
    assert options(made((0, 3))[0], "--gpus") == ['"device=GPU-0,GPU-3"']
    assert options(made(0)[0], "--gpus") == []


def test_all_users_claim_the_hosts_in_the_same_order():
    assert json.loads(made(machines=("b", "a"))[0].environment["MUSTER_WAIT"])["order"] == [1, 0]
    assert json.loads(made(machines=("a", "b"))[0].environment["MUSTER_WAIT"])["order"] == [0, 1]


def test_the_engine_restarts_a_waiting_node_and_its_ranks_start_as_often_as_asked():
    (restart,) = options(made()[0], "--restart")
    assert restart == f"on-failure:{container.WAIT_RESTARTS}"
    assert json.loads(made()[0].environment["MUSTER_WAIT"])["lives"] == 1
    assert json.loads(made(restarts=3)[0].environment["MUSTER_WAIT"])["lives"] == 4


def test_a_witness_does_not_get_the_nodes_claim_and_queue_variables():
    hosts, facts = from_flag("a,b").hosts, [FACTS, FACTS]
    work = dataclasses.replace(WORK, on_end="true")
    beside = witness.with_witnesses(made(), hosts, facts, Job(), work, QUEUE.addresses, 29701)
    assert not {"MUSTER_WAIT", "MUSTER_CLAIM"} & beside[0].witness.environment.keys()


def test_status_says_what_a_node_waits_for_since_when_and_its_place_in_the_queue():
    def claim(number, state, why=""):
        return gpus.Claim(number, f"{number:x}", f"r{number}", "u", "laptop", (), state == "waits", False, state, why)

    node = status.NodeStatus(RunId("r2"), NodeName("a"), 0, "train.py", "running", "Up 3 minutes", None, None)
    first, own = claim(1, "waits"), claim(2, "waits", "run r0 (bob) has GPU 0\x1b[2J")
    here = status.HostStatus((node,), gpus.Gpus(claims=(first, own)))
    (row,) = tables.status_rows({"a": here})
    assert row[:3] == ("a", "r2", "waits")
    assert row[-1].startswith("run r0 (bob) has GPU 0\\x1b[2J; since 1970-01-01 ")
    assert row[-1].endswith(", place 2")
    (value,) = tables.status_values({"a": here}, "r2")
    assert (value["word"], value["waits"]) == ("waits", row[-1])
    assert len(tables.status_values({"a": here})) == 1, "a node's claim is shown with it alone"
    runs = status.HostStatus((node,), gpus.Gpus(claims=(claim(2, "runs"),)))
    assert tables.status_rows({"a": runs})[0][2] == "up 3 minutes"

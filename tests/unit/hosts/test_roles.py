"""A run with several roles on real hosts: the plan of each host's container. Each role is a world of its own."""

import json
from dataclasses import replace

import pytest

from deploy.core.errors import DeployError
from deploy.hosts.node import roles
from deploy.hosts.node.container import Meeting, Work
from deploy.job.inventory import Host
from deploy.job.options import Job, Options
from deploy.run.roles import read
from tests.hosts import FACTS
from trainer.node.roles.plan import read as read_plan

NAMES = ("a", "b", "c", "d")
HOSTS = tuple(Host(name, f"10.0.0.{place}") for place, name in enumerate(NAMES, 1))
ADDRESSES = tuple(host.address for host in HOSTS)
MET = Meeting("10.0.0.1", 29500, ("eth0",) * 4)
TEXTS = (
    "reward=d,port=8000,ready=port,restart=3:python reward.py",
    "rollout=2,separate,port=8100,after=reward,restart=2:python rollout.py",
    "trainer=1,after=rollout,ends,processes=2:torchrun train.py",
)


def planned(texts=TEXTS, hosts=HOSTS, **facts):
    acted = read(Options(role=texts, script="x.py"), [host.name for host in hosts])
    work = Work("r1", "app", ("train.py",), token="7f", share_key="k", roles=acted)
    each = [replace(FACTS, **facts) for _ in hosts]
    return {node.host: node for node in roles.node_containers(hosts, each, Job(), work, MET, ADDRESSES[: len(hosts)])}


def known_there(node):
    """The environment of a host's programs: its container's variables, and those that its agent reads from the plan."""
    return {**node.environment, **read_plan(node.environment["MUSTER_ROLES"]).variables(node.node)}


def test_each_role_has_torchruns_variables_among_its_own_nodes():
    nodes = planned()
    assert list(nodes) == list(NAMES)
    known = {host: known_there(node) for host, node in nodes.items()}
    assert {host: each["MUSTER_ROLE"] for host, each in known.items()} == {
        "a": "rollout",
        "b": "rollout",
        "c": "trainer",
        "d": "reward",
    }
    assert {host: (each["PET_NNODES"], each["PET_NODE_RANK"]) for host, each in known.items()} == dict.fromkeys(
        NAMES, ("1", "0")
    )
    assert known["c"]["PET_NPROC_PER_NODE"] == "2"
    assert [known[host]["PET_RDZV_ENDPOINT"].partition(":")[0] for host in NAMES] == list(ADDRESSES)
    assert {host: each["PET_MAX_RESTARTS"] for host, each in known.items()} == {"a": "2", "b": "2", "c": "0", "d": "3"}


def test_the_role_that_ends_the_run_has_the_first_rank_numbers():
    known = {host: known_there(node)["MUSTER_FIRST_RANK"] for host, node in planned().items()}
    assert known == {"c": "0", "d": "2", "a": "3", "b": "4"}


def test_every_role_knows_where_the_others_are():
    for known in map(known_there, planned().values()):
        assert known["MUSTER_ROLLOUT_HOSTS"] == "10.0.0.1,10.0.0.2"
        assert known["MUSTER_ROLLOUT_ADDRESSES"] == "10.0.0.1:8100,10.0.0.2:8100"
        assert known["MUSTER_REWARD_ADDRESSES"] == "10.0.0.4:8000"
        assert known["MUSTER_TRAINER_HOSTS"] == "10.0.0.3"
        assert "MUSTER_TRAINER_PORT" not in known
    plan = json.loads(planned()["a"].environment["MUSTER_ROLES"])
    assert [row["name"] for row in plan["roles"]] == ["reward", "rollout", "trainer"]
    assert {row["nodes"][name][1] for row in plan["roles"] for name in row["nodes"]} == {29600}


def test_a_role_on_several_hosts_is_one_world_with_its_rendezvous_on_its_first_host():
    nodes = planned(("reward=1:python reward.py", "trainer=rest,ends:torchrun train.py"))
    trainers = [nodes[host].environment for host in "bcd"]
    assert [each["PET_NNODES"] for each in trainers] == ["3"] * 3
    assert [each["PET_NODE_RANK"] for each in trainers] == ["0", "1", "2"]
    assert len({each["PET_RDZV_ENDPOINT"] for each in trainers}) == 1
    assert trainers[0]["PET_RDZV_ENDPOINT"].startswith("10.0.0.2:")
    assert ["is_host=1" in each["PET_RDZV_CONF"] for each in trainers] == [True, False, False]


def test_the_containers_labels_show_the_hosts_as_nodes_of_one_run():
    for place, node in enumerate(planned().values()):
        labels = node.docker.labels
        assert (labels["muster.place"], labels["muster.nodes"]) == (str(place), "4")
        assert labels["muster.start"] == node.start == f"7f-{place}"
        assert node.first == (place == 0)
        assert labels["muster.role"] == known_there(node)["MUSTER_ROLE"]
        assert "--script" in node.docker.command


def test_a_run_without_roles_is_planned_without_them():
    work = Work("r1", "app", ("train.py",), token="7f")
    nodes = roles.node_containers(
        HOSTS[:2], [FACTS] * 2, Job(), work, replace(MET, interfaces=("e", "e")), ADDRESSES[:2]
    )
    assert not any(name.startswith("MUSTER_ROLE") for node in nodes for name in node.environment)


def test_a_taken_port_is_refused_with_its_role_and_host():
    with pytest.raises(DeployError, match="d: port 8000 of reward is taken"):
        planned(listening=frozenset({8000}))


def test_a_role_gets_a_port_that_is_free_on_every_host_and_used_by_nothing_else():
    texts = ("head=1,port=free,ready=port:a.py", "worker=3,port=free,after=head:b.py")
    known = known_there(planned(texts, listening=frozenset({29600, 29602}))["a"])
    ports = {known["MUSTER_HEAD_PORT"], known["MUSTER_WORKER_PORT"]}
    assert len(ports) == 2
    assert not ports & {"29500", "29600", "29601", "29602"}  # the agents use 29601 between each other
    assert known["MUSTER_HEAD_ADDRESSES"] == f"10.0.0.1:{known['MUSTER_HEAD_PORT']}"


def test_each_program_knows_how_many_gpus_its_host_gives_it():
    given = {known_there(node)["MUSTER_ROLE_GPUS"] for node in planned().values()}
    assert given == {str(len(FACTS.gpus))}

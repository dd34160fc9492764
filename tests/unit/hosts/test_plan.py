"""The rendezvous address of the hosts, and the plan as it is printed."""

import dataclasses
import shlex
from pathlib import Path

import pytest

from deploy.core.errors import DeployError
from deploy.core.names import node_name
from deploy.host.facts import Address, Container
from deploy.hosts.node.container import NodeContainer
from deploy.hosts.node.docker_run import DockerRun
from deploy.hosts.node.shipment import Shipment
from deploy.hosts.start import plan as deploy_plan
from deploy.job.cluster import Cluster
from deploy.send.folder.content import HostFolder
from deploy.send.folder.credentials import NO_CHOICE
from deploy.send.image import model
from deploy.send.image.push_plan import PushPlan
from tests.hosts import FACTS


def host(*addresses, reached_at=""):
    own = tuple(Address(*address) for address in addresses)
    return dataclasses.replace(FACTS, addresses=own, reached_at=reached_at)


OUTER_A, INNER_A = ("eth0", "203.0.113.5", 24), ("ib0", "10.0.0.1", 24)
OUTER_B, INNER_B = ("eth0", "198.51.100.7", 24), ("ib0", "10.0.0.2", 24)
BRIDGE = ("lxdbr0", "172.17.0.1", 16)


@pytest.mark.parametrize(
    ("master", "peer", "address"),
    [
        (host(OUTER_A, INNER_A, reached_at="203.0.113.5"), host(OUTER_B, INNER_B), "10.0.0.1"),
        (host(OUTER_A, reached_at="203.0.113.5"), host(OUTER_B), "203.0.113.5"),
        (host(BRIDGE, INNER_A), host(BRIDGE, INNER_B), "10.0.0.1"),
        (host(OUTER_A, INNER_A, reached_at="192.0.2.1"), host(OUTER_B), "203.0.113.5"),
    ],
    ids=["shared network before SSH's", "SSH's where none is shared", "no bridge", "behind NAT"],
)
def test_the_rendezvous_address_is_one_where_the_peers_reach_the_first_host(master, peer, address):
    assert deploy_plan.choose_address((master, peer)) == address


def test_an_interface_named_by_the_user_decides():
    assert deploy_plan.choose_address((host(OUTER_A, INNER_A), host(INNER_B)), "eth0") == "203.0.113.5"
    with pytest.raises(DeployError, match="ib7"):
        deploy_plan.choose_address((host(INNER_A),), "ib7")


def test_the_image_is_for_the_hosts_architecture_and_mixed_hosts_are_refused_by_name():
    arm, silent = dataclasses.replace(FACTS, architecture="aarch64"), dataclasses.replace(FACTS, architecture="")
    assert deploy_plan.platform({"a": FACTS, "b": silent}) == "linux/amd64"
    assert deploy_plan.platform({"a": arm}) == "linux/arm64"
    assert deploy_plan.platform({"a": silent}) == ""
    with pytest.raises(DeployError, match="a x86_64, b aarch64, c x86_64") as refusal:
        deploy_plan.platform({"a": FACTS, "b": arm, "c": FACTS})
    assert "--hosts a,c" in refusal.value.hint


def container(run="r1", code=None, port=29500, place=0):
    return Container(run, "a", place, 1, f"muster-{run}", "running" if code is None else "exited", code, port)


def test_the_port_is_one_that_no_process_listens_on_and_no_run_has():
    assert deploy_plan.choose_port(FACTS) == 29500
    busy = dataclasses.replace(FACTS, listening=frozenset({29500}), containers=(container(port=29501),))
    assert deploy_plan.choose_port(busy) == 29502
    ended = dataclasses.replace(FACTS, containers=(container(code=0),))
    assert deploy_plan.choose_port(ended) == 29500


def test_the_plan_is_printed_step_by_step_without_secrets():
    docker = DockerRun("muster-r1", {"c": "a b"}, ("--init",), "app:latest", ("-m", "agent"))
    variables, secrets = {"PET_NNODES": "2"}, {"TOKEN": "hush"}
    containers = [
        NodeContainer(name, node_name(name), "r1", "app:latest", "/r1", "", docker, variables, secrets) for name in "ab"
    ]
    plan = deploy_plan.steps(containers, {
        "a": PushPlan((), True, "already there", (HostFolder("/f/abc", "/workspace", "abc", "1 new or changed path"),)),
        "b": PushPlan(("sha256:0",), False, "9 of 10 layers are there"),
    }, "app:latest, made of x:1")  # fmt: skip
    assert deploy_plan.plan_lines(plan, containers) == [
        "a: send the folder to /f/abc (1 new or changed path)",
        "b: push app:latest, made of x:1 (9 of 10 layers are there)",
        "    docker load --quiet",
        "a: start a as muster-r1 (first, because the other nodes meet on it)",
        f"    {shlex.join(docker.argv)}",
        "b: start b as muster-r1 (meets a)",
        f"    {shlex.join(docker.argv)}",
        "a: variables, by standard input",
        "    PET_NNODES=2",
        "    TOKEN=(secret)",
        "b: variables, by standard input",
        "    PET_NNODES=2",
        "    TOKEN=(secret)",
    ]


@pytest.mark.parametrize(
    ("base", "words"), [("x:1", "muster-app:latest, made of x:1"), ("muster-bare:2-cpu-1", "muster-bare:2-cpu-1")]
)
def test_an_image_is_not_made_of_itself(base, words):
    """On a host without an engine, the image of a run is its environment."""
    tag = model.tag_of(base, Path("app"))
    assert Shipment(Cluster(()), (), {}, base, tag, None, NO_CHOICE).image == words

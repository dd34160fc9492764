"""`--min-nodes` on hosts: what each node must know about the others, the ports, and what is refused."""

import dataclasses
import json

import pytest

from deploy.core.errors import DeployError, UsageError
from deploy.hosts.node import container, group
from deploy.hosts.node.container import Meeting, Work
from deploy.hosts.start import plan
from deploy.hosts.start.resume import resume_fields
from deploy.job.cluster import from_flag
from deploy.job.load import load_cluster
from deploy.job.options import Job, Options
from deploy.preflight import PreflightRequest, judge
from deploy.preflight.answers import Link
from deploy.run.environment import GROUP
from lab.answers import answers
from tests.hosts import FACTS
from trainer.node.membership import min_nodes as agents
from trainer.node.variables import FIRST_FILE, event_file_of

pytestmark = pytest.mark.usefixtures("allowed")

ADDRESSES = ("10.0.0.1", "10.0.0.2", "10.0.0.3")
WORK = Work("r1", "app", token="7f3a", share_key="key", least=2, ports=(29600, 29602))


def made(work=WORK, gpus=(0, 0, 0), spares=(), arbiter=""):
    """The nodes of a run on three hosts; `gpus`: the number of ranks on each."""
    hosts = from_flag("a,b,c").hosts
    jobs = [Job(processes=count or "auto") for count in gpus]
    nodes = [
        container.node_containers(hosts, (FACTS,) * 3, job, work, Meeting("10.0.0.1", 29500, ("eth0",) * 3))[place]
        for place, job in enumerate(jobs)
    ]
    return group.with_groups(nodes, ADDRESSES, work, spares, arbiter)


def test_each_node_knows_all_addresses_and_ports_and_the_label_has_min_nodes():
    node = made()[2]
    plan = json.loads(node.environment[GROUP])
    assert (plan["least"], plan["key"], plan["nodes"]["b"]) == (2, "key", ["10.0.0.2", 29600, 29602])
    assert "muster.least=2" in node.argv
    assert not any("key" in word for word in node.argv), "the key goes by standard input, with the variables"
    assert GROUP not in made(dataclasses.replace(WORK, least=0))[0].environment
    waiting = made(spares=("c",))[0].environment[GROUP]
    assert json.loads(waiting)["spares"] == ["c"]
    assert agents.variables(json.loads(waiting), "c")["PET_NNODES"] == "2:2"
    # The agent of the third node uses its own address, and numbers its ranks' event files from its own first number.
    given = agents.variables(plan, "c", 4)
    assert (given["PET_LOCAL_ADDR"], given[FIRST_FILE]) == ("10.0.0.3", "8")
    file_of = event_file_of(plan, "c", 4)
    assert [file_of(rank) for rank in (0, 3, 8, 11)] == [8, 11, 8, 11]


def test_spares_come_last_wherever_they_were_named(tmp_path):
    (tmp_path / "cluster.toml").write_text("".join(f'[[hosts]]\nname = "{name}"\n' for name in "dabc"))
    in_file = Options(cluster=str(tmp_path / "cluster.toml"), spare="d")
    for options in (Options(hosts="a,b,c", spare="d"), Options(hosts="d,a,b,c", spare="d"), in_file):
        cluster = load_cluster(options)
        assert ([host.name for host in cluster.hosts], cluster.job.spares) == ([*"abcd"], ("d",))
    (spare,) = (host for host in load_cluster(Options(hosts="a,me@d:2222,b", spare="d")).hosts if host.name == "d")
    assert (spare.user, spare.port) == ("me", 2222), "named once, with what --hosts says of it"
    with pytest.raises(UsageError, match="no such host"):
        load_cluster(Options(cluster=str(tmp_path / "cluster.toml"), spare="e"))
    assert "--spare d" in resume_fields(Options(spare="d"))["again"]


def test_an_arbiter_comes_last_and_needs_no_gpus():
    cluster = load_cluster(Options(hosts="d,a,b", spare="c", arbiter="d", gpus="2"))
    assert [host.name for host in cluster.hosts] == [*"abcd"]
    assert ([host.gpus for host in cluster.hosts], cluster.job.arbiter) == ([2, 2, 2, 0], "d")
    nodes = made(gpus=(4, 4, 1), arbiter="c")
    plan = json.loads(nodes[0].environment[GROUP])
    assert (plan["arbiter"], agents.variables(plan, "a")["PET_NNODES"]) == ("c", "2:2")
    with pytest.raises(UsageError, match="one host is enough"):
        load_cluster(Options(hosts="a,b", arbiter="c,d"))


def test_hosts_with_different_numbers_of_ranks_are_refused_by_name():
    with pytest.raises(DeployError, match="a 4, b 4, c 2") as refused:
        made(gpus=(4, 4, 2))
    assert refused.value.hint.endswith("--nproc 2")


def test_the_ports_are_free_on_all_hosts():
    busy = [dataclasses.replace(FACTS, listening=frozenset(taken)) for taken in ({29600}, {29602}, set())]
    assert plan.choose_ports(busy, group.PORTS, 2) == (29601, 29603)
    with pytest.raises(DeployError, match="all in use"):
        plan.choose_ports([dataclasses.replace(FACTS, listening=frozenset(group.PORTS))], group.PORTS)


def test_the_flag_overrides_min_nodes_of_the_file_and_a_resume_repeats_it(tmp_path):
    (tmp_path / "cluster.toml").write_text('[[hosts]]\nname = "a"\n[job]\nmin_nodes = 3\n')
    file = str(tmp_path / "cluster.toml")
    assert load_cluster(Options(cluster=file)).job.min_nodes == "3"
    assert load_cluster(Options(cluster=file, min_nodes="2")).job.min_nodes == "2"
    assert "--min-nodes 2" in resume_fields(Options(min_nodes="2"))["again"]


def between(outcome, busy=()):
    """Preflight's verdict if it also connects to the nodes' own ports; `outcome`: the result for a target and port."""
    request = PreflightRequest(endpoint="10.0.0.1", ports=(29600, 29601))
    seen = answers(request)
    more = [
        Link(source, target, ADDRESSES["abc".index(target)], port, ("between",), outcome(target, port), host=target)
        for source in "abc"
        for target in "abc"
        if source != target
        for port in request.ports
    ]
    failed = {"b": {"failed": {str(port): {"error": "in-use", "holder": ""} for port in busy}}}
    listens = {host: {**listen, **failed.get(host, {})} for host, listen in seen.listens.items()}
    return judge(dataclasses.replace(seen, links=(*seen.links, *more), listens=listens))


def test_a_host_whose_firewall_closes_a_membership_port_is_named_before_the_start():
    assert between(lambda target, port: "ok").ok
    closed = between(lambda target, port: "dropped" if (target, port) == ("b", 29601) else "ok")
    assert (closed.cause, closed.hosts) == ("between-ports", ("b",))
    assert "TCP 29601" in closed.findings[0].text
    taken = between(lambda target, port: "stranger" if target == "b" else "ok", busy=(29600, 29601))
    assert (taken.cause, taken.hosts) == ("port-busy", ("b",))

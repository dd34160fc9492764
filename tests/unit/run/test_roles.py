"""A run of several roles: how the GPUs of this machine and of hosts are divided, and how many ranks a node has."""

from pathlib import Path

import pytest

from deploy.job.inventory import Host
from deploy.job.options import Options
from deploy.run import environment, roles

TEXTS = ("a=h1,gpus=2:python a.py", "b=h2+h3,gpus=0:python b.py", "c=h4:python c.py")
NAMES = ("h1", "h2", "h3", "h4")


def planned(*texts, hosts=()):
    return roles.read(Options(role=texts, script="x.py"), hosts)


def test_each_host_gives_its_role_as_many_gpus_as_it_asks_for_the_first_of_named_ones():
    hosts = (Host("h1", "h1", gpus=(3, 5, 6)), Host("h2", "h2", gpus=(1,)), *(Host(name, name) for name in NAMES[2:]))
    given = roles.with_gpus(hosts, planned(*TEXTS, hosts=NAMES))
    assert [host.gpus for host in given] == [(3, 5), 0, 0, "auto"]


def test_each_node_gets_the_gpus_of_its_role_or_a_share_of_the_remaining_ones():
    asked = [each.role.gpus for each in planned(*TEXTS) for _ in each.nodes]
    assert environment.shares(asked, 5) == [range(2), range(2, 2), range(2, 2), range(2, 5)]
    assert environment.shares(asked, 1) == [range(0), range(2, 2), range(2, 2), range(2, 2)]
    assert environment.shares([-1, -1], 5) == [range(2), range(2, 4)]


@pytest.mark.parametrize(
    ("text", "processes", "bare"),
    [
        ("a=1,port=80:python a.py", 1, True),  # even with eight GPUs: eight processes cannot share the port
        ("a=1,port=free:bash a.sh", "auto", True),
        ("a=1,port=80,processes=4:python a.py", 4, False),
        ("a=1,port=80:torchrun --nproc-per-node 2 a.py", 2, False),
        ("a=1,port=80:torchrun a.py", "auto", False),
        ("a=1:python a.py", "auto", True),
    ],
)
def test_a_server_is_one_process_unless_more_are_asked_for(tmp_path, monkeypatch, text, processes, bare):
    (tmp_path / "a.sh").touch()
    monkeypatch.chdir(tmp_path)
    (each,) = planned(text)
    assert (each.processes, each.bare) == (processes, bare)


def test_processes_in_cluster_toml_apply_to_the_role_that_ends_the_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    texts = ("a=1:python a.py", "b=1,ends,after=a:python b.py", "c=1:torchrun --nproc-per-node 3 c.py")
    ranks = {each.role.name: (each.processes, each.bare) for each in roles.read(Options(role=texts), (), 2)}
    assert ranks == {"a": ("auto", True), "b": (2, False), "c": (3, False)}
    (own,) = roles.read(Options(role=("a=1,processes=4:python a.py",)), (), 2)
    assert own.processes == 4


def test_on_this_machine_a_node_has_a_rank_per_gpu_unless_a_number_is_given():
    made = dict[str, int]()

    def make(world, port, ranks):
        made[world.role.name] = ranks
        nodes = (environment.NodeSpec("n", 0, {}),) * world.role.nodes
        return environment.RunSpec("r", Path("r"), 1, (), nodes)

    asked = planned("a=1,gpus=2:torchrun a.py", "b=2:torchrun b.py", "c=1,port=80:python c.py", "d=1,processes=3:x")
    shares = environment.shares([each.role.gpus for each in asked for _ in each.nodes], 11)
    nodes = roles.on_this_machine(asked, [("127.0.0.1", 1, 2)] * 5, shares, "k", make)
    assert made == {"a": 2, "b": 2, "c": 1, "d": 3}
    assert [(node.name, node.environment[environment.NODE]) for node in nodes] == [
        (name, name) for name in ("a", "b-0", "b-1", "c", "d")
    ]

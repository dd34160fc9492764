"""A Ray cluster as roles of a run."""

import shlex

import pytest

from deploy.core.errors import UsageError
from deploy.job.roles.cast import cast
from deploy.job.roles.ray import ray_roles


def bash_of(role):
    words = shlex.split(role.command)
    assert words[:2] == ["bash", "-c"]
    return words[2]


def test_the_first_host_is_the_head_and_runs_the_driver_which_ends_the_cluster():
    head, worker = cast(ray_roles(["a", "b", "c"], ["train_rl.py", "--lr", "it's 1"]), ["a", "b", "c"])
    assert (head.hosts, head.ends, head.restart) == (("a",), True, 0)
    assert bash_of(head).endswith("""&& exec python train_rl.py --lr 'it'"'"'s 1'""")
    assert ">= 3" in bash_of(head)
    assert (worker.hosts, worker.after, worker.separate, worker.restart) == (("b", "c"), ("head",), True, 100)


def test_without_a_driver_it_stays():
    head, _ = cast(ray_roles(["a", "b"], []), ["a", "b"])
    assert not head.ends
    assert bash_of(head).endswith("--block")


def test_one_host_is_a_cluster_too():
    assert len(ray_roles(["a"], ["python", "x.py"])) == 1
    with pytest.raises(UsageError):
        ray_roles([], [])


def test_its_dashboard_listens_on_loopback_alone():
    assert "--dashboard-host 127.0.0.1" in bash_of(cast(ray_roles(["a"], []), ["a"])[0])

"""A host that was not in a run joins it: what is read of the run's node, what the newcomer gets, what is refused."""

import json

import pytest

from deploy.config.inventory import Job, from_flag
from deploy.core.errors import BadAnswer, UsageError
from deploy.hosts import container, newcomer
from deploy.hosts.container import Meeting, Work
from deploy.run.environment import GROUP
from tests.hosts import FACTS
from trainer.node import group as agents

AGREED = {"least": 2, "key": "secret-key", "nodes": {"a": ["10.0.0.1", 29600, 29601]}, "apart": True}


def inspected(agreed=AGREED, **changed):
    environment = ["PET_NODE_RANK=0", "PET_RDZV_ID=r-1-7f3a", "PET_NPROC_PER_NODE=2", f"{GROUP}={json.dumps(agreed)}"]
    words = ["-c", "text", "sh", "-P", "-m", "trainer.node.agent", "--steps", "9"]
    return json.dumps({"Env": environment, "Cmd": words, "Labels": {"muster.start": "7f3a-0"}, **changed})


def made(place=3):
    host, work = from_flag("e").hosts[0], Work("r", "app", arguments=("--steps", "9"), token="7f3a", least=2)
    return container.newcomer(place, host, FACTS, Job(), work, Meeting("10.0.0.1", 29500, ("eth1",)))


def test_a_node_of_the_run_says_what_the_newcomer_needs():
    read = newcomer.template_of(inspected())
    assert (read.words, read.token, read.plan) == (("--steps", "9"), "7f3a", AGREED)
    assert GROUP not in read.variables


@pytest.mark.parametrize("odd", [{"Cmd": ["sleep"]}, {"Env": []}, {"Env": [f"{GROUP}=7"]}, {"Labels": None}])
def test_a_container_that_is_no_node_of_such_a_run_is_a_bad_answer(odd):
    with pytest.raises(BadAnswer):
        newcomer.template_of(inspected(**odd))


def test_the_newcomer_is_a_spare_with_the_runs_variables_and_its_own_place():
    earlier = {"joined": {"d": ["10.0.0.4", 29600, 2]}, "spares": ["d"]}
    agreed = {**AGREED, **earlier, "nodes": {**AGREED["nodes"], "d": ["10.0.0.4", 29600, 29600]}}
    given = newcomer.planned(newcomer.template_of(inspected(agreed)), "e", "10.0.0.5", 29602, 3, made())
    plan = json.loads(given[GROUP])
    assert list(plan["nodes"]) == ["a", "e"]
    assert plan["spares"] == ["e"]
    assert plan["joined"] == {"e": ["10.0.0.5", 29602, 3]}
    assert (given["MUSTER_NODE"], given["PET_NODE_RANK"], given["GLOO_SOCKET_IFNAME"]) == ("e", "3", "eth1")
    assert given["PET_RDZV_ID"] == "r-1-7f3a"
    assert agents.file_of(plan, "e", 2)(1) == 7


def test_the_key_is_not_in_the_command_and_the_labels_name_the_place():
    argv = made().argv
    assert "secret-key" not in " ".join(argv)
    assert {"muster.place=3", "muster.start=7f3a-3", "muster.node=e", "muster.least=2"} <= {*argv}


def test_the_options_of_the_deploy_are_repeated_and_those_that_a_newcomer_cannot_have_are_refused():
    found = newcomer.again("--folder 'my code' --image app --nproc 2 --env A=1 --min-nodes 2 --include a --include b")
    assert found == {
        "folder": "my code",
        "image": "app",
        "processes": "2",
        "include": ("a", "b"),
        "environment": ("A=1",),
    }
    with pytest.raises(UsageError, match="--secret cannot take a new host yet"):
        newcomer.again("--image app --secret TOKEN")


def test_another_image_is_refused():
    newcomer.refuse_other_image("r", '["sha256:1"]', '["sha256:1"]')
    with pytest.raises(UsageError, match="has changed since r began"):
        newcomer.refuse_other_image("r", '["sha256:1"]', '["sha256:2"]')


def test_a_host_of_the_run_gives_the_newcomer_no_variable_but_the_runs_own():
    odd = json.loads(inspected())
    odd["Env"] += [
        "LD_PRELOAD=/x.so",
        "PET_NO_PYTHON=1",
        "PYTHONSTARTUP=/x.py",
        "MUSTER_ON_END=curl x",
        "MUSTER_MAX_HOURS=3",
    ]
    given = newcomer.planned(newcomer.template_of(json.dumps(odd)), "e", "10.0.0.5", 29602, 3, made())
    assert not {"LD_PRELOAD", "PET_NO_PYTHON", "PYTHONSTARTUP", "MUSTER_ON_END"} & given.keys()
    assert given["MUSTER_MAX_HOURS"] == "3"


@pytest.mark.parametrize("recorded", [None, (), ("--steps", "8")])
def test_a_node_that_says_it_runs_something_else_is_refused(recorded):
    newcomer.refuse_other_arguments("r", ("--steps", "9"), ["--steps", "9"])
    with pytest.raises(UsageError, match="its node runs '--steps 9', and this machine has recorded"):
        newcomer.refuse_other_arguments("r", ("--steps", "9"), recorded)

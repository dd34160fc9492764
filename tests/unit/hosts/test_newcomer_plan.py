"""A new host joins a run: what is read from a node of the run, what the newcomer gets, and what is refused."""

import json

import pytest

from deploy.core.errors import BadAnswer, UsageError
from deploy.hosts.act import newcomer_plan
from deploy.hosts.node import container
from deploy.hosts.node.container import Meeting, Work
from deploy.job.cluster import from_flag
from deploy.job.options import Job, Options
from deploy.job.values import Secret
from deploy.run.environment import GROUP
from deploy.send.folder.content import WORKSPACE
from tests.hosts import FACTS
from trainer.node.variables import event_file_of

AGREED = {"least": 2, "key": "secret-key", "nodes": {"a": ["10.0.0.1", 29600, 29601]}, "apart": True}


def inspected(agreed=AGREED, **changed):
    environment = ["PET_NODE_RANK=0", "PET_RDZV_ID=r-1-7f3a", "PET_NPROC_PER_NODE=2", f"{GROUP}={json.dumps(agreed)}"]
    words = ["-c", "text", "sh", "-P", "-m", "muster.trainer.node", "agent", "--steps", "9"]
    return json.dumps({"Env": environment, "Cmd": words, "Labels": {"muster.start": "7f3a-0"}, **changed})


def made(place=3):
    host, work = from_flag("e").hosts[0], Work("r", "app", arguments=("--steps", "9"), token="7f3a", least=2)
    return container.newcomer(place, host, FACTS, Job(), work, Meeting("10.0.0.1", 29500, ("eth1",)))


def test_a_node_of_the_run_has_what_the_newcomer_needs():
    read = newcomer_plan.template_of(inspected())
    assert (read.words, read.token, read.plan) == (("--steps", "9"), "7f3a", AGREED)
    assert GROUP not in read.variables


@pytest.mark.parametrize("odd", [{"Cmd": ["sleep"]}, {"Env": []}, {"Env": [f"{GROUP}=7"]}, {"Labels": None}])
def test_a_container_that_is_not_a_node_of_such_a_run_is_a_bad_answer(odd):
    with pytest.raises(BadAnswer):
        newcomer_plan.template_of(inspected(**odd))


def test_the_newcomer_is_a_spare_with_the_runs_variables_and_its_own_place():
    earlier = {"joined": {"d": ["10.0.0.4", 29600, 2]}, "spares": ["d"]}
    agreed = {**AGREED, **earlier, "nodes": {**AGREED["nodes"], "d": ["10.0.0.4", 29600, 29600]}}
    given = newcomer_plan.planned(newcomer_plan.template_of(inspected(agreed)), "e", "10.0.0.5", 29602, 3, made())
    plan = json.loads(given[GROUP])
    assert list(plan["nodes"]) == ["a", "e"]
    assert plan["spares"] == ["e"]
    assert plan["joined"] == {"e": ["10.0.0.5", 29602, 3]}
    assert (given["MUSTER_NODE"], given["PET_NODE_RANK"], given["GLOO_SOCKET_IFNAME"]) == ("e", "3", "eth1")
    assert given["PET_RDZV_ID"] == "r-1-7f3a"
    assert event_file_of(plan, "e", 2)(1) == 7


def test_the_key_is_not_in_the_command_and_the_labels_name_the_place():
    argv = made().argv
    assert "secret-key" not in " ".join(argv)
    assert {"muster.place=3", "muster.start=7f3a-3", "muster.node=e", "muster.least=2"} <= {*argv}


def test_the_deploys_options_are_repeated_and_those_not_possible_for_a_newcomer_are_refused():
    found = newcomer_plan.again(
        "--folder 'my code' --image app --nproc 2 --env A=1 --min-nodes 2 --include a --restarts 3 --include b"
    )
    assert found == Options(folder="my code", image="app", nproc="2", include=("a", "b"), env=("A=1",), restarts="3")
    with pytest.raises(UsageError, match="--secret cannot take a new host yet"):
        newcomer_plan.again("--image app --secret TOKEN")


def test_settings_of_cluster_toml_that_a_newcomer_cannot_have_are_refused():
    newcomer_plan.refuse_file(Job())
    with pytest.raises(UsageError, match="--secret cannot take a new host yet"):
        newcomer_plan.refuse_file(Job(secrets=(Secret("TOKEN", None),)))
    with pytest.raises(UsageError, match="--overlay cannot take a new host yet"):
        newcomer_plan.refuse_file(Job(overlay=True))


@pytest.mark.parametrize(
    ("ours", "what"),
    [
        (("2", None, "7", "9"), "the image changed since r began:"),
        (("1", "5", "7", "9"), "the folder changed since r began:"),
        (("1", None, "8", ""), "Muster itself and the packages changed since r began:"),
    ],
)
def test_an_image_or_folder_that_changed_since_the_run_began_is_named(ours, what):
    theirs = ("1", None, "7", "9")
    newcomer_plan.refuse_other_image("r", theirs, theirs)
    with pytest.raises(UsageError, match=what):
        newcomer_plan.refuse_other_image("r", theirs, ours)


def test_a_newcomer_takes_only_the_runs_own_variables_from_a_host():
    odd = json.loads(inspected())
    odd["Env"] += [
        "LD_PRELOAD=/x.so",
        "PET_NO_PYTHON=1",
        "PYTHONSTARTUP=/x.py",
        "MUSTER_ON_END=curl x",
        "MUSTER_MAX_HOURS=3",
    ]
    given = newcomer_plan.planned(newcomer_plan.template_of(json.dumps(odd)), "e", "10.0.0.5", 29602, 3, made())
    assert not {"LD_PRELOAD", "PET_NO_PYTHON", "PYTHONSTARTUP", "MUSTER_ON_END"} & given.keys()
    assert given["MUSTER_MAX_HOURS"] == "3"


@pytest.mark.parametrize("recorded", [None, (), ("--steps", "8")])
def test_a_node_with_arguments_other_than_the_recorded_ones_is_refused(recorded):
    newcomer_plan.refuse_other_arguments("r", ("--steps", "9"), ["--steps", "9"])
    with pytest.raises(UsageError, match="its node runs '--steps 9', but this machine has recorded"):
        newcomer_plan.refuse_other_arguments("r", ("--steps", "9"), recorded)


def test_a_scripts_newcomer_shares_files_with_the_others_from_its_own_sent_folder():
    agreed = json.loads(inspected())
    agreed["Env"] += ["MUSTER_SHARE_KEY=00ff", "MUSTER_SENT=/etc"]
    host, work = from_flag("e").hosts[0], Work("r", "app", script=("t.py",), token="7f3a", least=2, sent=True)
    of_script = container.newcomer(3, host, FACTS, Job(), work, Meeting("10.0.0.1", 29500, ("eth1",)))
    given = newcomer_plan.planned(newcomer_plan.template_of(json.dumps(agreed)), "e", "10.0.0.5", 29602, 3, of_script)
    assert given["MUSTER_SHARE_KEY"] == "00ff"
    assert given["MUSTER_SENT"] == of_script.environment["MUSTER_SENT"] == WORKSPACE

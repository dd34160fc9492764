"""What each host runs, as text: the complete `docker run` and environment, with no secret in either."""

import base64
import dataclasses
import json
import shlex
from pathlib import Path
from types import SimpleNamespace

import pytest

from deploy.core.errors import UsageError
from deploy.core.results import Results
from deploy.host.gpus import Gpus, GpuUse
from deploy.hosts.node import container
from deploy.hosts.node.container import Meeting, Work
from deploy.hosts.start import gpu_claims, observe
from deploy.job.cluster import from_flag
from deploy.job.load import load_cluster
from deploy.job.options import Job, Options
from deploy.job.values import Mount, Secret
from tests.hosts import FACTS

MEETING = Meeting("10.0.0.1", 29500, ("eth0", "ib0"))
WORK = Work("r1", "muster-app:latest", ("train.py", "--lr", "3e-4"), secrets={"HF_TOKEN": "hush"}, token="7f3a")


def made(work=WORK, job=None, host=None, **facts):
    fact = dataclasses.replace(FACTS, **facts)
    hosts = [dataclasses.replace(container, **(host or {})) for container in from_flag("a,b").hosts]
    return container.node_containers(hosts, (fact, fact), job or Job(), work, MEETING)


def test_the_whole_command_of_a_host():
    assert shlex.join(made()[1].argv) == (
        "docker run --detach --pull never --name muster-r1 --label muster.format=2 "
        "--label muster.run=r1 --label muster.user=u "
        "--label muster.start=7f3a-1 --label muster.node=b "
        "--label muster.place=1 --label muster.nodes=2 --label muster.port=29500 "
        "--label 'muster.command=train.py --lr 3e-4' --label muster.claim=7f3a "
        "--label muster.secrets=HF_TOKEN "
        "--stop-timeout 60 --log-driver json-file --log-opt max-size=50m --log-opt max-file=2 "
        "--volume /home/u/.muster/runs/r1:/muster/run --network host --init --no-healthcheck --user 1001:1001 "
        "--security-opt no-new-privileges --shm-size 8589934592b --memory 16106127360b "
        "--pids-limit 32768 --ulimit nofile=1048576:1048576 "
        "--mount type=bind,source=/home/u/.muster/cache/1001,target=/muster/cache "
        "--ulimit core=0 --env-file /dev/stdin "
        "--entrypoint sh muster-app:latest -c "
        '\'for name in python python3; do command -v $name >/dev/null && exec $name "$@"; done; '
        "echo no python in this image >&2; exit 127' sh -P -m muster.trainer.node agent --script train.py --lr 3e-4"
    )


def test_the_whole_environment_of_both_hosts():
    first, second = (container.environment for container in made())
    assert first == {
        "PET_NNODES": "2",
        "PET_NPROC_PER_NODE": "1",
        "PET_NODE_RANK": "0",
        "PET_RDZV_BACKEND": "c10d",
        "PET_RDZV_ENDPOINT": "10.0.0.1:29500",
        "PET_RDZV_ID": "r1-1-7f3a",
        "PET_RDZV_CONF": "is_host=1,last_call_timeout=1,keep_alive_interval=1,keep_alive_max_attempt=5,join_timeout=60",
        "PET_MAX_RESTARTS": "0",
        "PET_MONITOR_INTERVAL": "0.1",
        "PET_SHUTDOWN_TIMEOUT": "20",
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
        "GLOO_SOCKET_IFNAME": "eth0",
        "NCCL_SOCKET_IFNAME": "=eth0",
        "OMP_NUM_THREADS": "8",
        "MUSTER_RUN_ID": "r1",
        "MUSTER_RUN_DIR": "/muster/run",
        "MUSTER_NODE": "a",
        "MUSTER_SECRET_NAMES": "HF_TOKEN",
        "MUSTER_RESUME_COMMAND": "muster deploy --resume r1",
        "MUSTER_SAVE_CHANGES": "1",
    }
    differ = {name: value for name, value in second.items() if first[name] != value}
    assert differ == {
        "PET_NODE_RANK": "1",
        "PET_RDZV_CONF": first["PET_RDZV_CONF"].replace("is_host=1", "is_host=0"),
        "GLOO_SOCKET_IFNAME": "ib0",
        "NCCL_SOCKET_IFNAME": "=ib0",
        "MUSTER_NODE": "b",
    }


@pytest.mark.parametrize(("given", "gets"), [("/app:/lib", "/muster:/app:/lib"), ("", "/muster")])
def test_a_python_path_of_the_users_does_not_hide_the_agent(given, gets):
    environment = made(dataclasses.replace(WORK, environment={"PYTHONPATH": given}))[0].environment
    assert environment["PYTHONPATH"] == gets


def test_a_secret_goes_by_standard_input_and_is_nowhere_else():
    container = made()[0]
    variables, secrets = (base64.b64decode(line) for line in container.input.splitlines())
    assert json.loads(secrets) == {"HF_TOKEN": "hush"}
    assert b"MUSTER_RUN_ID=r1\n" in variables
    assert b"hush" not in variables
    assert "hush" not in shlex.join(container.argv)
    assert "hush" not in repr(container)
    assert "HF_TOKEN" not in container.environment


def test_a_run_without_secrets_waits_for_none_and_may_dump_a_core():
    container = made(dataclasses.replace(WORK, secrets={}))[0]
    assert base64.b64decode(container.input.splitlines()[1]) == b""
    assert "MUSTER_SECRET_NAMES" not in container.environment
    assert not {"core=0", "muster.secrets="} & set(container.argv)


def test_containers_get_rdma_devices_and_memlock_only_if_the_host_has_rdma():
    assert "memlock=-1:-1" not in made()[0].argv
    assert "/dev/infiniband" in made(rdma=True)[0].argv
    assert "memlock=-1:-1" in made(rdma=True)[0].argv


@pytest.mark.parametrize(
    ("gpus", "picked", "options", "ranks"),
    [
        ("ab", False, ("--gpus", "all"), "2"),
        ("b", True, ("--gpus", '"device=GPU-b"'), "1"),
        ("ab", True, ("--gpus", '"device=GPU-a,GPU-b"'), "2"),
        ("", True, (), "1"),
    ],
)
def test_a_container_has_the_chosen_gpus_by_uuid_and_as_many_ranks(gpus, picked, options, ranks):
    chosen = tuple(GpuUse(index, f"GPU-{letter}", "A", 0, 1, 0) for index, letter in enumerate(gpus))
    container = made(picked=picked, gpus=chosen)[0]
    argv = container.argv
    assert (f"muster.gpus={','.join(gpu.uuid for gpu in chosen)}" in argv) == bool(gpus)
    assert argv[argv.index("--gpus") : argv.index("--gpus") + 2] == options if options else "--gpus" not in argv
    assert container.environment["PET_NPROC_PER_NODE"] == ranks


@pytest.mark.parametrize("typed", [{"env": ("CUDA_VISIBLE_DEVICES=3,1",)}, {"cluster": "of.toml"}])
def test_a_run_has_the_gpus_of_cuda_visible_devices_and_a_rank_for_each(typed, tmp_path, monkeypatch, allowed):
    """Once, every GPU of the host got a rank: two of four failed with `invalid device ordinal`."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "of.toml").write_text('hosts = ["a"]\n[job.environment]\nCUDA_VISIBLE_DEVICES = "3,1"\n')
    (host,) = load_cluster(Options(hosts="a", **typed)).hosts
    four = tuple(GpuUse(index, f"GPU-{letter}", "A", 0, 1, 0) for index, letter in enumerate("abcd"))
    monkeypatch.setattr(observe.host_facts, "parse", lambda *_: dataclasses.replace(FACTS, gpus=four))
    session = SimpleNamespace(name="a", host=host, called_at="")
    facts = observe._read(Results({"a": ""}), session)
    choice = gpu_claims.planned_choices([session], {"a": Gpus(four)})["a"]
    facts = gpu_claims.with_choice(facts, choice)
    (node,) = container.node_containers([host], (facts,), Job(), WORK, MEETING)
    assert [gpu.index for gpu in choice.gpus] == [3, 1]
    assert '"device=GPU-d,GPU-b"' in node.argv
    assert node.environment["CUDA_VISIBLE_DEVICES"] == "GPU-d,GPU-b", "the container counts its own from 0"
    assert node.environment["PET_NPROC_PER_NODE"] == "2"


def test_the_open_files_limit_is_no_higher_than_the_engine_allows():
    assert "nofile=1048576:1048576" in made()[0].argv
    assert "nofile=65536:65536" in made(open_files=65536)[0].argv


def test_mounts_of_the_job_and_the_host_are_merged_and_the_hosts_win():
    job = Job(cache=False, mounts=(Mount("/data", "/data", True), Mount("/old", "/scratch", False)))
    argv = made(job=job, host={"mounts": (Mount('/a,b "c"', "/scratch", False),)})[0].argv
    options = [argv[place + 1] for place, word in enumerate(argv) if word == "--mount"]
    wanted = ["type=bind,source=/data,target=/data,readonly", 'type=bind,"source=/a,b ""c""",target=/scratch']
    assert options == wanted


def test_a_secret_file_is_in_memory_that_only_the_runs_user_can_read():
    job = Job(secrets=(Secret("account.json", Path("a"), as_file=True), Secret("KEY", None)))
    node = made(dataclasses.replace(WORK, secrets={"account.json": "x" * 9, "KEY": "y" * 9}), job=job)[0]
    folder = node.argv[node.argv.index("--tmpfs") + 1]
    assert folder.startswith("/run/secrets:mode=0700,uid=1001,gid=1001,")
    assert node.environment["MUSTER_SECRET_FILES"] == "account.json"
    assert node.environment["MUSTER_SECRET_NAMES"] == "KEY,account.json"
    assert not any("xxxx" in word for word in node.argv)


def test_a_root_login_runs_as_the_chosen_user_number_and_never_without_one():
    container = made(uid=0, gid=0, job=Job(user=70001))[0]
    assert container.owner == "70001:70001"
    assert container.argv[container.argv.index("--user") + 1] == "70001:70001"
    with pytest.raises(ValueError, match="root"):
        made(uid=0, gid=0)
    assert made()[0].owner == ""


def test_the_trainers_own_recipe_restarts_and_a_script_does_not():
    recipe = made(Work("r1", "i", arguments=("--recipe", "digits")))[0]
    assert recipe.argv[-2:] == ("--recipe", "digits")
    assert "--script" not in recipe.argv
    assert recipe.environment["PET_MAX_RESTARTS"] == "100"


@pytest.mark.parametrize(("restarts", "count"), [(None, "2"), (0, "0"), (5, "5")])
def test_a_script_restarts_as_often_as_asked_whatever_the_files_variables_say(restarts, count):
    job = Job(environment={"PET_MAX_RESTARTS": "2"})
    node = made(dataclasses.replace(WORK, restarts=restarts), job=job)[0]
    assert node.environment["PET_MAX_RESTARTS"] == count
    assert (f"on-failure:{count}" in node.argv) == (count != "0")


@pytest.mark.parametrize(
    ("changes", "shares"),
    [
        ({}, True),
        ({"restarts": 0}, False),
        ({"restarts": 0, "start": 2}, True),
        ({"sent": False}, False),
        ({"script": (), "arguments": ()}, False),
    ],
    ids=["a script", "never started again", "resumed", "in its image", "Muster's own trainer"],
)
def test_nodes_of_a_script_that_may_restart_share_one_key_for_its_files(changes, shares):
    work = dataclasses.replace(WORK, **{"restarts": 3, "sent": True, "share_key": "k" * 32, **changes})
    keys = [node.environment.get("MUSTER_SHARE_KEY") for node in made(work)]
    assert len(keys) > 1
    assert keys == ["k" * 32 if shares else None] * len(keys)


def test_a_variable_of_several_lines_is_refused_by_name_without_its_value():
    with pytest.raises(UsageError, match="KEY") as caught:
        made(dataclasses.replace(WORK, environment={"KEY": "line\nhush"}))
    assert "hush" not in caught.value.message


def test_kept_paths_are_folders_of_the_run_that_containers_cannot_replace():
    node = made(job=Job(keep=("/data/out",)))[0]
    mounts = [node.argv[index + 1] for index, word in enumerate(node.argv) if word == "--mount"]
    assert mounts == [
        "type=bind,source=/home/u/.muster/runs/r1/keep,target=/muster/run/keep,readonly",
        "type=bind,source=/home/u/.muster/runs/r1/keep/data/out,target=/data/out",
        "type=bind,source=/home/u/.muster/cache/1001,target=/muster/cache",
    ]
    assert node.keep == ("/data/out",)

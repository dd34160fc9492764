"""A run as a JobSet and as a TrainJob: each field exists in the published models, and Muster's promises hold."""

import os
import re
import shlex
from pathlib import Path

import pytest

from deploy.core.errors import UsageError
from deploy.job import consent
from deploy.job.options import Options
from deploy.job.values import Mount
from deploy.report.console import Console
from deploy.slurm import export, pods
from tests import pods as read
from trainer.node.roles import plan

KINDS = pytest.mark.parametrize("kind", pods.KINDS)
# The ways in which users start a script.
FORMS = (
    "train.py --lr 3e-4",
    "python train.py",
    "python3 -u train.py",
    "python -m pkg.train",
    "torchrun train.py",
    "torchrun --nproc-per-node 2 train.py",
    "torchrun --nproc-per-node 2 -m pkg.train",
    "python -m torch.distributed.run train.py",
    "accelerate launch train.py",
    "deepspeed train.py --deepspeed",
    "bash run.sh",
    "./train.py",
)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pkg").mkdir()
    for name in ("train.py", "run.sh", "pkg/train.py", "pkg/__init__.py"):
        (tmp_path / name).write_text("")
    return tmp_path


def exported(capsys, **given):
    usual = {"image": "registry.example/team/train:1" if given.get("to") else "", "script": "train.py"}
    options = Options(**{"nodes": "2" if given.get("script", "x") else "", **usual, **given})
    assert export.export(options, None) == 0
    return capsys.readouterr().out


@KINDS
@pytest.mark.parametrize("form", FORMS)
def test_each_form_of_a_command_is_valid_and_reaches_the_agent_as_parsed(kind, form, folder, capsys):
    (first, second) = read.pods(exported(capsys, to=kind, script=form))
    name, image, command, env, _ = first
    assert (name, second[0]) == (f"{name.split('.')[1]}-node-0-0.{name.split('.')[1]}", name.replace("-0-0.", "-0-1."))
    assert command[:7] == ["tini", "--", "python", "-P", "-m", "muster.trainer.node", "agent"]
    assert command[7] == "--script"
    assert image == "registry.example/team/train:1"
    ranks = "2" if "nproc" in form else "1"
    wanted = {"PET_NNODES": "2", "PET_NPROC_PER_NODE": ranks, "PET_MASTER_ADDR": name, "PET_NODE_RANK": "0"}
    assert wanted.items() <= env.items()
    assert second[3]["PET_NODE_RANK"] == "1"
    assert env["MUSTER_SENT"] == "/workspace"


@KINDS
def test_the_dockerfile_of_the_page_is_the_one_that_the_manifest_names(kind, folder, capsys):
    page = (Path(__file__).resolve().parents[3] / "docs/how-to/kubernetes.md").read_text()
    block = re.search(r"^```\n(FROM .*?)^```", page, re.MULTILINE | re.DOTALL)[1]
    assert "".join(f"#   {line}\n" for line in block.splitlines()) in exported(capsys, to=kind)


def job_of(kind, made):
    top = read.objects(pods.manifest(kind, made))
    top = top["JobSet"]["spec"] if kind == "jobset" else top["TrainingRuntime"]["spec"]["template"]["spec"]
    return top["replicatedJobs"][0]["template"]["spec"]


@KINDS
def test_a_stop_does_not_count_as_a_failure_and_a_failure_ends_the_job(kind):
    job = job_of(kind, pods.PodSet("train", "i", (pods.Group(("--script", "t.py"), 2, restarts=3),)))
    rules = {tuple(rule["onExitCodes"]["values"]): rule["action"] for rule in job["podFailurePolicy"]["rules"][::2]}
    assert rules == {(75,): "Ignore", (1, 2): "FailJob"}
    assert job["podFailurePolicy"]["rules"][1]["onPodConditions"][0]["type"] == "DisruptionTarget"
    assert (job["backoffLimit"], job["template"]["spec"]["restartPolicy"]) == (3, "Never")
    assert job["completionMode"] == "Indexed"


@KINDS
def test_pods_get_gpus_shared_memory_a_volume_claim_mounts_and_secret_references(kind):
    made = pods.PodSet(
        "train", "i", (pods.Group(("--script", "t.py"), 2, 8, 8),), secrets={"HF_TOKEN": "hf"}, claim="runs",
        mounts=(Mount("/data", "/data", True),), variables={"MUSTER_GRACE": "300"},
    )  # fmt: skip
    spec = job_of(kind, made)["template"]["spec"]
    container, volumes = spec["containers"][0], {each["name"]: each for each in spec["volumes"]}
    assert container["resources"]["limits"] == {"nvidia.com/gpu": "8"}
    assert volumes["shm"]["emptyDir"]["medium"] == "Memory"
    assert volumes["runs"]["persistentVolumeClaim"]["claimName"] == "runs"
    assert volumes["mount-0"]["hostPath"] == {"path": "/data", "type": "Directory"}
    hidden = next(each for each in container["env"] if each["name"] == "HF_TOKEN")
    assert hidden["valueFrom"]["secretKeyRef"] == {"name": "hf", "key": "HF_TOKEN"}
    assert spec["terminationGracePeriodSeconds"] == 360
    assert spec["securityContext"]["runAsNonRoot"] is True


@KINDS
def test_musters_own_trainer_needs_no_folder_and_no_gpu(kind):
    made = pods.PodSet("digits", "i", (pods.Group(("--recipe", "digits")),), sent=False)
    (_, _, command, env, _), *more = read.pods(pods.manifest(kind, made))
    assert (command[-2:], "MUSTER_SENT" in env, more) == (["--recipe", "digits"], False, [])
    assert "resources" not in job_of(kind, made)["template"]["spec"]["containers"][0]


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ({"to": "jobset", "image": ""}, "--to jobset cannot be used without --image"),
        ({"to": "nomad"}, "neither sbatch, jobset nor trainjob"),
        ({"to": "jobset", "slurm": "-t 1"}, "--slurm cannot be used with --to jobset"),
        ({"to": "trainjob", "setup": ("module load cuda",)}, "--setup cannot be used with --to trainjob"),
        ({"to": "jobset", "max_hours": "2"}, "--max-hours cannot be used with --to jobset"),
        ({"secret": ("HF_TOKEN=hf",)}, "--secret cannot be used without --to jobset or trainjob"),
        ({"to": "jobset", "secret": ("HF_TOKEN",)}, "not NAME=SECRET"),
        ({"to": "jobset", "script": "missing.py"}, "missing.py"),
        ({"to": "jobset", "mount": ("/a:/d", "/b:/d")}, "two folders have the same target, /d"),
    ],
)
def test_options_that_a_manifest_cannot_express_are_refused_by_name(folder, capsys, given, what):
    with pytest.raises(UsageError, match=what):
        exported(capsys, **given)


@KINDS
def test_a_script_that_no_pod_has_is_refused_and_one_in_a_mount_is_not(kind, folder, tmp_path_factory, capsys):
    """Its path is one of this machine; each pod once ended with "no such file", even below /workspace."""
    other = tmp_path_factory.mktemp("other") / "other.py"
    other.write_text("")
    for path in (str(other), os.path.relpath(other)):
        with pytest.raises(UsageError, match=r"the folder that the image holds as /workspace") as refused:
            exported(capsys, to=kind, image="x", script=path)
        assert os.path.dirname(path) in refused.value.hint
    made = exported(capsys, to=kind, image="x", script=str(other), mount=(f"/data:{other.parent}",))
    assert str(other) in str(made)
    made = exported(capsys, to=kind, image="x", script="/data/train.py", mount=("/nfs:/data",))
    assert "/data/train.py" in str(made)  # this machine need not have it
    assert "train.py" in str(exported(capsys, to=kind, image="x", script=str(folder / "train.py")))


@KINDS
@pytest.mark.parametrize(("text", "restarts"), [("3", 3), ("x", 0), ("", 0)])
def test_torchruns_max_restarts_variable_sets_how_often_pods_are_replaced(kind, text, restarts, folder, capsys):
    """Earlier, a text that is no number ended the command with a traceback; on hosts it counts as 0."""
    text = exported(capsys, to=kind, env=(f"PET_MAX_RESTARTS={text}",))
    assert f"backoffLimit: {restarts}\n" in text


@pytest.mark.parametrize("to", ["", "jobset"])
@pytest.mark.parametrize("given", [{"script": "train.py --token hf_0123456789"}, {"env": ("HF_TOKEN=hf_9876543210",)}])
def test_a_secret_never_gets_into_the_file(folder, capsys, monkeypatch, to, given):
    monkeypatch.setenv("HF_TOKEN", "hf_0123456789")
    with pytest.raises(UsageError, match="HF_TOKEN") as refused:
        exported(capsys, to=to, image="i" * bool(to), **given)
    assert "--secret HF_TOKEN" in refused.value.hint
    assert capsys.readouterr().out == ""


def test_a_name_is_valid_for_pods():
    assert pods.name_of("2026-11-28-My_Train.py") == "my-train-py"
    assert len(pods.name_of("a" * 200)) == 40
    role = "rollout-of-many-workers"
    # JobSet refuses a name if its longest pod name, with the suffix of five letters that makes it unique, exceeds 63
    # letters.
    assert len(f"{pods.name_of('a' * 200, [role])}-{role}-0-9999-abcde") == 63
    with pytest.raises(UsageError):
        pods.name_of("123")


@KINDS
@pytest.mark.parametrize("name", ["on", "null", "y", "true"])
def test_a_name_that_yaml_would_read_as_another_value_is_quoted(kind, name, folder, capsys):
    secret = (f"{name}=1e3",)
    text = exported(
        capsys, to=kind, script="", role=(f"{name}=1:python train.py",), run=name, secret=secret, shared="7"
    )
    read.objects(text)
    ((pod, _, _, env, _),) = read.pods(text, {name: "x", "MUSTER_ROLES_KEY": "k"})
    assert (pod, env[name]) == (f"{name}-{name}-0-0.{name}", "x")
    assert 'claimName: "7"' in text


@KINDS
@pytest.mark.parametrize("word", ["$(HOME)", "$$x", "a: b", "#x", "'", '"', "\\", "é😀", "\u2028", "{a}", "- x", "$"])
def test_every_word_reaches_the_agent_unchanged(kind, word):
    made = pods.PodSet("train", "i", (pods.Group(("--script", "t.py", word)),), variables={"OWN": word})
    ((_, _, command, env, _),) = read.pods(pods.manifest(kind, made))
    assert (command[-1], env["OWN"]) == (word, word), shlex.quote(word)


ROLES = (
    "reward=1,port=8000,ready=port,gpus=0,restart=3:python train.py",
    "rollout=2,port=free,separate,after=reward:python train.py",
    "trainer=2,after=rollout,ends:torchrun --nproc-per-node 4 train.py",
)


@KINDS
def test_each_role_is_a_separate_job_whose_pods_know_the_others_by_name(kind, folder, capsys):
    made = read.pods(exported(capsys, to=kind, script="", role=ROLES, run="rl", gpus="4"), {"MUSTER_ROLES_KEY": "k"})
    assert [name for name, *_ in made] == [
        "rl-reward-0-0.rl", "rl-rollout-0-0.rl", "rl-rollout-0-1.rl", "rl-trainer-0-0.rl", "rl-trainer-0-1.rl",
    ]  # fmt: skip
    reward, _, second, first, last = (env for _, _, _, env, _ in made)
    known = plan.read(reward["MUSTER_ROLES"]).variables("rollout-1")
    assert known["MUSTER_REWARD_ADDRESSES"] == "rl-reward-0-0.rl:8000"
    assert known["MUSTER_ROLLOUT_ADDRESSES"] == "rl-rollout-0-0.rl:29700,rl-rollout-0-1.rl:29700"
    assert len({env["MUSTER_ROLES"] for *_, env, _ in made}) == 1
    assert (reward["MUSTER_ROLE"], second["MUSTER_ROLE"], last["MUSTER_ROLE"]) == ("reward", "rollout", "trainer")
    assert (second["PET_NNODES"], second["PET_NODE_RANK"], second["MUSTER_ROLE_INDEX"]) == ("1", "0", "1")
    assert second["PET_MASTER_ADDR"] == "rl-rollout-0-1.rl"
    assert (first["PET_NNODES"], last["PET_NODE_RANK"], last["PET_MASTER_ADDR"]) == ("2", "1", "rl-trainer-0-0.rl")
    assert (reward["PET_NPROC_PER_NODE"], second["PET_NPROC_PER_NODE"], last["PET_NPROC_PER_NODE"]) == ("1", "1", "4")
    assert (reward["PET_MAX_RESTARTS"], last["PET_MAX_RESTARTS"]) == ("3", "0")


@KINDS
def test_a_role_gets_the_gpus_that_it_asks_for(kind, folder, capsys):
    top = read.objects(exported(capsys, to=kind, script="", role=ROLES, gpus="4"))
    spec = top["JobSet"]["spec"] if kind == "jobset" else top["TrainingRuntime"]["spec"]["template"]["spec"]
    limits = [
        job["template"]["spec"]["template"]["spec"]["containers"][0].get("resources") for job in spec["replicatedJobs"]
    ]
    assert limits == [None, *[{"limits": {"nvidia.com/gpu": "4"}}] * 2]


def test_the_trainer_of_a_train_job_is_the_role_that_ends_the_run(folder, capsys):
    objects = read.objects(exported(capsys, to="trainjob", script="", role=ROLES))
    assert objects["TrainJob"]["spec"]["trainer"] == {"numNodes": 2, "numProcPerNode": 4}
    with pytest.raises(UsageError, match="the 2 nodes of a TrainJob train together"):
        exported(capsys, to="trainjob", script="", role=(*ROLES[:1], "main=2,separate,ends:python train.py"))


@KINDS
def test_a_script_next_to_roles_gets_the_number_of_nodes_asked_for(kind, folder, capsys):
    made = read.pods(exported(capsys, to=kind, role=ROLES[:1], run="rl"), {"MUSTER_ROLES_KEY": "k"})
    assert [name for name, *_ in made] == ["rl-reward-0-0.rl", "rl-main-0-0.rl", "rl-main-0-1.rl"]


def test_roles_come_from_cluster_toml_and_slurm_has_none(folder, capsys):
    (folder / "cluster.toml").write_text(
        'hosts = ["a", "b"]\n[[role]]\nname = "reward"\ncommand = "python train.py"\nport = 1\n'
        '[[role]]\nname = "trainer"\ncommand = "python train.py"\nends = true\n'
    )
    with consent.asking(consent.ConsentGate(Console, allow=True)):
        made = read.pods(exported(capsys, to="jobset", script="", run="rl"), {"MUSTER_ROLES_KEY": "k"})
        assert [name for name, *_ in made] == ["rl-reward-0-0.rl", "rl-trainer-0-0.rl"]
        with pytest.raises(UsageError, match="--role cannot be used without --to jobset or trainjob"):
            exported(capsys, script="")


def test_a_name_leaves_room_for_the_longest_role():
    assert len(pods.name_of("a" * 200, ["x" * 31, "y"])) + len("-" + "x" * 31 + "-0-9999") <= 63

"""Reads what `muster export --to` prints with its published models, and runs its pods as local Docker containers.

A container gets what a pod would get: its command and variables as Kubernetes expands them, its volumes, and the names
of the other pods. Of a JobSet's controller, only this is imitated: one pod for each index.
"""

import re
import subprocess

import yaml
from kubeflow_trainer_api import models

MODELS = {
    "JobSet": models.JobsetV1alpha2JobSet,
    "TrainJob": models.TrainerV1alpha1TrainJob,
    "TrainingRuntime": models.TrainerV1alpha1TrainingRuntime,
}
_REFERENCE = re.compile(r"\$(\$|\(([A-Za-z_][A-Za-z0-9_]*)\))")


def objects(text):
    """The objects of the text by their kind, each checked against its published model."""
    found = {each["kind"]: each for each in yaml.safe_load_all(text)}
    for kind, each in found.items():
        model = MODELS[kind].from_dict(each)
        lost = _beyond(each, model.to_dict())
        assert not lost, f"{kind}: the model has no {lost}"
    return found


def _beyond(given, known, path=""):
    """The fields that the model dropped: it ignores unknown fields silently."""
    if isinstance(given, dict):
        if not isinstance(known, dict):
            return [path]
        return [lost for key, value in given.items() for lost in _beyond(value, known.get(key), f"{path}.{key}")]
    if isinstance(given, list):
        if not isinstance(known, list) or len(given) != len(known):
            return [path]
        return [lost for one, other in zip(given, known, strict=True) for lost in _beyond(one, other, path)]
    return [] if given == known else [path]


def pods(text, secrets=None):
    """For each pod of the text: its name for the other pods, its image, command, variables and mounts."""
    found = objects(text)
    top = found.get("JobSet") or found["TrainingRuntime"]
    spec = top["spec"] if "JobSet" in found else top["spec"]["template"]["spec"]
    name = (found.get("JobSet") or found["TrainJob"])["metadata"]["name"]
    trainer = found["TrainJob"]["spec"]["trainer"] if "TrainJob" in found else {}
    return [
        pod
        for replicated in spec["replicatedJobs"]
        for pod in _of_job(name, replicated, trainer if _is_trainer(replicated) else {}, secrets or {})
    ]


def _is_trainer(replicated):
    labels = replicated["template"].get("metadata", {}).get("labels", {})
    return labels.get("trainer.kubeflow.org/trainjob-ancestor-step") == "trainer"


def _of_job(name, replicated, trainer, secrets):
    job = replicated["template"]["spec"]
    (container,) = job["template"]["spec"]["containers"]
    first = f"{name}-{replicated['name']}-0-0.{name}"
    for index in range(job["completions"]):
        env = _of_torch_policy(trainer, first, index) if trainer else {}
        for each in container["env"]:
            env[each["name"]] = _value(each, env, index, secrets)
        command = [_expanded(word, env) for word in container["command"]]
        mounts = [each["mountPath"] for each in container["volumeMounts"]]
        yield f"{name}-{replicated['name']}-0-{index}.{name}", container["image"], command, env, mounts


def _of_torch_policy(trainer, first, index):
    """The variables that Kubeflow's torch policy gives a pod."""
    return {
        "PET_NNODES": str(trainer["numNodes"]),
        "PET_NPROC_PER_NODE": str(trainer["numProcPerNode"]),
        "PET_NODE_RANK": str(index),
        "PET_MASTER_ADDR": first,
        "PET_MASTER_PORT": "29500",
    }


def _value(each, env, index, secrets):
    if "value" in each:
        return _expanded(each["value"], env)
    source = each["valueFrom"]
    return secrets[each["name"]] if "secretKeyRef" in source else str(index)


def _expanded(text, env):
    """The text as the kubelet expands it: `$(NAME)` is a variable, `$$` a dollar; an unknown name stays unchanged."""
    return _REFERENCE.sub(lambda found: "$" if found[1] == "$" else env.get(found[2], found[0]), text)


def start(text, network, volume, secrets=None):
    """Start the pods on Docker; returns their containers' names. `volume` is a local folder in place of the claim."""
    started = []
    for number, (name, image, command, env, mounts) in enumerate(pods(text, secrets)):
        words = ["docker", "run", "--detach", "--name", f"{network}-{number}", "--network", network]
        words += [
            "--network-alias",
            name,
            "--user",
            "1000:1000",
            "--shm-size",
            "256m",
            "--volume",
            f"{volume}:/muster/runs",
        ]
        assert {"/dev/shm", "/muster/runs"} <= {*mounts}
        words += [word for variable, value in env.items() for word in ("--env", f"{variable}={value}")]
        subprocess.run(
            [*words, "--entrypoint", command[0], image, *command[1:]], check=True, capture_output=True, timeout=60
        )
        started.append(f"{network}-{number}")
    return started

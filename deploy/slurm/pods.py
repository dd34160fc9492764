"""A run as a JobSet or TrainJob for Kubernetes (`muster export --to`); the role that ends it is the trainer. Pure.

The pods run the same agent as everywhere; there it makes the rest of its variables (trainer/node/agent/pods.py). The
text leaves out what depends on the cluster: namespace, queue, node selectors, CPUs and memory, names of RDMA devices.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from string import Template
from textwrap import indent

from ..core.errors import UsageError
from ..core.names import NODE_PROGRAMS
from ..job.options import FLAG
from ..job.secrets import refuse_ours
from ..job.values import VARIABLE, Mount
from ..run.environment import (
    GRACE,
    IMAGE_USER,
    MASTER_PORT,
    RUN_DIR,
    RUN_ID,
    RUNS_IN_CONTAINER,
    SECRETS_PRESENT,
    SENT,
    SHUTDOWN_TIMEOUT_S,
)
from ..run.roles import POD_KEY, ROLE, ROLE_INDEX
from ..send.folder.content import WORKSPACE

KINDS = ("jobset", "trainjob")
# The name of the group of pods if a run has only one command.
ONLY = "node"
# A pod's name has at most 63 letters: the run's name, the Job's name, two numbers and a random suffix.
_LONGEST_NAME, _LONGEST_POD = 40, 63 - len("--0-9999-abcde")
_OBJECT = re.compile(r"[a-z0-9]([a-z0-9.-]{0,250}[a-z0-9])?")
# A variable's value that is the pod's number within its Job.
_INDEX = "valueFrom: {fieldRef: {fieldPath: \"metadata.annotations['batch.kubernetes.io/job-completion-index']\"}}"
# A pod gets this many seconds to end, in addition to the time that its ranks may take to save.
_AFTER_GRACE_S = 60


@dataclass(frozen=True)
class Group:
    """The pods of one indexed Job. `words`: the agent's command words; `ranks` and `gpus`: the numbers on each pod.

    `restarts`: how often a pod that dies is replaced. `separate`: each pod trains alone, with its own world.
    """

    words: tuple[str, ...]
    nodes: int = 1
    ranks: int = 1
    gpus: int = 0
    restarts: int = 0
    name: str = ONLY
    separate: bool = False
    variables: Mapping[str, str] = field(default_factory=dict, hash=False)

    @property
    def has_role(self) -> bool:
        """Whether these pods belong to one of several roles."""
        return ROLE in self.variables


@dataclass(frozen=True)
class PodSet:
    """The pods of a run. `groups`: one for the run's single command, or one for each role; the group `main` trains.

    `secrets`: a variable's name -> the Secret that has its value under this name. `claim`: the PersistentVolumeClaim
    that keeps the run's files; empty: they are lost with their pods.
    """

    name: str
    image: str
    groups: tuple[Group, ...]
    main: str = ONLY
    variables: Mapping[str, str] = field(default_factory=dict, hash=False)
    secrets: Mapping[str, str] = field(default_factory=dict, hash=False)
    mounts: tuple[Mount, ...] = ()
    claim: str = ""
    sent: bool = True
    made_by: str = ""


_HEAD = Template("""\
# Made by: $made_by
$folder
# Stop it with: kubectl delete $kind $name
# Add the namespace, queue, CPUs, memory and RDMA devices as your cluster needs them.
""")
_KEY = f"""\
# First create the key by which the roles of this run recognize each other:
#   kubectl create secret generic $secret --from-literal={POD_KEY}="$$(openssl rand -hex 16)"
"""
_FOLDER = f"""\
# Build the image with the folder and, if there is a requirements.txt, its packages:
#   FROM muster-trainer:gpu
#   COPY --chown={IMAGE_USER} . {WORKSPACE}
#   USER root
#   RUN python -m pip install -r {WORKSPACE}/requirements.txt
#   USER {IMAGE_USER}"""
_TRAINER = "# Muster's own trainer, which every image of Muster has."
_JOBSET = Template("""\
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata:
  name: "$name"
spec:
  network:
    # The nodes meet at the first pod's name, which must resolve before any pod is ready.
    enableDNSHostnames: true
    publishNotReadyAddresses: true
  failurePolicy:
    # The Job replaces pods; starting the whole set again would only repeat the failure.
    maxRestarts: 0
  replicatedJobs:
$jobs
""")
_TRAINJOB = Template("""\
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainingRuntime
metadata:
  name: "$name"
spec:
  mlPolicy:
    numNodes: $nodes
    # This sets PET_NNODES, PET_NODE_RANK, PET_MASTER_ADDR and the like in each pod.
    torch: {}
  template:
    spec:
      network:
        publishNotReadyAddresses: true
      failurePolicy:
        maxRestarts: 0
      replicatedJobs:
$jobs
---
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata:
  name: "$name"
spec:
  runtimeRef:
    apiGroup: trainer.kubeflow.org
    kind: TrainingRuntime
    name: "$name"
  trainer:
    numNodes: $nodes
    numProcPerNode: $ranks
""")
_REPLICATED = Template("""\
- name: "$group"
  replicas: 1
  template:
$labels\
$job""")
_TRAINER_LABEL = """\
    metadata:
      labels:
        # The step to which numNodes and the trainer's image and command apply.
        trainer.kubeflow.org/trainjob-ancestor-step: trainer
"""
_JOB = Template("""\
spec:
  # One pod per node, each with its number.
  completionMode: Indexed
  completions: $nodes
  parallelism: $nodes
  backoffLimit: $restarts
  podFailurePolicy:
    rules:
    # Stopped with a checkpoint, or moved by the cluster: this is no failure, and another pod continues.
    - action: Ignore
      onExitCodes: {containerName: node, operator: In, values: [75]}
    - action: Ignore
      onPodConditions: [{type: DisruptionTarget, status: "True"}]
    # Failed after its own restarts, or refused: another pod would end in the same way.
    - action: FailJob
      onExitCodes: {containerName: node, operator: In, values: [1, 2]}
  template:
    spec:
      # The rules above need this: the Job creates a new pod.
      restartPolicy: Never
      # Time for the ranks to save.
      terminationGracePeriodSeconds: $patience
      # The image's own user; the volume belongs to its group.
      securityContext: {runAsNonRoot: true, runAsUser: $user, runAsGroup: $user, fsGroup: $user}
      containers:
      - name: node
        image: $image
        command: $command
        securityContext: {allowPrivilegeEscalation: false}
        env:
$env
$resources\
        volumeMounts:
        - {name: shm, mountPath: /dev/shm}
        - {name: runs, mountPath: $runs}
$mounts\
      volumes:
      - {name: shm, emptyDir: {medium: Memory}}
      - {name: runs, $place}
$volumes""")


_MOUNT = Template("        - {name: mount-$number, mountPath: $target, readOnly: $read_only}\n")
_VOLUME = Template("      - {name: mount-$number, hostPath: {path: $source, type: $kind}}\n")


def manifest(kind: str, pods: PodSet) -> str:
    """Return the text of a JobSet, or of a TrainJob with its runtime. Raises UsageError if a TrainJob cannot do it."""
    main = next(group for group in pods.groups if group.name == pods.main)
    if kind == "trainjob" and main.separate and main.nodes > 1:
        what = f"role {main.name}: the {main.nodes} nodes of a TrainJob train together, but these are separate"
        raise UsageError(what, f"{FLAG.to} jobset")
    body, deep, trainer = (_JOBSET, 2, None) if kind == "jobset" else (_TRAINJOB, 6, main)
    jobs = "".join(_replicated(pods, group, group is trainer) for group in pods.groups)
    head = _HEAD.template + (_KEY if main.has_role else "")
    return Template(head + body.template).substitute(
        name=pods.name,
        nodes=main.nodes,
        ranks=main.ranks,
        made_by="".join(letter if letter.isprintable() else " " for letter in pods.made_by),
        kind=kind,
        folder=_FOLDER if pods.sent else _TRAINER,
        secret=_key_of(pods),
        jobs=indent(jobs, " " * deep).rstrip("\n"),
    )


def _replicated(pods: PodSet, group: Group, by_policy: bool) -> str:
    """Return one indexed Job. `by_policy`: a TrainJob's torch policy gives its pods their ranks and addresses."""
    job = indent(_job(pods, group, by_policy), " " * 4)
    return _REPLICATED.substitute(group=group.name, labels=_TRAINER_LABEL if by_policy else "", job=job)


def _key_of(pods: PodSet) -> str:
    """Return the name of the Secret with the key of a run with roles."""
    return f"{pods.name}-roles"


def name_of(text: str, roles: Sequence[str] = ()) -> str:
    """Return a run's name in the form that Kubernetes accepts. Raises UsageError for a name without a letter."""
    most = min(_LONGEST_NAME, _LONGEST_POD - max(map(len, roles), default=0))
    name = re.sub(r"[^a-z0-9]+", "-", text.lower()).lstrip("-0123456789")[:most].strip("-")
    if not name:
        hint = f"lowercase letters, digits and -: {FLAG.run} train"
        raise UsageError(f"{FLAG.run} {text}: not a valid name for a JobSet", hint)
    return name


def object_of(flag: str, text: str) -> str:
    """Return `text` if it is a valid name of an object in a cluster. Raises UsageError."""
    if not _OBJECT.fullmatch(text):
        raise UsageError(
            f"{flag} {text}: not a valid name for an object of a cluster", "lowercase letters, digits, - and ."
        )
    return text


def _job(pods: PodSet, group: Group, by_policy: bool) -> str:
    own = {RUN_ID: pods.name, RUN_DIR: f"{RUNS_IN_CONTAINER}/{pods.name}", **({SENT: WORKSPACE} if pods.sent else {})}
    own |= {SECRETS_PRESENT: ",".join(sorted(pods.secrets))} if pods.secrets else {}
    secrets = {**pods.secrets, **({POD_KEY: _key_of(pods)} if group.has_role else {})}
    given = {name: f"value: {_text(value)}" for name, value in {**pods.variables, **group.variables, **own}.items()}
    given |= {name: f'valueFrom: {{secretKeyRef: {{name: "{secrets[name]}", key: "{name}"}}}}' for name in secrets}
    given |= {ROLE_INDEX: _INDEX} if group.has_role else {}
    given |= {} if by_policy else _place(pods, group)
    command = ["tini", "--", "python", "-P", "-m", NODE_PROGRAMS, "agent", *group.words]
    return _JOB.substitute(
        nodes=group.nodes,
        restarts=group.restarts,
        patience=int(float(pods.variables.get(GRACE, SHUTDOWN_TIMEOUT_S))) + _AFTER_GRACE_S,
        user=IMAGE_USER,
        image=_text(pods.image, expands=False),
        command=f"[{', '.join(map(_text, command))}]",
        # Sorted: a variable that another one uses (MUSTER_ROLE_INDEX in PET_MASTER_ADDR) must come before it.
        env="\n".join(f'        - {{name: "{name}", {value}}}' for name, value in sorted(given.items())),
        resources=f'        resources: {{limits: {{nvidia.com/gpu: "{group.gpus}"}}}}\n' if group.gpus else "",
        runs=RUNS_IN_CONTAINER,
        place=f'persistentVolumeClaim: {{claimName: "{pods.claim}"}}' if pods.claim else "emptyDir: {}",
        mounts=_of_mounts(pods.mounts, _MOUNT),
        volumes=_of_mounts(pods.mounts, _VOLUME),
    )


def pod_name(run: str, group: str, index: int | str) -> str:
    """Return the host name of a pod within the cluster, as a JobSet forms it."""
    return f"{run}-{group}-0-{index}.{run}"


def _place(pods: PodSet, group: Group) -> dict[str, str]:
    """Return the variables that a TrainJob's torch policy would set: this pod's rank, and the first pod's address."""
    first = pod_name(pods.name, group.name, f"$({ROLE_INDEX})" if group.separate else 0)
    return {
        "PET_NNODES": f'value: "{1 if group.separate else group.nodes}"',
        "PET_NPROC_PER_NODE": f'value: "{group.ranks}"',
        "PET_MASTER_ADDR": f'value: "{first}"',
        "PET_MASTER_PORT": f'value: "{MASTER_PORT}"',
        "PET_NODE_RANK": 'value: "0"' if group.separate else _INDEX,
    }


def _of_mounts(mounts: Sequence[Mount], row: Template) -> str:
    """Return a row of the template for each folder of --mount."""
    return "".join(
        row.substitute(
            number=number,
            target=_text(mount.target, expands=False),
            source=_text(mount.source, expands=False),
            read_only=str(mount.read_only).lower(),
            kind="DirectoryOrCreate" if mount.create else "Directory",
        )
        for number, mount in enumerate(mounts)
    )


def _text(value: str, expands: bool = True) -> str:
    """Quote a text for YAML. `expands`: Kubernetes replaces `$(NAME)` in this field, so `$` must be doubled."""
    value = value.replace("$", "$$") if expands else value
    letters = (
        f"\\{letter}" if letter in '"\\' else letter if " " <= letter <= "~" else f"\\U{ord(letter):08x}"
        for letter in value
    )
    return f'"{"".join(letters)}"'


def secrets_of(texts: Sequence[str]) -> dict[str, str]:
    """Read --secret: return variable's name -> the Secret that has its value. Raises UsageError."""
    made = {}
    for text in texts:
        name, equals, secret = text.partition("=")
        if not equals or not VARIABLE.fullmatch(name):
            hint = (
                f"{FLAG.secret} HF_TOKEN=my-secret: kubectl create secret generic my-secret --from-literal=HF_TOKEN=..."
            )
            raise UsageError(
                f"{FLAG.secret} {text}: not NAME=SECRET, where SECRET is a Secret of the cluster with the key NAME",
                hint,
            )
        refuse_ours(name, FLAG.secret)
        made[name] = object_of(FLAG.secret, secret)
    return made

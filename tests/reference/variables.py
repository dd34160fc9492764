"""The environment variables of each node of a run: a row for each variable, or for a few with one meaning.

docs/reference/variables.md is made from this table (python -m tests.reference); tests/unit/test_contract.py compares it
with the code of both halves. deploy/run/environment.py sets the variables, and trainer/ reads them.
"""

from __future__ import annotations

from collections.abc import Mapping

# The key has the names as a node has them, with a value if that is fixed. Links are relative to the page.
VARIABLES: Mapping[str, str] = {
    "PET_NNODES, PET_NPROC_PER_NODE, PET_NODE_RANK": "torchrun's own; their product is the planned world size",
    "PET_RDZV_BACKEND=c10d, PET_RDZV_ENDPOINT, PET_RDZV_ID, PET_RDZV_CONF": (
        "rendezvous; `is_host=1` on the master and `0` elsewhere"
    ),
    "PET_LOCAL_ADDR": "filled in by the agent: the node's own IP on the way to the endpoint",
    "PET_MAX_RESTARTS, PET_MONITOR_INTERVAL, PET_SHUTDOWN_TIMEOUT": "torchrun's own",
    "TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1": (
        "a new store for each generation of ranks, on the first node: in a shared one, a restarted rank "
        "finds the dead generation's addresses and hangs"
    ),
    "MUSTER_PLAIN_TORCHRUN=1": (
        "torch's own torchrun, and nothing is watched: each rank imports torch, and only its report says why a "
        "script failed. Its rendezvous listens on every address and unpickles what it receives"
    ),
    "GLOO_SOCKET_IFNAME, NCCL_SOCKET_IFNAME": "one exact interface name (`=` in front for NCCL)",
    "OMP_NUM_THREADS": "the machine's cores divided by its ranks",
    "MUSTER_RUN_ID": "the run; also a container's label `muster.run`",
    "MUSTER_RUN_DIR": (
        "the run folder as the node sees it; Muster finds a run's local processes by it; empty: rank 0 makes "
        "`runs/<date>-<recipe>` and tells the others"
    ),
    "MUSTER_ROOT": "on a host without an engine: the folder that has links for `/muster` and `/run` of a container",
    "MUSTER_NODE": "the node's name: `master`, `worker-1`, ...",
    "MUSTER_OUTCOME_DIR": (
        "[the node's private folder](../develop/contract.md#the-private-folder-of-a-node), and a sign that a rank "
        "which left a verdict exits with 0"
    ),
    "MUSTER_RESTARTED_BY_HOST=1": (
        "the backend restarts a node that ends badly. SIGTERM then means that the host goes down, SIGINT asks the "
        "run to stop, and a restarted node repeats a final end (`nodes/.<node>.last`, with `PET_RDZV_ID`)"
    ),
    "MUSTER_SECRET_NAMES": (
        "names, with commas: the agent [waits for these secrets](../develop/contract.md#secrets) and gives them to "
        "the ranks"
    ),
    "MUSTER_SECRET_FILES": "those that become files of `/run/secrets`, in the container's memory, and no variables",
    "MUSTER_SECRETS_PRESENT": (
        "the names of variables that hold secrets already, as for local processes. A script's output is masked for all"
    ),
    "HF_HOME, TORCH_HOME, TORCHINDUCTOR_CACHE_DIR, TRITON_CACHE_DIR, PIP_CACHE_DIR, UV_CACHE_DIR": (
        "for a script, below `/muster/cache`, if that is mounted and nobody has set them; for processes of `muster "
        "up` this user's own places"
    ),
    "TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC": (
        "2500, if nobody has set it: a rank whose NCCL has timed out ends 10 s later, not a minute"
    ),
    "MUSTER_RESUME_COMMAND": (
        "the command that resumes the stopped run, for the hint, with all hosts of the start: leave out those that "
        "are lost. Its paths are those of the folder where the deploy was typed. Unset: the trainer's "
        "option `--resume`; where compose runs `MUSTER_RUN_ID`, `make up`"
    ),
    "MUSTER_WORKER": "from compose alone: how Docker's DNS begins a worker's name",
    "MUSTER_OBSERVE=0": (
        "nothing [watches](../explanation/watching.md) a script's ranks, and no node writes `telemetry/` or `scalars/`"
    ),
    "MUSTER_LAUNCHER_RANKS": "how many ranks a command that runs once on each node should start there",
    "MUSTER_MAX_HOURS": "the agent asks its ranks to stop after so many hours from the node's first start",
    "MUSTER_RESTART_WITH": (
        "more words for a script wherever this is not its ranks' first start. Where the run folder has events of "
        "an earlier start, the agent adds them, and takes the variable away"
    ),
    "MUSTER_GRACE": (
        "seconds that ranks may take to end once the node is asked to stop (at most 86,400); without it "
        "`PET_SHUTDOWN_TIMEOUT`"
    ),
    "MUSTER_CLAIM": "on hosts: this node's claim, which the agent keeps locked. Taken",
    "MUSTER_GROUP": "with `--min-nodes`: the other nodes. Taken",
    "MUSTER_ROLES": "with several roles: all of them. Taken",
    "MUSTER_ROLES_KEY": "in a pod of a role: the run's key, which a Secret has. Taken",
    "MUSTER_WAIT": "with `--wait`: what a node that waits has to know. Taken",
    "MUSTER_OVERLAY": "with `--overlay`: the socket that keeps the host's end of the run's network alive. Taken",
    "MUSTER_ON_END": "for the witness of a run's end alone",
    "MUSTER_ROLE, MUSTER_ROLE_INDEX": "with roles: a node's own, and its number in it",
    "MUSTER_ROLE_HOST, MUSTER_ROLE_PORT, MUSTER_ROLE_GPUS, MUSTER_ROLE_SECRET, MUSTER_HEAD_ADDRESSES": (
        "with roles: a node's own address, port and number of GPUs, the secret of the run's programs, and where the "
        "role `head` listens"
    ),
    "MUSTER_FIRST_RANK": (
        "with roles, what is added to this node's ranks in events, verdicts and names of logs: each role counts "
        "its own from 0"
    ),
    "MUSTER_FIRST_RANK_FILE": (
        "agent to ranks, where each node of a `MUSTER_GROUP` has its own run folder: the number of its first "
        "`ranks/rank-<r>.jsonl`. Ranks change numbers there, and files of two hosts must not have one name"
    ),
    "MUSTER_BARE_RANK=1": (
        "the command asks for no torchrun and no number of ranks (`python train.py`): in a run of one rank it gets "
        "none of torchrun's variables, and a command that runs once a node no `RANK`, `WORLD_SIZE`, `LOCAL_RANK`"
    ),
    "MUSTER_STYLE": "`slurm` or `mpi`: each rank also gets the variables of `srun` or `mpirun`",
    "MUSTER_ALL_SIGNALLED=1": (
        "the backend sends SIGTERM to every process of a node, as Slurm does: torchrun leaves it to the agent, and "
        "a rank waits for the agent's word"
    ),
    "MUSTER_SEPARATE=1": "the ranks of a script train alone on purpose",
    "MUSTER_SENT": (
        "the folder that was sent with a script: the agent copies it into `work/`, where the script runs, with "
        "`home/` as its home"
    ),
    "MUSTER_SENT_DIGEST": (
        "on hosts, the digest of its content; the agent refuses another. SHA-256 of the sorted records `KIND SIZE "
        "SHA256 PATH` with a NUL between two: `f` a file, `x` an executable one, `l` a link (size and digest of "
        "its target), `d` a folder (`d 0 - PATH`)"
    ),
    "MUSTER_CODE_DIGEST": "the same of the packages at `/muster/code`, where the image lacks them",
    "MUSTER_DATA": (
        "where the folders of `--data` are, with a colon between two. Without a container these are not the "
        "paths that were named"
    ),
    "MUSTER_SAVE_CHANGES=1": (
        "no folder was sent, and the script's own goes with the container: at the end the agent copies what "
        "changed there into `work/`"
    ),
    "MUSTER_LOG_LIMIT": "bytes that a rank's log may have (1 GiB); the log counts what is cut",
    "MUSTER_SHARE_KEY": (
        "of a script's nodes on hosts, if it may be started again: the key by which they [share its "
        "files](../develop/contract.md#files-between-the-nodes). No rank gets it"
    ),
    "MUSTER_LIFE": (
        "to a rank and its children: `RANK-ATTEMPT-T`, new at each start. Ranks of a launcher below have other "
        "numbers in `RANK`, and this one still"
    ),
    "MUSTER_PIPES": "to torchrun: the descriptors of the pipes into which its ranks print. No rank gets it",
    "MUSTER_STOP_ON_EOF=1": "the agent stops the node when its standard input closes (the control side died)",
}

"""The variables that ranks get in addition to torchrun's: the node's place, Slurm's or MPI's (`--style`), Accelerate's.

Their names and meanings are those of srun(1), of Open MPI's mpirun(1), and of MPICH's Hydra. Standard library only.
"""

from __future__ import annotations

import os
import sys
import zlib
from collections.abc import Mapping
from pathlib import Path

STYLE = "MUSTER_STYLE"
_USE_CPU = "ACCELERATE_USE_CPU"
# The device files of torch's accelerators in /dev: NVIDIA's cards and boards, WSL, ROCm, Intel's, Gaudi and Ascend.
_DEVICES = ("nvidiactl", "nvhost-ctrl*", "dxg", "kfd", "dri/renderD*", "accel*", "davinci*")


def variables(given: Mapping[str, str]) -> dict[str, str]:
    """The variables that a rank gets in addition to torchrun's, which are `given`.

    torchrun does not give a rank the number of nodes, and many scripts read it under the name of torchrun's option.
    `MUSTER_STYLE` adds Slurm's or MPI's variables.
    """
    style, nodes, place = given.get(STYLE, ""), given.get("GROUP_WORLD_SIZE", "1"), given.get("GROUP_RANK", "0")
    made = {"NNODES": given.get("NNODES", nodes), "NODE_RANK": given.get("NODE_RANK", place)}
    return made | _STYLES[style](given) if style in _STYLES else made


def style_that_sets(variable: str) -> str:
    """The style that gives ranks this variable; empty if no style does."""
    any_rank = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}
    return next((style for style, made in _STYLES.items() if variable in made(any_rank)), "")


def cpu_variables(given: Mapping[str, str], devices: Path = Path("/dev")) -> dict[str, str]:
    """Accelerate's variable for ranks on CPUs; empty if the node has an accelerator, or does not run Linux.

    Without the variable, Accelerate (and so Hugging Face's Trainer) forms no process group on CPUs, and each rank
    trains alone.
    """
    if _USE_CPU in given or sys.platform != "linux" or any(any(devices.glob(name)) for name in _DEVICES):
        return {}
    return {_USE_CPU: "true"}


def _slurm(given: Mapping[str, str]) -> dict[str, str]:
    nodes, ranks = given.get("GROUP_WORLD_SIZE", "1"), given.get("LOCAL_WORLD_SIZE", "1")
    run = given.get("MUSTER_RUN_ID", "run")
    own = {
        "SLURM_PROCID": given["RANK"],
        "SLURM_LOCALID": given["LOCAL_RANK"],
        "SLURM_NTASKS": given["WORLD_SIZE"],
        "SLURM_NPROCS": given["WORLD_SIZE"],
        "SLURM_NODEID": given.get("GROUP_RANK", "0"),
        "SLURM_NNODES": nodes,
        "SLURM_NTASKS_PER_NODE": ranks,
        "SLURM_TASKS_PER_NODE": f"{ranks}(x{nodes})" if nodes != "1" else ranks,
    }
    if "SLURM_CONF" in given or "SLURM_JOB_UID" in given:
        return own  # a real job: Slurm itself sets its id and its hosts
    return own | {
        "SLURM_JOB_NUM_NODES": nodes,
        # A number, as in Slurm, and the same on all nodes.
        "SLURM_JOB_ID": (number := str(zlib.crc32(run.encode()))),
        "SLURM_JOBID": number,
        "SLURM_JOB_NAME": run,
        "SLURM_LAUNCH_NODE_IPADDR": given.get("MASTER_ADDR", ""),
        # Scripts use the first name as the rendezvous address.
        "SLURM_JOB_NODELIST": given.get("MASTER_ADDR", ""),
        "SLURM_NODELIST": given.get("MASTER_ADDR", ""),
        "SLURM_SUBMIT_DIR": os.getcwd(),
        "SLURM_RESTART_COUNT": given.get("TORCHELASTIC_RESTART_COUNT", "0"),
    }


def _mpi(given: Mapping[str, str]) -> dict[str, str]:
    rank, world = given["RANK"], given["WORLD_SIZE"]
    local, ranks = given["LOCAL_RANK"], given.get("LOCAL_WORLD_SIZE", "1")
    return {
        "OMPI_COMM_WORLD_RANK": rank,
        "OMPI_COMM_WORLD_SIZE": world,
        "OMPI_COMM_WORLD_LOCAL_RANK": local,
        "OMPI_COMM_WORLD_LOCAL_SIZE": ranks,
        "OMPI_COMM_WORLD_NODE_RANK": local,
        "PMI_RANK": rank,
        "PMI_SIZE": world,
        "MPI_LOCALRANKID": local,
        "MPI_LOCALNRANKS": ranks,
    }


_STYLES = {"slurm": _slurm, "mpi": _mpi}

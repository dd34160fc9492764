"""Which variables ranks get beside torchrun's: their node's place, those of Slurm or MPI (`--style`), and Accelerate's.

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
# What torch's accelerators have in /dev: NVIDIA's cards and boards, WSL, ROCm, Intel's, Gaudi and Ascend.
_DEVICES = ("nvidiactl", "nvhost-ctrl*", "dxg", "kfd", "dri/renderD*", "accel*", "davinci*")


def variables(given: Mapping[str, str]) -> dict[str, str]:
    """What a rank gets beside torchrun's own variables, which are `given`; Slurm's or MPI's with `MUSTER_STYLE`.

    torchrun does not tell a rank the number of nodes, and many scripts ask for it by the name that its option has.
    """
    style, nodes, place = given.get(STYLE, ""), given.get("GROUP_WORLD_SIZE", "1"), given.get("GROUP_RANK", "0")
    made = {"NNODES": given.get("NNODES", nodes), "NODE_RANK": given.get("NODE_RANK", place)}
    return made | _STYLES[style](given) if style in _STYLES else made


def that_sets(variable: str) -> str:
    """The style whose ranks get this variable; empty if none of them gives it."""
    any_rank = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}
    return next((style for style, made in _STYLES.items() if variable in made(any_rank)), "")


def without_accelerator(given: Mapping[str, str], devices: Path = Path("/dev")) -> dict[str, str]:
    """Accelerate's variable for ranks on CPUs; empty if the node has an accelerator, or does not run Linux.

    Without it Accelerate, and Hugging Face's Trainer with it, forms no group of CPUs: each rank trains alone.
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
        return own  # a real job: its id and its hosts are Slurm's
    return own | {
        "SLURM_JOB_NUM_NODES": nodes,
        # A number, as Slurm has it, the same on all nodes.
        "SLURM_JOB_ID": (number := str(zlib.crc32(run.encode()))),
        "SLURM_JOBID": number,
        "SLURM_JOB_NAME": run,
        "SLURM_LAUNCH_NODE_IPADDR": given.get("MASTER_ADDR", ""),
        # Scripts take the first name as the address to meet at.
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

"""Format numbers of everything that outlives a command: Muster reads older formats and refuses newer ones."""

from .errors import UsageError

# The formats of a run folder (all files except checkpoints), of the labels on a host's containers, of cluster.toml, of
# the answers that `preflight --keep FILE` writes, and of what a user has allowed a folder (job/allowed.py).
# Raise a number if today's reader would misread what a new writer writes; tests/golden/ has a folder of each format.
# In containers of format 1 the agent's package is `trainer`, not `muster.trainer` (host/commands.py: node_program).
# The record of a run folder of format 1 calls the run's backend `ground` (run/files/record.py).
RUN_FOLDER, LABELS, CLUSTER_FILE, ANSWERS, ALLOWED = 2, 2, 1, 2, 1
_UPDATE = "update Muster here: `git pull` in its checkout, or `pip install --upgrade` from it"


def refuse_newer(what: str, number: object, known: int) -> None:
    """Raise UsageError if `number`, the format of `what`, is above `known`. None: older than all formats."""
    if isinstance(number, int) and number > known:
        raise UsageError(
            f"{what} has format {number}: a newer Muster wrote it, and this one only reads formats up to {known}",
            _UPDATE,
        )

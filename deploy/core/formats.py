"""What outlives a command carries the number of its format: older ones are read, a newer one is refused by name."""

from __future__ import annotations

from .errors import UsageError

# Of the run folder with all files in it but checkpoints, of the labels of containers on hosts, and of cluster.toml. A
# number is raised where a reader of today would misread what is written then; tests/golden/ keeps a folder of each.
# Run folders of format 1 name the run's backend `ground` in their record (run/record.py).
RUN_FOLDER, LABELS, CLUSTER_FILE = 2, 1, 1
_UPDATE = "update Muster here: `git pull` in its checkout, or `pip install --upgrade` from it"


def refuse_newer(what: str, number: object, known: int) -> None:
    """Raise UsageError where `number`, the format of `what`, is above `known`; None: there were no formats yet."""
    if isinstance(number, int) and number > known:
        raise UsageError(
            f"{what} has format {number}: a newer Muster wrote it, and this one reads up to format {known}", _UPDATE
        )

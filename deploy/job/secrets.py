"""The values of a job's secrets, which are never shown; names of variables that a job may not set."""

from __future__ import annotations

import re
from collections.abc import Mapping, Set

from ..config import secrets
from ..core.errors import UsageError
from ..core.program import FAB
from .cluster import Cluster

# The variables that the plan sets for each node (docs/contract.md); a user may set any other.
_OURS = re.compile(r"MUSTER_(?!STYLE\b)\w+|PET_(NNODES|NPROC_PER_NODE|NODE_RANK|RDZV_\w+|LOCAL_ADDR)")
SECRET_LEAST = 8  # letters; a shorter value can be in a command line by chance


def secrets_of(cluster: Cluster, due: Set[str] | None = None) -> dict[str, str]:
    """The values of the job's secrets, or of those in `due`.

    Raises UsageError, which names the secret and never its value, for a secret without a value here, and for a due one
    that the user did not name: a host may ask for any variable.
    """
    if missing := sorted((due or set()) - {secret.name for secret in cluster.job.secrets}):
        raise UsageError(
            f"secret {missing[0]}: this command does not name it",
            f"with {missing[0]} in this shell: --secret {missing[0]}",
        )
    wanted = [secret for secret in cluster.job.secrets if due is None or secret.name in due]
    for secret in wanted:
        refuse_ours(secret.name, "secret")
    return secrets.read(wanted)


def refuse_named_like_secrets(variables: Mapping[str, str], where: str) -> None:
    """Raise UsageError for a variable that is called a token, a password or a key, and has a value as long as one."""
    for name, value in variables.items():
        if secrets.NAMES.search(name) and len(value) >= SECRET_LEAST:
            raise UsageError(
                f"{where} {name}: everybody who may use a host's engine could read it",
                f'export {name}=...; then: --secret {name} (cluster.toml: secrets = ["{name}"])',
            )


def refuse_ours(name: str, where: str) -> None:
    """Raise UsageError for a variable that Muster sets."""
    if _OURS.fullmatch(name):
        raise UsageError(
            f"{where} {name}: Muster sets this variable for each node", f"to see it: {FAB} deploy --dry-run"
        )

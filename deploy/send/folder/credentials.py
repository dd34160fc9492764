"""The list of what counts as a credential in a folder, by name or by content. Pure.

docs/explanation/sending.md shows the list. send/folder/folder_look.py keeps these files on this machine.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from fnmatch import translate
from pathlib import Path, PurePosixPath

from ...core.errors import UsageError
from ...job import secrets
from ...job.cluster import Cluster
from ...job.secrets import secrets_of

MOST = 256 << 20  # the most bytes a folder may have, unless the user raises it; more is usually data, for --data
# fnmatch patterns in lowercase. A folder stands for everything in it.
FOLDERS = (".git", ".hg", ".ssh", ".gnupg", ".aws", ".azure", ".kube", ".kaggle", ".oci", ".password-store")
FILES = (
    *(".env", ".env.*", "*.env", ".envrc", ".netrc", "_netrc", "netrc", ".secrets", "secrets.toml", "secrets.y*ml"),
    *("secrets.json", "id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", "id_ecdsa_sk", "id_ed25519_sk", "*.ppk", "*.p12"),
    *("*.pfx", "*.jks", "*.keystore", "*.kdbx", "application_default_credentials.json", "credentials.json"),
    *("credentials.db", "access_tokens.db", "client_secret*.json", "service[-_]account*.json", "kaggle.json"),
    *(".git-credentials", ".pypirc", ".dockercfg", ".pgpass", ".my.cnf", ".boto", ".s3cfg", ".vault-token"),
    *(".databrickscfg", ".comet.config", ".terraformrc", "*.tfstate", ".htpasswd", "kubeconfig", "*.kubeconfig"),
    *("rclone.conf", ".docker/config.json", "gcloud/legacy_credentials/*", "gh/hosts.yml"),
    *("huggingface/token", ".huggingface/token", "huggingface/stored_tokens"),
)
EXAMPLES = (".env.example", ".env.sample", ".env.template", ".env.dist", "example.env", "sample.env", "template.env")
# Settings files of tools: a credential only if they contain a token or a password.
SETTINGS = (".npmrc", ".yarnrc", ".yarnrc.yml", "pip.conf", "pip.ini", ".condarc", "uv.toml", ".gitconfig", "config")
_TOKEN = re.compile(rb"_authToken|_auth\s*=|_password|npmAuthToken|://[^/\s:@]+:[^/\s@]+@", re.IGNORECASE)
# Files that list a project's packages: a credential only if an address in them has a password that is not a
# ${VARIABLE}, or a user name as long as a token.
NEEDS = ("*requirements*.txt", "*requirements*.in", "requirements/*.txt", "*constraints*.txt")
IN_AN_ADDRESS = "an address in it has a password"
_ADDRESS = re.compile(rb"https?://(?:[^/\s:@]*:(?!\$\{)[^/\s@]+|(?!\$\{)[^/\s:@]{20,})@")
# The key itself must follow the first line and a few headers: code that only mentions keys has none. In JSON, lines end
# in `\n`. A header ends with its line, and its length is limited: otherwise a crafted file would take hours to search.
_PRIVATE_KEY = re.compile(
    rb"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----(?:\\[rn]|\s)+"
    rb"(?:[A-Z][\w-]{1,40}:[^\n\\]{0,1000}(?:\\[rn]|\n)(?:\\[rn]|\s)*){0,8}"
    rb"[\w+/=-]{24}|PuTTY-User-Key-File-\d: |AGE-SECRET-KEY-1[A-Z0-9]{20}"
)

_FILES, _NEEDS = (re.compile("|".join(translate(f"*/{each}") for each in patterns)) for patterns in (FILES, NEEDS))
_LEAST_SECRET = 8  # characters; a file may contain a shorter value by chance
# Each key contains one of these. The search is faster with longer words.
_KEY_MARKS = (b"-----BEGIN ", b"PuTTY-User-Key-File-", b"AGE-SECRET-KEY-1")


@dataclass(frozen=True)
class SendChoice:
    """What a user decides about a folder.

    `include`: paths of credentials to send anyway, relative to the folder. `sources`: the files that secrets are read
    from, by secret name. `values`: the values of these secrets that are known here. `most`: the most bytes to send.
    """

    include: frozenset[str] = frozenset()
    sources: Mapping[str, Path] = field(default_factory=dict, hash=False)
    values: Mapping[str, str] = field(default_factory=dict, hash=False, repr=False)
    most: int = MOST


NO_CHOICE = SendChoice()


def credential_path(path: str) -> str:
    """The part of a relative path (it, or a folder above it) whose name marks a credential; empty if there is none."""
    parts = PurePosixPath(path.lower()).parts
    for depth, name in enumerate(parts, 1):
        if name in FOLDERS:
            return "/".join(PurePosixPath(path).parts[:depth])
    if parts[-1] in EXAMPLES:
        return ""
    tail = "/" + "/".join(parts)
    return path if _FILES.match(tail) else ""


def credential_in(path: str, content: bytes, values: Mapping[str, str]) -> str:
    """A description of the credential in a file; empty if there is none. `values`: secret values by name."""
    # The plain search comes first: it is as fast as reading, and a folder may have gigabytes.
    if any(mark in content for mark in _KEY_MARKS) and _PRIVATE_KEY.search(content):
        return "a private key"
    if PurePosixPath(path).name.lower() in SETTINGS and _TOKEN.search(content):
        return "a token or a password"
    if _NEEDS.match(f"/{path.lower()}") and _ADDRESS.search(content):
        return IN_AN_ADDRESS
    held = (name for name, value in values.items() if len(value) >= _LEAST_SECRET and value.encode() in content)
    return next((f"it contains the value of {name}" for name in held), "")


def send_choice_of(cluster: Cluster) -> SendChoice:
    """The user's choice for the folder. A secret without a value here cannot be in a file here, so it is skipped."""
    job, known = cluster.job, dict[str, str]()
    for secret in job.secrets:
        with suppress(UsageError):
            known |= secrets_of(cluster, {secret.name})
    sources = {secret.name: secret.file for secret in job.secrets if secret.file}
    return SendChoice(
        frozenset(job.include), sources, secrets.values_to_hide(job.secrets, known), job.folder_limit or MOST
    )

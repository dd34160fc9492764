"""The list of what counts as a credential in a folder, by name or by content. Pure.

docs/explanation/sending.md shows it; send/folder/folder_look.py keeps these files on this machine.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from fnmatch import translate
from pathlib import Path, PurePosixPath

from ...core.errors import UsageError
from ...job import secrets
from ...job.cluster import Cluster
from ...job.secrets import secrets_of

MOST = 256 << 20  # bytes of a folder, unless the user raises it; more than that is usually data, which --data takes
# Patterns of fnmatch, in lower case. A folder stands for everything in it.
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
# Settings of tools: a credential only if they contain a token or a password.
SETTINGS = (".npmrc", ".yarnrc", ".yarnrc.yml", "pip.conf", "pip.ini", ".condarc", "uv.toml", ".gitconfig", "config")
_TOKEN = re.compile(rb"_authToken|_auth\s*=|_password|npmAuthToken|://[^/\s:@]+:[^/\s@]+@", re.IGNORECASE)
# What names a project's packages: a credential only if an address in it has a password that is no ${VARIABLE}, or a
# user's name that is as long as a token.
NEEDS = ("*requirements*.txt", "*requirements*.in", "requirements/*.txt", "*constraints*.txt")
IN_AN_ADDRESS = "an address in it has a password"
_ADDRESS = re.compile(rb"https?://(?:[^/\s:@]*:(?!\$\{)[^/\s@]+|(?!\$\{)[^/\s:@]{20,})@")
# With the key after its first line: code that mentions keys is not a key. In JSON that line ends in `\n`.
_PRIVATE_KEY = re.compile(
    rb"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----(?:\\r|\\n|\s)+(?:[A-Z][\w-]+: [^\n\\]*(?:\\n|\s)+)*"
    rb"[\w+/=-]{24}|PuTTY-User-Key-File-\d: |AGE-SECRET-KEY-1[A-Z0-9]{20}"
)

_FILES, _NEEDS = (re.compile("|".join(translate(f"*/{each}") for each in patterns)) for patterns in (FILES, NEEDS))
_LEAST_SECRET = 8  # letters; a file may contain a shorter value by chance
# One of these is in each key. The longer a word, the faster the search.
_KEY_MARKS = (b"-----BEGIN ", b"PuTTY-User-Key-File-", b"AGE-SECRET-KEY-1")


@dataclass(frozen=True)
class Choice:
    """What a user says of a folder: paths of credentials to `include` (seen from it), the files its secrets come from
    by the secrets' names, these secrets' values, as far as they are known, and how many bytes it may have in all."""

    include: frozenset[str] = frozenset()
    sources: Mapping[str, Path] = field(default_factory=dict, hash=False)
    values: Mapping[str, str] = field(default_factory=dict, hash=False, repr=False)
    most: int = MOST


NO_CHOICE = Choice()


def including(*paths: str) -> str:
    """The options that send these paths, as they are typed."""
    return " ".join(f"--include {shlex.quote(path)}" for path in paths)


def place_of(path: str) -> str:
    """The part of a relative path that has a credential's name: the path or a folder above it; empty if none has."""
    parts = PurePosixPath(path.lower()).parts
    for depth, name in enumerate(parts, 1):
        if name in FOLDERS:
            return "/".join(PurePosixPath(path).parts[:depth])
    if parts[-1] in EXAMPLES:
        return ""
    tail = "/" + "/".join(parts)
    return path if _FILES.match(tail) else ""


def kind_of(path: str, content: bytes, values: Mapping[str, str]) -> str:
    """The kind of credential in a file, in words; empty if it holds none. `values`: of secrets, by name."""
    # The plain words first: a search for them is as fast as reading, and a folder may have gigabytes.
    if any(mark in content for mark in _KEY_MARKS) and _PRIVATE_KEY.search(content):
        return "a private key"
    if PurePosixPath(path).name.lower() in SETTINGS and _TOKEN.search(content):
        return "a token or a password"
    if _NEEDS.match(f"/{path.lower()}") and _ADDRESS.search(content):
        return IN_AN_ADDRESS
    held = (name for name, value in values.items() if len(value) >= _LEAST_SECRET and value.encode() in content)
    return next((f"it contains the value of {name}" for name in held), "")


def choice_of(cluster: Cluster) -> Choice:
    """Which files of the folder may be sent. A secret that has no value here cannot be in a file here either."""
    job, known = cluster.job, dict[str, str]()
    for secret in job.secrets:
        with suppress(UsageError):
            known |= secrets_of(cluster, {secret.name})
    sources = {secret.name: secret.file for secret in job.secrets if secret.file}
    return Choice(frozenset(job.include), sources, secrets.telling(job.secrets, known), job.folder_limit or MOST)

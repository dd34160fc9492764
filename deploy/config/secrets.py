"""The secrets that a user names: as variables of this shell, as files, and in files such as .env. Never their values in
an error, and never in the text of an option."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from pathlib import Path

from ..core.errors import UsageError
from ..core.near import near_path
from . import env_file, values
from .values import Secret

# A name that sounds like a secret's, and a value with a password in it.
SOUNDS = re.compile(r"TOKEN|SECRET|PASSW|API_?KEY|ACCESS_KEY|CREDENTIAL", re.IGNORECASE)
# One that can be nothing else: TOKENIZER and MAX_TOKENS are none.
NAMES = re.compile(r"(^|_)(TOKEN|SECRET|SECRET_KEY|PASSWORD|PASSWD|PASSPHRASE|API_?KEY|ACCESS_KEY|CREDENTIALS?)$", re.I)
_PASSWORD = re.compile(r"://[^/\s:@]*:[^/\s@]+@")
_MOST = 120 << 10  # bytes; Linux allows 128 KiB for one variable with its name
_FILE_MOST = 512 << 10  # bytes of a secret that is a file; all of them go through one pipe


def asked(
    variables: Iterable[str], lists: Iterable[str], files: Iterable[str]
) -> tuple[tuple[Secret, ...], tuple[Path, ...]]:
    """The options --secret and --secret-file as secrets, and those of --env-file as paths. Raises UsageError."""
    return (*map(_secret, variables), *map(_secret_file, files)), tuple(map(_env_file, lists))


def combined(
    lists: Iterable[Path],
    weaker: Sequence[Secret],
    stronger: Sequence[Secret],
    taken: Set[str],
    refuse: Callable[[str, str], None],
) -> tuple[Secret, ...]:
    """Merge the secrets, so that each name occurs once.

    `stronger` secrets win over `weaker` ones, and both over those of `lists`, where the last file wins. A name of
    `lists` is left out if it is in `taken`: a plain variable has it. `refuse(name, where)` raises for a reserved name.
    """
    listed = {name: path for path in lists for name in env_file.read(path)}
    for name, path in listed.items():
        refuse(name, f"{path}:")
    from_lists = [Secret(name, path, in_list=True) for name, path in listed.items() if name not in taken]
    return tuple({secret.name: secret for secret in (*from_lists, *weaker, *stronger)}.values())


def read(secrets: Iterable[Secret]) -> dict[str, str]:
    """Their values by name. Raises UsageError, which names the secret and never its value, for one without a value."""
    known = {}
    for secret in secrets:
        try:
            value = _value(secret)
        except (OSError, KeyError, UnicodeDecodeError) as fault:
            where = f"cannot read {secret.file}" if secret.file else "not in this shell's environment"
            how = f"export {secret.name}=..., or --secret {secret.name}=FILE"
            hint = f"{how}; if you did not ask for it, `secrets` in cluster.toml does"
            raise UsageError(f"secret {secret.name}: {where}", hint) from fault
        most = _FILE_MOST if secret.as_file else _MOST
        if (not value and not secret.in_list) or not values.is_text(value) or len(value.encode()) > most:
            what = "is not text, or is longer than a variable can be" if value else "is empty"
            raise UsageError(f"secret {secret.name}: {what}", "mount a file that large")
        known[secret.name] = value
    return known


def is_likely(name: str, value: str) -> bool:
    """Whether a variable's name sounds like a secret's, or its value has a password in it."""
    return bool(SOUNDS.search(name) or _PASSWORD.search(value))


def telling(secrets: Iterable[Secret], known: Mapping[str, str]) -> dict[str, str]:
    """The values that may stand nowhere else: a setting of .env, such as a model's name, may be in the code too."""
    open_ones = {
        secret.name for secret in secrets if secret.in_list and not is_likely(secret.name, known.get(secret.name, ""))
    }
    return {name: value for name, value in known.items() if name not in open_ones}


def _value(secret: Secret) -> str:
    if not secret.file:
        return os.environ[secret.name]
    if secret.in_list:
        return env_file.read(secret.file)[secret.name]
    text = secret.file.read_text()
    if secret.shown and os.path.realpath(secret.file) != str(secret.file):
        raise OSError(f"{secret.file} is a link by now")
    return text if secret.as_file else text.strip()


def _secret(text: str) -> Secret:
    name, equals, file = text.partition("=")
    if not values.VARIABLE.fullmatch(name):
        raise UsageError("--secret: not the name of a variable", "export NAME=...; then: --secret NAME")
    # The text after = is not shown: it may be the secret itself.
    if equals and not os.path.isfile(os.path.expanduser(file)):
        raise UsageError(
            f"--secret {name}=...: the text after = is not a file; never put a value there",
            f"export {name}=...; then: --secret {name}",
        )
    return Secret(name, Path(os.path.expanduser(file)) if equals else None)


def _secret_file(text: str) -> Secret:
    name, equals, file = text.partition("=")
    if not values.SECRET_FILE.fullmatch(name) or not equals or not os.path.isfile(os.path.expanduser(file)):
        # What was typed is not shown: it may be the secret itself. A file that is there is none.
        meant = text if os.path.isfile(os.path.expanduser(text)) else near_path(file or text)
        pair = f"{os.path.basename(meant)}={meant}" if meant else "account.json=path/account.json"
        raise UsageError(
            "--secret-file: not NAME=FILE with a file of this machine", f"--secret-file {shlex.quote(pair)}"
        )
    return Secret(name, Path(os.path.expanduser(file)), as_file=True)


def _env_file(text: str) -> Path:
    path = Path(os.path.expanduser(text))
    if not path.is_file():
        meant = near_path(text, (".env",))
        new = shlex.quote(str(path / ".env" if path.is_dir() else text))
        hint = f"--env-file {shlex.quote(meant or new)}"
        hint = hint if meant else f"write it: echo NAME=VALUE > {new}; then: {hint}"
        raise UsageError(f"--env-file {text}: {'a folder' if path.is_dir() else 'no such file'}", hint)
    return path

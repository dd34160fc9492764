"""Secrets: a host gets only those that the user names. Plain variables named like a secret or Muster's are refused.

A secret is a variable of this shell, a file, or each value in a file such as .env. Its value never appears in an
error, and never in the text of an option.
"""

from __future__ import annotations

import io
import os
import re
import shlex
from collections.abc import Iterable, Mapping, Set
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core.errors import UsageError
from ..core.suggest import near_path, refuse_no_path
from . import consent, values
from .option_words import command_of
from .options import FLAG, Job, Options, flag_of
from .values import Secret

if TYPE_CHECKING:
    from .cluster import Cluster

# Values by the name of their variable.
Values = dict[str, str]
# Names that sound like a secret.
SOUNDS = re.compile(r"TOKEN|SECRET|PASSW|API_?KEY|ACCESS_KEY|CREDENTIAL", re.IGNORECASE)
# Names that can only be secrets: TOKENIZER and MAX_TOKENS do not match.
NAMES = re.compile(r"(^|_)(TOKEN|SECRET|SECRET_KEY|PASSWORD|PASSWD|PASSPHRASE|API_?KEY|ACCESS_KEY|CREDENTIALS?)$", re.I)
_PASSWORD = re.compile(r"://[^/\s:@]*:[^/\s@]+@")
_MOST = 120 << 10  # bytes; Linux allows 128 KiB for one variable with its name
_FILE_MOST = 512 << 10  # bytes of a secret that is a file; all secrets go through one pipe


def combined(options: Options, job: Job, taken: Set[str]) -> tuple[Secret, ...]:
    """The secrets from the options, the file's job and the env files, each name once.

    Typed secrets override the job's, and both override those of an env file; of several env files the last one wins. A
    name of an env file that is in `taken`, because a plain variable has it, is left out. Raises UsageError, also for a
    variable that Muster sets.
    """
    typed = (*map(_secret, options.secret), *map(_secret_file, options.secret_file))
    _refuse_both_kinds(typed, f"{FLAG.secret} and {FLAG.secret_file}")
    _refuse_both_kinds(job.secrets, "`secrets` of cluster.toml")
    lists = (*job.env_file, *map(_env_file, options.env_file))
    listed = {name: path for path in lists for name in read_env_file(path)}
    for name, path in listed.items():
        refuse_ours(name, f"{path}:")
    from_lists = [Secret(name, path, in_list=True) for name, path in listed.items() if name not in taken]
    return tuple({secret.name: secret for secret in (*from_lists, *job.secrets, *typed)}.values())


def _refuse_both_kinds(named: Iterable[Secret], where: str) -> None:
    """Raise UsageError for a name that is both a variable and a file: the ranks would get only one of them."""
    kinds = dict[str, bool]()
    for name, _, _, as_file, _ in named:
        if kinds.setdefault(name, as_file) != as_file:
            other = "give the file another name"
            raise UsageError(f"secret {name}: {where} give it, as a variable and as a file", other)


def read_values(secrets: Iterable[Secret]) -> Values:
    """The secrets' values by name. Raises UsageError for a missing value; the error never shows a value."""
    known = {}
    for secret in secrets:
        try:
            value = _value(secret)
        except (OSError, KeyError, UnicodeDecodeError) as fault:
            where = f"cannot read {secret.file} as text" if secret.file else "not in this shell's environment"
            how = f"export {secret.name}=..., or {FLAG.secret} {secret.name}=FILE"
            hint = f"{how}; if you did not ask for this secret, `secrets` in cluster.toml does"
            raise UsageError(f"secret {secret.name}: {where}", hint) from fault
        most = _FILE_MOST if secret.as_file else _MOST
        if (not value and not secret.in_list) or not values.is_text(value) or len(value.encode()) > most:
            what = "is not text, or is too long for a variable" if value else "is empty"
            raise UsageError(f"secret {secret.name}: {what}", "mount such a large file instead")
        known[secret.name] = value
    return known


def is_likely(name: str, value: str) -> bool:
    """Whether a variable's name sounds like a secret, or its value has a password in it."""
    return bool(SOUNDS.search(name) or _PASSWORD.search(value))


def values_to_hide(secrets: Iterable[Secret], known: Mapping[str, str]) -> Values:
    """The values that must not appear in any command or plain variable.

    Ordinary settings in a .env, such as a model's name, are left out: they may well appear in the code too.
    """
    open_ones = {
        secret.name for secret in secrets if secret.in_list and not is_likely(secret.name, known.get(secret.name, ""))
    }
    return {name: value for name, value in known.items() if name not in open_ones}


def _value(secret: Secret) -> str:
    if not secret.file:
        return os.environ[secret.name]
    if secret.in_list:
        return read_env_file(secret.file)[secret.name]
    text = secret.file.read_bytes().decode()  # read as bytes, to keep the line ends
    if secret.shown and os.path.realpath(secret.file) != str(secret.file):
        raise OSError(f"{secret.file} has become a link")
    return text if secret.as_file else text.strip()


def _secret(text: str) -> Secret:
    name, equals, file = text.partition("=")
    if not values.VARIABLE.fullmatch(name):
        raise UsageError(
            f"{FLAG.secret}: this is not the name of a variable", f"export NAME=...; then: {FLAG.secret} NAME"
        )
    # The text after = is not shown: it may be the secret itself.
    if equals and not os.path.isfile(os.path.expanduser(file)):
        raise UsageError(
            f"{FLAG.secret} {name}=...: the text after = is not a file; never put a value there",
            f"export {name}=...; then: {FLAG.secret} {name}",
        )
    return Secret(name, Path(os.path.expanduser(file)) if equals else None)


def _secret_file(text: str) -> Secret:
    name, equals, file = text.partition("=")
    if not values.SECRET_FILE.fullmatch(name) or not equals or not os.path.isfile(os.path.expanduser(file)):
        # The typed text is not shown: it may be the secret itself. The path of an existing file is no secret.
        meant = text if os.path.isfile(os.path.expanduser(text)) else near_path(file or text)
        pair = f"{os.path.basename(meant)}={meant}" if meant else "account.json=path/account.json"
        raise UsageError(
            f"{FLAG.secret_file}: not NAME=FILE with a file of this machine", f"{FLAG.secret_file} {shlex.quote(pair)}"
        )
    return Secret(name, Path(os.path.expanduser(file)), as_file=True)


def _env_file(text: str) -> Path:
    path = Path(os.path.expanduser(text))
    if not os.path.isfile(path):
        name, equals, _ = text.partition("=")
        if equals:  # the text after = may be the secret itself
            hint = f"export {name}=...; then: {FLAG.secret} {name}"
            raise UsageError(f"{FLAG.env_file} {name}=...: this option takes a file", hint)
        new = shlex.quote(str(path / ".env" if os.path.isdir(path) else text))
        instead = f"write one: echo NAME=VALUE > {new}; then: {FLAG.env_file} {new}"
        refuse_no_path(FLAG.env_file, text, instead, (".env",))
    return path


_FILE_OF_VARIABLES_MOST = 1 << 20  # bytes of the file, and characters of all values together
_MOST_VARIABLES = 10_000
_MOST_NAMED = 100  # ${NAME}s in one value: for each of them, dotenv searches to the end of the value


def read_env_file(path: Path) -> Values:
    """The file's variables by name. A name without `=` gets its value from this shell, or is left out.

    Raises UsageError for a file that cannot be read and, with the line, for text that is not NAME=VALUE.
    """
    return _variables(path)[0]


def names_of_shell(path: Path) -> list[str]:
    """The names that the file takes from this shell: names without a value, and each ${NAME} that no line above sets.

    Raises UsageError as `read_env_file` does.
    """
    return _variables(path)[1]


def _variables(path: Path) -> tuple[Values, list[str]]:
    """The values with each ${NAME} filled in as dotenv does it, and the names taken from this shell.

    A ${NAME} gets its value from the lines above, or else from this shell. dotenv's own function is not used: for each
    value it goes through all values, and it has no limit, although values grow exponentially if each of them names the
    previous one twice.
    """
    # Imported here because only a run with such a file needs it.
    from dotenv.parser import parse_stream
    from dotenv.variables import Variable, parse_variables

    known, read, of_shell, size = dict[str, str | None](os.environ), dict[str, str | None](), dict[str, None](), 0
    for number, binding in enumerate(parse_stream(io.StringIO(consent.read_once(path, _text_of))), 1):
        _check(path, number, binding)
        if binding.key is None:
            continue
        value, parts = binding.value, [] if binding.value is None else list(parse_variables(binding.value))
        used = [binding.key] if value is None else [part.name for part in parts if isinstance(part, Variable)]
        of_shell |= dict.fromkeys(name for name in used if name not in read)
        if value is not None:
            texts = [part.resolve(known) for part in parts]
            size += sum(map(len, texts))
            if size > _FILE_OF_VARIABLES_MOST:
                most = f"{_FILE_OF_VARIABLES_MOST} characters"
                raise UsageError(
                    f"{path}: its values hold more than {most}", "refer to fewer variables from other variables"
                )
            value = "".join(texts)
        read[binding.key] = known[binding.key] = value
    both = {name: os.environ.get(name) if value is None else value for name, value in read.items()}
    return {name: value for name, value in both.items() if value is not None}, list(of_shell)


def _check(path: Path, number: int, binding: Any) -> None:
    """Raise UsageError for a line that does not set a variable."""
    if number > _MOST_VARIABLES:
        take = f"give only some of them: {FLAG.env_file} FILE"
        raise UsageError(f"{path}: more than {_MOST_VARIABLES:,} variables", take)
    # dotenv counts the blank lines and comments before a statement as part of it.
    whole = binding.original.string
    line = binding.original.line + len(whole) - len(whole.lstrip("\r\n"))
    if binding.error:
        raise UsageError(
            f"{path}: line {line} is not NAME=VALUE", "put quotes around a value that contains quotes or several lines"
        )
    if binding.key is not None and not values.VARIABLE.fullmatch(binding.key):
        raise UsageError(f"{path}: line {line} does not begin with the name of a variable", "letters, digits and _")
    if (binding.value or "").count("${") > _MOST_NAMED:
        raise UsageError(f"{path}: line {line} refers to more than {_MOST_NAMED} variables", "write the value in full")


def _text_of(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(_FILE_OF_VARIABLES_MOST + 1)
        text = data.decode("utf-8-sig")
    except OSError as fault:
        raise UsageError(f"{path}: cannot be read: {fault.strerror}", f"ls -l {shlex.quote(str(path))}") from fault
    except UnicodeDecodeError as fault:
        raise UsageError(f"{path}: not UTF-8 text", "save it as UTF-8") from fault
    if len(data) > _FILE_OF_VARIABLES_MOST or "\0" in text:
        raise UsageError(f"{path}: not a file of variables", "a line for each: NAME=VALUE")
    return text


# The variables that the plan sets for each node (contract.md); a user may set any other variable.
_MUSTER_VARIABLES = re.compile(r"MUSTER_(?!STYLE\b)\w+|PET_(NNODES|NPROC_PER_NODE|NODE_RANK|RDZV_\w+|LOCAL_ADDR)")
SECRET_LEAST = 8  # characters; a shorter value can be in a command line by chance


def secrets_of(cluster: Cluster, due: Set[str] | None = None) -> Values:
    """The values of the job's secrets, or only of those in `due`.

    Raises UsageError (with the secret's name, never its value) for a secret without a value here, and for one in `due`
    that the user did not name: a host must not get a variable just because it asks for it.
    """
    if missing := sorted((due or set()) - {secret.name for secret in cluster.job.secrets}):
        raise UsageError(
            f"secret {missing[0]}: the run needs it, and this command does not give it",
            f"if {missing[0]} is set in this shell: {FLAG.secret} {missing[0]}",
        )
    wanted = [secret for secret in cluster.job.secrets if due is None or secret.name in due]
    for secret in wanted:
        refuse_ours(secret.name, "secret")
    return read_values(wanted)


def refuse_open_secrets(options: Options, known: Mapping[str, str]) -> None:
    """Raise UsageError if a command or a plain variable contains a secret's value: everybody on a host can read these.

    The secrets are `known` (the job's, as `values_to_hide` returns them), and every variable of this shell whose name
    sounds like a secret (the shell may have expanded `$HF_TOKEN`).
    """
    suspects = {name: value for name, value in os.environ.items() if SOUNDS.search(name)}
    public = {name: getattr(options, name) for name in ("script", "each", "run", "args", "on_end", "restart_with")}
    public |= {name: "\n".join(getattr(options, name)) for name in ("env", "role", "setup")}
    for name, value in {**suspects, **known}.items():
        for option, text in public.items():
            # The typed words are quoted at this point.
            quoted = value.replace("'", "'\"'\"'")
            if len(value) >= SECRET_LEAST and (value in text or quoted in text):
                raise UsageError(
                    f"{flag_of(option)} contains the value of {name}, which everybody on the hosts could then read",
                    f"leave it out and add {FLAG.secret} {name}: the script then finds it in its environment",
                )


def refuse_named_like_secrets(variables: Mapping[str, str], where: str) -> None:
    """Raise UsageError for a plain variable that is named like a token, password or key, and is as long as one."""
    for name, value in variables.items():
        if NAMES.search(name) and len(value) >= SECRET_LEAST:
            raise UsageError(
                f"{where} {name}: everybody who may use a host's container engine could read it",
                f'export {name}=...; then: {FLAG.secret} {name} (cluster.toml: secrets = ["{name}"])',
            )


def refuse_ours(name: str, where: str) -> None:
    """Raise UsageError for a variable that Muster sets."""
    if _MUSTER_VARIABLES.fullmatch(name):
        raise UsageError(
            f"{where} {name}: Muster sets this variable for each node",
            f"to see its value: {command_of('deploy', dry_run=True)}",
        )

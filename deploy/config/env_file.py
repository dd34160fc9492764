"""Read a file of variables such as .env, as python-dotenv and docker compose read it: quotes, `export`, comments,
empty values, several lines within quotes, ${OTHER}.

Every value in it counts as a secret. No error shows a part of the file.
"""

from __future__ import annotations

import io
import os
import shlex
from collections.abc import Mapping
from pathlib import Path

from ..core.errors import UsageError
from . import consent, values

_MOST = 1 << 20  # bytes of the file, and letters of all values together
_MOST_VARIABLES = 10_000
_MOST_NAMED = 100  # others that one value may name: dotenv looks for the end of each to the end of the value


def read(path: Path) -> dict[str, str]:
    """The variables by name. A name without `=` takes its value from this shell; without one there, it is left out.

    Raises UsageError, with the line, for a file that cannot be read and for what is not NAME=VALUE.
    """
    # Imported here: only a run with such a file needs it.
    from dotenv.parser import parse_stream

    text = consent.once(path, _text)
    for number, binding in enumerate(parse_stream(io.StringIO(text)), 1):
        if number > _MOST_VARIABLES:
            raise UsageError(f"{path}: more than {_MOST_VARIABLES:,} variables", "take a part of them: --env-file FILE")
        # A statement begins with the blank lines and comments before it.
        line = binding.original.line + len(binding.original.string) - len(binding.original.string.lstrip("\r\n"))
        if binding.error:
            raise UsageError(f"{path}: line {line} is not NAME=VALUE", "quote a value that has quotes or several lines")
        if binding.key is not None and not values.VARIABLE.fullmatch(binding.key):
            raise UsageError(f"{path}: line {line} does not begin with the name of a variable", "letters, digits and _")
        if (binding.value or "").count("${") > _MOST_NAMED:
            raise UsageError(f"{path}: line {line} names more than {_MOST_NAMED} variables", "write the value out")
    return _complete(_values(path, text), os.environ)


def of_shell(path: Path) -> list[str]:
    """The names that the file takes from this shell: those without a value, and ${NAME} of no line above.

    Raises UsageError as `read` does.
    """
    from dotenv.parser import parse_stream
    from dotenv.variables import Variable, parse_variables

    read(path)
    above, names = set[str](), dict[str, None]()
    # Line by line: a name that is given twice has its first value in the lines between.
    for line in parse_stream(io.StringIO(consent.once(path, _text))):
        if line.key is None:
            continue
        parts = [] if line.value is None else list(parse_variables(line.value))
        used = [line.key] if line.value is None else [part.name for part in parts if isinstance(part, Variable)]
        names |= dict.fromkeys(name for name in used if name not in above)
        above.add(line.key)
    return list(names)


def _values(path: Path, text: str) -> dict[str, str | None]:
    """The values, as dotenv puts the variables in: lines above, then this shell. Raises UsageError for very much.

    dotenv itself goes through all values for each of them, and a value may have twice another one, and so on.
    """
    from dotenv.parser import parse_stream
    from dotenv.variables import parse_variables

    known, values, size = dict[str, str | None](os.environ), dict[str, str | None](), 0
    for binding in parse_stream(io.StringIO(text)):
        if binding.key is None:
            continue
        value = binding.value
        if value is not None:
            parts = [part.resolve(known) for part in parse_variables(value)]
            size += sum(map(len, parts))
            if size > _MOST:
                raise UsageError(f"{path}: its values have more than {_MOST} letters", "name fewer variables in others")
            value = "".join(parts)
        values[binding.key] = known[binding.key] = value
    return values


def _complete(read: Mapping[str, str | None], shell: Mapping[str, str]) -> dict[str, str]:
    both = {name: shell.get(name) if value is None else value for name, value in read.items()}
    return {name: value for name, value in both.items() if value is not None}


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(_MOST + 1)
        text = data.decode("utf-8-sig")
    except OSError as fault:
        raise UsageError(f"{path}: cannot be read: {fault.strerror}", f"ls -l {shlex.quote(str(path))}") from fault
    except UnicodeDecodeError as fault:
        raise UsageError(f"{path}: not UTF-8 text", "save it as UTF-8") from fault
    if len(data) > _MOST or "\0" in text:
        raise UsageError(f"{path}: not a file of variables", "a line for each: NAME=VALUE")
    return text

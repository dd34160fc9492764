"""Finds the line of a script that makes a node's ranks a world of their own, and the fix for it.

The ranks and their launchers note where they meet, and which command started them (node/rank/worlds.py). That command
is searched for in the shell script that ran it. If the command removed the run's variables, its process notes nothing,
and torchrun's process does so for it (watch_below.py). Standard library only.
"""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from muster.files import read

from .. import processes

_MOST_BYTES, _SHOWN = 1 << 18, 110
# Launchers' options for the nodes and their rendezvous; each is written with dashes here.
_OPTIONS = (
    *("--standalone", "--nnodes", "--node-rank", "--master-addr", "--master-port", "--rdzv-backend", "--rdzv-endpoint"),
    *("--rdzv-id", "--rdzv-conf", "--local-addr", "--num-machines", "--machine-rank", "--main-process-ip"),
    *("--main-process-port", "--same-network", "--num-nodes", "--hostfile", "--include"),
)
# Those of these options that set how many nodes there are.
_NODE_COUNT_OPTIONS = ("--standalone", "--nnodes", "--num-machines", "--num-nodes")
_LAUNCHERS = re.compile(r"\b(?:torchrun|torch\.distributed\.(?:run|launch)|accelerate|deepspeed)\b")
# A default, which a shell takes only if the variable is not set, does no harm and does not match.
_SETS = re.compile(r"\bMASTER_(?:ADDR|PORT)=(?!\"?\$\{?MASTER_)")
_CLEARS = re.compile(
    r"\benv\s+(?:-\w*i|-\s|--ignore-env)|\bunset\b.*\b(?:PET_|MASTER_|NNODES|NODE_RANK)|\bsudo\b|\bssh\b"
)
_ADDRESS = re.compile(r"tcp://([^\s/?]+)|--(?:master[-_]addr|rdzv[-_]endpoint)=(\S+)")
_ADDRESS_OPTION = re.compile(r"--(?:master[-_]addr|rdzv[-_]endpoint)")
_GIVEN = "PET_NNODES, PET_NODE_RANK, PET_MASTER_ADDR and PET_MASTER_PORT"


def is_local(address: str) -> bool:
    """Whether no other machine can reach this `host:port`: a loopback, a port still to be chosen, or a file."""
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    with suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback or port == "0"
    return host == "localhost" or port == "0" or address.startswith("/")


def is_launcher(note: Mapping[str, Any]) -> bool:
    """Whether the command in a note is a launcher with a known name."""
    return bool(_LAUNCHERS.search(" ".join(_strings(note.get("command"))[:4])))


def culprit_line(note: Mapping[str, Any], script: Sequence[str]) -> tuple[str, str]:
    """The line that makes the ranks of `note` a world of their own, and the fix; both may be empty.

    `script`: the words of the run's command, used if the shell has replaced itself by its last command.
    """
    command, at = _strings(note.get("command")), str(note.get("at", ""))
    name, lines = shell_script(_strings(note.get("shell")), script)
    options = [option for option in _options(command) if not lines or any(option in line for _, line in lines)]
    launcher = is_launcher(note)
    cleared = next((at for at, line in lines if _CLEARS.search(line)), 0)
    if launcher and options:
        keep = "and let it keep its variables" if cleared else "there"
        fix = f"leave out {_list(options)} {keep}: the launcher then uses the run's own values, from {_GIVEN}"
        return _show(name, _line_of(lines, command, options), _short(command)), fix
    if (launcher or "unseen" in note) and cleared:
        fix = (
            f"let the command keep its variables: it needs {_GIVEN}, MUSTER_OUTCOME_DIR and PYTHONPATH to find the run"
        )
        return _show(name, _at(lines, cleared), ""), fix
    setting = next((at for at, line in lines if _SETS.search(line)), 0)
    if setting:
        return _show(name, _at(lines, setting), ""), "leave that out: the run sets MASTER_ADDR and MASTER_PORT"
    if launcher or "unseen" in note:
        return _show(name, _line_of(lines, command, ()), _short(command)), ""
    return at, ""


def waited_s(note: Mapping[str, Any], noted: Sequence[Mapping[str, Any]], now: float) -> tuple[float, bool]:
    """For how many seconds the process of `note` has waited at an address of its own, and whether that is in vain.

    0 if it does not wait, or waits at the run's own rendezvous. `noted`: all notes of its rank. A launcher, or a rank
    of the run, waits in vain if no other node can reach that address, and no process on this node has met it there.
    """
    others, meets, given = (
        note.get("launch", [0])[0] or note.get("joins", 0),
        note.get("meets", ""),
        note.get("given", ""),
    )
    begun, taken = note.get("t", now), "taken" in note
    client = taken or note.get("client") is True
    elsewhere = taken or meets not in ("", given)
    if not elsewhere or (others < 2 and not client) or not processes.is_alive(note.get("pid", 0)):
        return 0.0, False
    if any("size" in each and each.get("t", 0.0) >= begun for each in noted):
        return 0.0, False
    is_of_run = "launch" in note or note.get("as_run") is True
    nobody = client or (is_of_run and is_local(meets) and (meets.endswith(":0") or not is_local(given)))
    # A launcher that has started its ranks has met the other launchers, or is the first of them.
    met = "launch" in note and bool(processes.children(note["pid"]))
    return (0.0 if met and not nobody else max(0.0, now - begun)), nobody and not met


def launch_of(words: Sequence[str], variables: Mapping[str, str]) -> dict[str, Any]:
    """The note of a torchrun with these words about where it meets; empty if that is the run's own rendezvous."""
    own = f"{variables.get('PET_MASTER_ADDR', '')}:{variables.get('PET_MASTER_PORT', '')}"
    nodes = _value(words, "--nnodes") or variables.get("PET_NNODES", "1")
    at = "localhost:0" if "--standalone" in words else _value(words, "--rdzv-endpoint")
    if not at and (address := _value(words, "--master-addr")):
        at = f"{address}:{_value(words, '--master-port') or variables.get('PET_MASTER_PORT', '29500')}"
    sizes = [int(each) for each in nodes.split(":") if each.isascii() and each.isdigit()]
    if not at or at == own or not sizes or not is_launcher({"command": [*words]}):
        return {}
    return {"launch": [sizes[0], sizes[-1], 1], "meets": at, "given": own}


def _value(words: Sequence[str], option: str) -> str:
    """The value of an option in a command's words, in either spelling; empty if it has none."""
    for word, behind in zip(words, [*words[1:], ""], strict=True):
        name, _, value = word.partition("=")
        if name.replace("_", "-") == option:
            return value or behind
    return ""


def lacks_run_variables(words: Sequence[str], variables: Mapping[str, str]) -> bool:
    """Whether a Python has neither the run's variables nor an address of another machine in its words or variables."""
    if not variables or "MUSTER_OUTCOME_DIR" in variables:
        return False
    addresses = [variables["MASTER_ADDR"]] if "MASTER_ADDR" in variables else []
    addresses += [of_url or of_option for each in words for of_url, of_option in _ADDRESS.findall(each)]
    addresses += [words[at + 1] for at, word in enumerate(words[:-1]) if _ADDRESS_OPTION.fullmatch(word)]
    return all(is_local(address if ":" in address else f"{address}:") for address in addresses)


def _strings(value: object) -> list[str]:
    return [word for word in value if isinstance(word, str)] if isinstance(value, list) else []


def _options(command: Sequence[str]) -> list[str]:
    """A launcher's options about the nodes, as they are written; only those before its script."""
    named = []
    for at, word in enumerate(command[1:], 1):
        option = word.partition("=")[0]
        is_script = word.endswith(".py") and not word.startswith("-")
        if is_script or (word in ("-m", "--module") and not _LAUNCHERS.search(" ".join(command[at : at + 2]))):
            break
        if "--" + option.lstrip("-").replace("_", "-") in _OPTIONS and option.startswith("-"):
            named.append(option)
    return list(dict.fromkeys(named))


def shell_script(shell: Sequence[str], script: Sequence[str]) -> tuple[str, list[tuple[int, str]]]:
    """The shell script's name and its numbered lines, without comments; a continued line counts as one."""
    folder, words = (shell[0], shell[1:]) if shell else (str(Path.cwd()), list(script))
    text, name = "", ""
    for at, word in enumerate(words):
        if re.fullmatch(r"-\w*c", word) and at + 1 < len(words):
            name, text = "sh -c", words[at + 1]
            break
        if not word.startswith("-") and not word.endswith(".py") and (word.endswith(".sh") or shell):
            with suppress(OSError, ValueError):
                text, name = (
                    read(Path(folder, word), _MOST_BYTES),
                    word if not word.startswith("/") else os.path.basename(word),
                )
                break
    return name, _joined(text)


def _joined(text: str) -> list[tuple[int, str]]:
    lines, begun = list[tuple[int, str]](), False
    for number, line in enumerate(text.splitlines(), 1):
        if begun:
            lines[-1] = (lines[-1][0], f"{lines[-1][1]} {line.strip().removesuffix(chr(92))}")
        elif not line.lstrip().startswith("#"):
            lines.append((number, line.strip().removesuffix(chr(92))))
        else:
            continue
        begun = line.endswith("\\")
    return lines


def _line_of(lines: Sequence[tuple[int, str]], command: Sequence[str], options: Sequence[str]) -> tuple[int, str]:
    """The line that starts the command. If `options` are given and that line has none of them: a line that has one."""
    own = {word for word in command[1:] if len(word) > 2}
    starts = [(sum(word in line for word in own), -number, line) for number, line in lines if _LAUNCHERS.search(line)]
    starts = starts or [(sum(word in line for word in own), -number, line) for number, line in lines]
    score, number, line = max(starts, default=(0, 0, ""))
    options = [each for each in options if each.replace("_", "-") in _NODE_COUNT_OPTIONS] or options
    if options and not any(option in line for option in options):
        return next(((at, text) for at, text in lines if any(option in text for option in options)), (-number, line))
    return (-number, line) if score or _LAUNCHERS.search(line) else (0, "")


def _at(lines: Sequence[tuple[int, str]], number: int) -> tuple[int, str]:
    return next((at, line) for at, line in lines if at == number)


def _show(name: str, line: tuple[int, str], otherwise: str) -> str:
    number, text = line
    if not number:
        return f"`{otherwise}`" if otherwise else ""
    return f"{name}:{number}: {_cut(' '.join(text.split()))}"


def _short(command: Sequence[str]) -> str:
    words = [os.path.basename(word) if "/bin/" in word else word for word in command]
    return _cut(" ".join(words[1:] if words[1:] and _LAUNCHERS.search(words[1]) else words))


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]} ..."


def _list(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"

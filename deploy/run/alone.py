"""Find the lines of a script that make each host, or each rank, train alone. Reads its syntax tree, imports nothing.

These are guesses, and the warning before a push says so: a script that trains alone ends just like one that does not.
"""

from __future__ import annotations

import ast
import re
import sys
import warnings as warnings_module
from collections.abc import Iterator, Sequence
from pathlib import Path

from ..core import plain_file
from ..job.options import FLAG

MOST = 96 << 10  # a tree takes up to 600 times the bytes of its source
# Names in a script that join ranks of several hosts. A script with one of these uses torchrun's variables.
_TOGETHER = re.compile(
    r"\b(torch\.distributed|init_process_group|DistributedDataParallel|FullyShardedDataParallel|fully_shard|accelerate|"
    r"Accelerator|lightning|pytorch_lightning|deepspeed|transformers|trl|horovod|ignite|composer|colossalai|fairscale|"
    r"megatron|torchtitan|torchtune|ray|jax|tensorflow|RANK|WORLD_SIZE|LOCAL_RANK)\b"
)
_HERE = re.compile(r"(?:tcp://)?(?:localhost|127\.\d+\.\d+\.\d+|\[?::1\]?)(?::\d+)?", re.ASCII)
# With a port of its own a rank waits for a store that nobody hosts: torchrun hosts it at MASTER_PORT.
_PORT = re.compile(r"tcp://.*:\d+/?", re.ASCII | re.DOTALL)
# A branch that asks for one of these serves several launchers: what it sets is not for torchrun.
_ASKS = re.compile(r"environ|getenv|MASTER_|RANK|WORLD_SIZE|elastic|SLURM", re.ASCII)
_LAUNCHERS = re.compile(r"torch\.distributed\.(?:launch|run)\b|\btorchrun\b")
_LIGHTNING = ("lightning", "lightning.pytorch", "pytorch_lightning", "lightning.fabric", "lightning_fabric")


def file_of(folder: Path, script: Sequence[str]) -> Path | None:
    """The file that `script`, the words of --script, starts; None if it is not a Python file in the folder."""
    words = list(script)
    if words[:1] == ["-m"] and len(words) > 1:
        parts = words[1].split(".")
        candidates = [Path(*parts).with_suffix(".py"), Path(*parts) / "__main__.py"]
    else:
        candidates = [Path(words[0])] if words and words[0].endswith(".py") else []
    for candidate in candidates:
        path = folder / candidate
        if path.is_file() and path.resolve().is_relative_to(folder.resolve()):
            return path
    return None


def warnings(folder: Path, script: Sequence[str], hosts: int) -> list[str]:
    """A warning for each line of the script that may keep its ranks from training together."""
    path = file_of(folder, script)
    if path is None:
        return []
    name = str(path.relative_to(folder))
    return [
        f"the ranks may not train together: {name}{f':{line}' if line else ''}: {why}"
        for line, why in signs(read(path), hosts)
    ]


def read(path: Path) -> str:
    """The source; empty if it is too large or cannot be read, and then there is no warning."""
    try:
        return plain_file.read(path.resolve(), MOST).decode()
    except (OSError, RuntimeError, UnicodeDecodeError):
        return ""


def signs(source: str, hosts: int) -> list[tuple[int, str]]:
    """(line, reason) for each such line; line 0 means the whole script. Empty for text that is not Python."""
    if not source:
        return []
    try:
        with warnings_module.catch_warnings(action="ignore"):
            tree = ast.parse(source)
        imported = _imported(tree)
        reasons = {why: line for line, why in sorted(_lines(tree, imported, hosts), reverse=True)}
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    torch = any(name.split(".")[0] == "torch" for name in imported.values())
    if torch and not (reasons or _TOGETHER.search(source) or _local_modules(tree)):
        return [(0, "nothing in it joins ranks: no torch.distributed, DDP, accelerate, lightning, deepspeed, Trainer")]
    return sorted((line, why) for why, line in reasons.items())


def _lines(tree: ast.Module, imported: dict[str, str], hosts: int) -> Iterator[tuple[int, str]]:
    guarded = _guarded(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = _full_name(node.func, imported)
            if name == "torch.nn.DataParallel" or name.endswith(".parallel.DataParallel"):
                yield (
                    node.lineno,
                    "DataParallel uses only the GPUs of one process; DistributedDataParallel joins ranks",
                )
            elif name in ("torch.multiprocessing.spawn", "torch.multiprocessing.start_processes") and hosts > 1:
                yield (
                    node.lineno,
                    f"mp.spawn starts ranks, but torchrun has started them: {FLAG.each} starts a command once a node",
                )
            elif name.endswith("init_process_group") and (address := _keyword(node, "init_method")):
                if _is_here(address) and hosts > 1:
                    yield node.lineno, f"init_method={address!r}: each host meets only itself; {_LEAVE_OUT}"
                elif _PORT.fullmatch(address) and id(node) not in guarded:
                    yield node.lineno, f"init_method={address!r}: nobody listens at that port; {_LEAVE_OUT}"
            elif _is_trainer(name) and hosts > 1 and not any(word.arg in ("num_nodes", None) for word in node.keywords):
                yield node.lineno, f"Trainer without num_nodes: Lightning expects one host; set num_nodes={hosts}"
            elif name.startswith(("subprocess.", "os.system", "os.exec", "os.popen")) and _launches(node):
                yield (
                    node.lineno,
                    "it starts torchrun (torch.distributed.launch) itself, so each host meets only itself",
                )
            elif name.endswith("environ.setdefault") or name.endswith("putenv"):
                values = [word.value for word in node.args if isinstance(word, ast.Constant)]
                if values[:1] == ["MASTER_ADDR"] and "putenv" in name and _is_here(values[-1]):
                    yield node.lineno, _MASTER
        elif isinstance(node, ast.Assign) and id(node) not in guarded:
            if _is_here(_assigned(node, "MASTER_ADDR")) and hosts > 1:
                yield node.lineno, _MASTER
            if _assigned(node, "MASTER_PORT").isdecimal():
                yield node.lineno, f"MASTER_PORT: nobody listens at a port of the script's own; {_LEAVE_OUT}"


_LEAVE_OUT = "leave it out, torchrun sets it"
_MASTER = f"MASTER_ADDR names each host itself; {_LEAVE_OUT}"


def _is_here(value: object) -> bool:
    return isinstance(value, str) and bool(_HERE.fullmatch(value))


def _guarded(tree: ast.Module) -> set[int]:
    """The nodes in branches that ask how the script was launched, by id()."""
    asks = (each for each in ast.walk(tree) if isinstance(each, ast.If) and _ASKS.search(ast.unparse(each.test)))
    return {id(node) for branch in asks for node in ast.walk(branch)}


def _assigned(node: ast.Assign, name: str) -> str:
    """The text that `os.environ[name] = ...` assigns, where it stands there as it is."""
    keys = [target.slice for target in node.targets if isinstance(target, ast.Subscript)]
    value = node.value.args[0] if isinstance(node.value, ast.Call) and len(node.value.args) == 1 else node.value
    if any(isinstance(key, ast.Constant) and key.value == name for key in keys) and isinstance(value, ast.Constant):
        return str(value.value)
    return ""


def _is_trainer(name: str) -> bool:
    package, _, last = name.rpartition(".")
    return last in ("Trainer", "Fabric") and package in _LIGHTNING


def _keyword(call: ast.Call, name: str) -> str:
    """The text of a keyword; in an f-string, {} stands for what is computed."""
    value = next((word.value for word in call.keywords if word.arg == name), None)
    if isinstance(value, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in value.values)
    return value.value if isinstance(value, ast.Constant) and isinstance(value.value, str) else ""


def _launches(call: ast.Call) -> bool:
    texts = [node.value for node in ast.walk(call) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    return bool(_LAUNCHERS.search(" ".join(texts)))


def _imported(tree: ast.Module) -> dict[str, str]:
    """The full name of each imported name: torch.multiprocessing for `mp`."""
    names = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                names[alias.asname or alias.name.split(".")[0]] = (
                    alias.name if alias.asname else alias.name.split(".")[0]
                )
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                names[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return names


def _local_modules(tree: ast.Module) -> bool:
    """Whether it imports a module that may be the user's own: that module may join the ranks."""
    known = {"torch", "torchvision", "torchaudio", "numpy", "pandas", "tqdm", "PIL", "sklearn", "scipy", "matplotlib"}
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add((node.module or "").split(".")[0] if not node.level else "")
    return bool(names - known - set(sys.stdlib_module_names))


def _full_name(node: ast.expr, imported: dict[str, str]) -> str:
    parts = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return ".".join(reversed(parts))
    return ".".join([imported.get(node.id, node.id), *reversed(parts)])

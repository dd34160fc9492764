"""A file that a rank missed and that another rank wrote in the same run, on another host. Pure.

A run's hosts share no folder while it lasts: what rank 0 writes lies on its host alone until the next start.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from ..send.folder import named_paths

_HELPS = (
    "let rank 0 alone read it, let the first rank of each host write it, or write it to a folder that all hosts mount: "
    "--mount /shared:/shared"
)
_NO_FOLDER = "hosts share no folder while a run lasts"


def known(words: str, run: str, node: str, node_paths: Mapping[str, frozenset[str]], open_end: bool = True) -> str:
    """What helps where another node has what these `words` of a rank of `node` miss; empty if none has it.

    `node_paths`: the paths of the words that each node has. If the node is unknown, one that lacks it is named.
    `open_end`: as missed.hint takes it.
    """
    for path in named_paths.all_of(words, run) if open_end else ():
        having = [name for name, paths in node_paths.items() if path in paths]
        lacking = [node] if node in node_paths else [name for name in node_paths if name not in having]
        if having and lacking and lacking[0] not in having:
            return f"{having[0]} has {_shown(path)}, and {lacking[0]} does not: {_NO_FOLDER}; {_HELPS}"
    return ""


def likely(words: str, run: str, nodes: Sequence[str], node_paths: Mapping[str, frozenset[str]], folder: Path) -> str:
    """What helps if a node did not say what it has: another rank may have written what was never sent.

    `folder`: the one that was sent.
    """
    if len(nodes) < 2 or all(name in node_paths for name in nodes):
        return ""
    for path in (named_paths.within(path)[0] for path in named_paths.sure(words, run)):
        of_folder = path.removeprefix(named_paths.WORK)
        # A name without a folder may be that of the exception itself.
        is_here = "/" not in of_folder or (folder / of_folder).exists()
        if not is_here and not any(path in has for has in node_paths.values()):
            return f"if another rank wrote {_shown(path)}, only its host has it: {_NO_FOLDER}; {_HELPS}"
    return ""


def _shown(path: str) -> str:
    """A path as the script has it, seen from where it works."""
    of_home = path.startswith(named_paths.HOME)
    return f"~/{path.removeprefix(named_paths.HOME)}" if of_home else path.removeprefix(named_paths.WORK)

"""Muster in anybody's fabfile: its commands as tasks, and `Hosts`, a Fabric Group through Muster's SSH.

docs/how-to/use-it-from-fabric.md shows a fabfile. A task of its own comes before one of ours of that name.
"""

from importlib import import_module
from typing import Any

Hosts: Any = import_module(".deploy.fabric", __package__).Hosts
# `exec` is a word of Python: the task has that name, the variable has another.
_TASKS = {
    each.name + "_" * (each.name == "exec"): each for each in import_module(".deploy.commands.fab", __package__).tasks()
}
globals().update(_TASKS)
__all__ = ["Hosts", *_TASKS]

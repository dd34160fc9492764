"""Muster in any fabfile: its commands as tasks, and `Hosts`, a Fabric Group that connects through Muster's SSH.

docs/how-to/use-it-from-fabric.md shows a fabfile. A task that the fabfile defines replaces Muster's task of that name.
"""

from importlib import import_module
from typing import Any

Hosts: Any = import_module(".deploy.fabric", __package__).Hosts
# `exec` is a Python built-in: the task keeps that name, but its variable is `exec_`.
_TASKS = {
    each.name + "_" * (each.name == "exec"): each for each in import_module(".deploy.commands.fab", __package__).tasks()
}
globals().update(_TASKS)
__all__ = ["Hosts", *_TASKS]

"""Private names of torch that Muster patches or reads, and the variable that turns this off: MUSTER_PLAIN_TORCHRUN.

tests/unit/trainer/node/test_torch_names.py reports which of them a new torch has moved. Standard library only.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping

# If set to 1, torchrun is unchanged: each rank imports torch itself, with torch's own pauses and rendezvous.
PLAIN = "MUSTER_PLAIN_TORCHRUN"
# Where each name is, and what does not work without it.
NAMES = {
    "torch._C:DisableTorchFunction": "modes and tensor classes of a script hear nothing of what watches it",
    "torch.distributed.distributed_c10d:_world.pg_map": "whether a script's ranks sent anything",
    "torch.distributed:ProcessGroup._get_sequence_number_for_group": "whether a script's ranks sent anything",
    "torch._dynamo.trace_rules:_recompile_re": "torch.compile passes over what watches a script",
    "torch.autograd:Variable._execution_engine": "a wait in the middle of backward",
    "torch._C:_len_torch_dispatch_stack": "a script's loss under a dispatch mode is not misread",
    "torch.jit._builtins:_register_builtin": "a script that has torch.jit compile a call of backward",
    "torch.autograd:_profiler_enabled": "what a script profiles has nothing of the watching in it",
    "torch._C._distributed_c10d:_dump_fr_trace": "which collectives do not agree in a run that hangs",
}


def keeps_torch_unchanged(environment: Mapping[str, str]) -> bool:
    """Whether the user asked to leave torch unchanged."""
    return environment.get(PLAIN) == "1"


def missing_names() -> list[str]:
    """The names that this version of torch does not have, each with what does not work without it. Imports torch."""
    return [f"{name} ({loss})" for name, loss in NAMES.items() if not _is_there(name)]


def _is_there(name: str) -> bool:
    module, _, attributes = name.partition(":")
    try:
        value: object = importlib.import_module(module)
        for attribute in attributes.split("."):
            value = getattr(value, attribute)
    except (ImportError, AttributeError):
        return False
    return True

"""Whether an exception that no sign describes is the script's own fault. Pure."""

from __future__ import annotations

import re

from .reading import Hit

# Exceptions that a script raises, or makes a library raise. The environment may be the cause of others.
_SCRIPTS = re.compile(
    r"^(?:builtins\.)?(?:Key|Value|Type|Attribute|Index|Name|Assertion|NotImplemented|ZeroDivision|Syntax|Indentation|"
    r"UnboundLocal|FileNotFound|IsADirectory|FileExists|Recursion|Overflow|Unicode\w*|Lookup|Arithmetic|StopIteration|"
    r"Tab|EOF|json\.decoder\.JSONDecode|JSONDecode)(?:Error)?: ?|"
    r"^\S{0,80}(?:MisconfigurationException|Config\w*Error|InstantiationException|HydraException|ValidationError)\b"
)
_SHAPES = re.compile(
    r"(?i)RuntimeError: .{0,200}?(?:[Ss]izes? |shapes? |mat1|dimension|expected (?:scalar|all tensors|object)|dtype|"
    r"does not require grad|a second time|inplace operation|[Ii]nput type|must match|invalid for input|"
    r"element 0 of tensors|process group (?:has not been initialized|twice)|bootstrapping phase)"
)
# Words of the environment: an exception with these is not simply the script's fault, whoever raised it.
SURROUNDINGS = re.compile(
    r"(?i)\b(?:cuda|cudnn|cublas|nccl|gloo|gpus?|driver|host(?:name)?|connect\w*|ports?|sockets?|network|"
    r"time[d-]? ?out|out of memory|certificate|ssl|proxy|rendezvous|quota|no space|permission|denied|docker|"
    r"infiniband)\b"
)
_LIBRARIES = re.compile(r"site-packages|dist-packages|/lib(?:64)?/python\d|<frozen|<string>|\\lib\\")


def by_script(hit: Hit) -> bool:
    """Whether the script itself is at fault: by the kind of exception, or because a file of the user raised it."""
    if hit.sign is not None:
        return False
    if _SHAPES.match(hit.error):
        return True
    if SURROUNDINGS.search(hit.error):
        return False
    if _SCRIPTS.match(hit.error):
        return True
    return bool(hit.frame) and not _LIBRARIES.search(hit.frame)

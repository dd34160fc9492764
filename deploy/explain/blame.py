"""Judge an error that no sign describes: a general kind of fault, by common words, or the script's own fault. Pure."""

from __future__ import annotations

from .reading import Hit
from .signs.general import kind_by
from .signs.kinds import Sign
from .words import ANY_CLASS, REFERS_ELSEWHERE, SIDE_ISSUE, WRAPPERS, compile_limited

# Exceptions that are usually the script's own fault. Other exceptions may come from the environment.
_SCRIPTS = compile_limited(
    r"^(?:builtins\.)?(?:Key|Value|Type|Attribute|Index|Name|Assertion|NotImplemented|ZeroDivision|Syntax|Indentation|"
    r"UnboundLocal|FileNotFound|IsADirectory|FileExists|Recursion|Overflow|Unicode\w*|Lookup|Arithmetic|StopIteration|"
    r"Tab|json\.decoder\.JSONDecode|JSONDecode)(?:Error)?: ?|"
    r"^\S{0,80}(?:MisconfigurationException|Config\w*Error|InstantiationException|HydraException|ValidationError)\b"
)
_SHAPES = compile_limited(
    r"(?i)RuntimeError: .{0,200}?(?:[Ss]izes? |shapes? |mat1|dimension|expected (?:scalar|all tensors|object)|"
    r"d(?:ata )?type|does not require grad|a second time|inplace operation|[Ii]nput type|must match|invalid for input|"
    r"element 0 of tensors|DistributedDataParallel is not needed|mixed torch\.Tensor|"
    r"process group (?:has not been initialized|twice)|bootstrapping phase)"
)
# Words about the environment: an exception with one of them may not be the script's fault, even if the script raised
# it.
SURROUNDINGS = compile_limited(
    r"(?i)\b(?:cuda|cudnn|cublas|nccl|gloo|gpus?|driver|host(?:name)?|connect\w*|ports?|sockets?|network|"
    r"time[d-]? ?out|out of memory|certificate|ssl|proxy|rendezvous|quota|no space|permission|denied|docker|"
    r"infiniband|not (?:available|installed))\b"
)
# The message about a bad argument may name a GPU or a backend. These words are only about what no argument can cause.
_OUTSIDE = compile_limited(
    r"(?i)\b(?:connect(?!or)\w*|sockets?|network (?!\w+ (?:layer|type))|time[d-]? ?out|out of memory|certificate|ssl|"
    r"rendezvous|quota|no space|permission|denied)\b"
)
# An exception's class in the middle of a line: after an unknown prefix, or in a text quoted by JSON.
_RAISED = compile_limited(
    r"(?:^|\\n|[\s\"'>:\]|(.])((?:\w{1,60}\.){0,8}[A-Z]\w{1,60}(?:Error|Exception))(?:: |:?$|\\n|(?=  ?File \"))"
    r"(.{0,400})"
)
# The output of a program that catches an exception and prints only its message.
_CAUGHT = compile_limited(r"\b(?:Exception|Error) (?:while|during|when) [^:]{1,80}: (\S.{0,400})")
_BAD = compile_limited(
    r"\.\w*(?:Bad|Invalid|Fail|Missing|NotFound|Mismatch|Timeout|Expired|Abort|Unsupported|Denied|Refused|Lost|OutOf|"
    r"Broken|Corrupt|Unidentified|Disconnected)\w*$"
)
# Words about the run as a whole: an error with one of them may not be the script's fault, whatever its class.
_RUN_WORDS = compile_limited(
    r"(?i)\b(?:ranks?|collectives?|hosts?|gpus?|cuda (?:is|was|not|un\w+)|device ids?|state[_ ]?dict|checkpoints?)\b"
)
# How an error begins if a check in compiled code failed; the next words say which check.
_NATIVE = "[enforce fail at"
# A bare name: it may be a file, or a program that is not installed.
_BARE_NAME = compile_limited(r"No such file or directory: '[^'/.]+'$")
_QUOTED = compile_limited(r"'[^']*'|\"[^\"]*\"")
# A class that says nothing by itself: whose fault the error is depends on the file that raised it.
_PLAIN_CLASS = compile_limited(r"^(?:RuntimeError|Exception)\b")
_LIBRARIES = compile_limited(r"site-packages|dist-packages|/lib(?:64)?/python\d|<frozen|<string>|\\lib\\")


def by_script(hit: Hit) -> bool:
    """Whether the script itself is at fault: by the kind of exception, or because one of the user's files raised it."""
    if (
        hit.sign is not None
        or _NATIVE in hit.error
        or (not hit.frame and _BARE_NAME.search(hit.error))
        or _RUN_WORDS.search(_QUOTED.sub("", hit.error))
    ):
        return False
    if _SHAPES.match(hit.error):
        return True
    if _SCRIPTS.match(hit.error):
        return not _OUTSIDE.search(hit.error)
    if SURROUNDINGS.search(hit.error):
        return False
    return bool(hit.frame and _PLAIN_CLASS.match(hit.error)) and not _LIBRARIES.search(hit.frame)


def sign_by_words(error: str) -> Sign | None:
    """The kind of fault that an exception's words mean.

    If scripts usually raise its class, only a fault of the outside world counts.
    """
    if _SHAPES.match(error):
        return None
    return kind_by(error, outside_only=bool(_SCRIPTS.match(error)))


def raised_in(text: str) -> str:
    """The exception somewhere in a line that looks like an error; empty if there is none."""
    if REFERS_ELSEWHERE.search(text) or SURROUNDINGS.search(text):
        return ""
    raised = [match for match in _RAISED.finditer(text) if not WRAPPERS.search(match[1])]
    if raised:
        return f"{raised[0][1]}: {raised[0][2]}".strip()
    caught = _CAUGHT.search(text)
    return f"Exception: {caught[1]}" if caught and not SIDE_ISSUE.search(text) else ""


def bad_end(text: str) -> str:
    """The last line of an output, if it is an exception whose class name says that something is bad; or empty."""
    ends = ANY_CLASS.match(text)
    return text if ends and ends[2] and _BAD.search(ends[1]) and not WRAPPERS.search(ends[1]) else ""

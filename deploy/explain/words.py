"""Patterns for lines that report an error, a good end, a bad end, or a side issue; none can be slow. Pure.

A pattern with two unlimited repeats (`max\\w*time\\w*exceeded`) takes seconds for one long line that almost matches,
and others choose the lines. So every pattern in this package is made by `compile_limited`, which limits all repeats.
"""

from __future__ import annotations

import re

# Lines are cut to this many characters: no error needs more.
LONGEST = 4096
# The most repeats of a part of a pattern; for any character (`.`) or a group, the length of a line.
_MOST, _MOST_WORDS, _ANY = 100, 400, (".", ")")
# A character, an escape or a class, and the unlimited repeat after it.
_PART = re.compile(r"(\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|[^\\])([*+])?", re.DOTALL)


def compile_limited(pattern: str, flags: int = 0) -> re.Pattern[str]:
    """Compile a pattern with a limit for every `*` and `+`: `\\w*` becomes `\\w{0,100}`, and so on."""
    return re.compile(_PART.sub(_ended, pattern), flags)


def _ended(match: re.Match[str]) -> str:
    part, repeat = match.groups()
    if not repeat or part == "}":  # `{2,3}+` is limited already
        return match[0]
    most = LONGEST if part in _ANY else _MOST_WORDS if part == "\\S" or part.startswith("[^") else _MOST
    return f"{part}{{{int(repeat == '+')},{most}}}"


# In a large piece, searching for these words one by one is faster than a pattern.
WORDS = (
    b"rror|ERROR|ail|NCCL WARN|xcept|ignal|illed|annot|denied|efused|imed out|imeout|xceeded|undefined sym|Xid|"
    b"egmentation|odule named|lost comm|low on res|OOM|Traceback|EADDR|vict|isagree|Process name|has different|"
    b"FingerPrint|*** SIG|mismatch|NotFound|unable to|fault by GPU| fatal |not found|o matching man|Ready|marked dead"
).split(b"|")
WORD = re.compile(b"|".join(map(re.escape, WORDS)))
GOOD_END = compile_limited(
    r"(?i)\b(?:training|run|job|fit(?:ting)?|fine-?tuning|everything)\b.{0,30}\b(?:complete[d]?|finished|done|succe\w+)\b|"
    r"\b(?:completed|finished) (?:training|successfully)|exited with code 0\b|exit code:? 0\b|train_runtime|"
    r"`Trainer\.fit` stopped: `max_\w+=|^done[.!]?$|all done\b|return code:? 0\b"
)
BAD_END = compile_limited(
    r"exit(?:ed)?(?: with)?(?: exit)? (?:code|status)[: ]{1,3}(?!0\b)-?\d+|return code = (?!0\b)|failed \(exitcode|"
    r"ChildFailedError|FAILED\b|core dumped"
)
# "Unable to" may be what ends the run, or it may be about something that the run can do without.
_UNABLE = r"(?:^|: )(?:Unable to|Could not|Cannot) "
_WRONG = (
    r"(?i:\b(?:error|fatal|critical)\b)[\]: ]|Error response|: not found$|[a-z]Error\b|\b[Ff]ailed\b|"
    r"\bException (?:while|during)\b|: E \w+/|\bE\d{3,4} \d\d:"
)
WRONG = compile_limited(_WRONG)
ERROR = compile_limited(f"{_WRONG}|{_UNABLE}")
NEGATION = compile_limited(r"(?i)\b(?:not|fail\w*|error|unless|until|before|when|if)\b")
EXCEPTION = compile_limited(
    r"^[\s|│+]*(?:\"message\": \")?((?:\w+\.){0,8}\w*(?:Error|Exception|Exit|Interrupt|Warning)(?:Group)?"
    r"|(?:\w+\.){1,8}[A-Z]\w*(?:NotFound|Timeout|Expired|Failed|Fault))(?:: ?(.*))?$"
)
# The last line of a Python traceback: an exception's class, of any name, and its words: `trio.Cancelled: Cancelled`.
ANY_CLASS = compile_limited(r"^((?:[a-z_]\w*\.){1,8}[A-Z]\w*)(?:: (.*))?$")
FRAME = compile_limited(r"(?:^|[\s\]:|│>\"])File \"([^\"]{1,300})\", line \d+")
TRACEBACK = compile_limited(r"^\s*Traceback \(most recent call last\):")
# A quoted traceback, from a data loader's worker or another rank: the exception before it only passes it on.
INNER = compile_limited(
    r"\bOriginal Traceback \(most recent call last\):|Traceback \(most recent call last\): \(RANK \d+\)"
)
# The exception that follows is a side issue: from a destructor, or from the code that reports errors.
SIDE_ISSUE = compile_limited(r"\b(?:Exception ignored in|Error in (?:sys\.excepthook|atexit\._run_exitfuncs))\b")
IN_A_THREAD = compile_limited(r"^Exception in thread \S")
MAIN_EXCEPTION = compile_limited(r"\bOriginal exception was:")
# An error that refers to another error elsewhere.
REFERS_ELSEWHERE = compile_limited(
    r"(?i)\b(?:root cause|see (?:the )?(?:above|stack ?trace|inner exception|logs?|traceback|error)|"
    r"(?:check|see) \S{0,40} ?logs?\b|processes? exited with|exited with (?:a )?non-?zero|"
    r"job aborted due to stage failure|background workers are no longer alive|"
    r"failed to start containers?:|did not complete successfully|"
    r"(?:worker|process|engine|child|subprocess)\w* (?:\S+ )?(?:died|failed|exited|initialization failed))"
)
# Errors from a launcher, or about other errors: they are never the error itself.
WRAPPERS = compile_limited(
    r"ChildFailedError|Rendezvous\w*Error|SignalException|DistStoreError|DistNetworkError|DistError|DistBackendError|"
    r"ProcessRaisedException|ProcessExitedException|CalledProcessError|RayTaskError|RayActorError|ActorDiedError|"
    r"WorkerCrashedError|_?RemoteTraceback|ActorUnavailableError|TrainingFailedError|SystemExit|"
    r"UnexpectedStatusException|\bAlgorithmError|ExecuteUserScriptError|"
    r"CreateContainer\w*Error|RunContainerError|"
    r"python\.PythonException|Py4JJavaError|"
    r"Warning$"
)
QUIET = compile_limited(
    r"Warning\b|\bWARN(?:ING)?\b|\[W\b|\b[WI]\d{3,4} \d\d:|: [WI] \w+/|\bDEBUG\b|\[I\b|\b[Rr]etrying\b|"
    # A program that passes on another program's output logs it as information, even an exception.
    r"\bINFO\b(?!\W{0,4}(?:\[rank\d+\]: )?[\w.]{1,80}(?:Error|Exception): )|"
    r"(?i:will (?:retry|be ignored|fall ?back)|falling back|skipping\b|\bignoring\b)"
)
LOUD = compile_limited(
    r"NCCL WARN|\.(?:cc|cu|h):\d+ WARN|IDENTIFICATION|SIGHUP|SIGINT|death signal|"
    r"\bWarning {1,8}(?:Failed|Evicted|BackOff|OOM|NodeNotReady|Preempt)|"  # the level of an event of Kubernetes
    r"server socket has failed to listen on any|Traceback|^\w*Error: |marked dead"
)
# From one of these words on, a sentence is the program's advice or guess, not a fact.
_ADVICE = compile_limited(
    r"(?i)\b(?:please|make sure|ensure|try(?: to)?|consider|e\.g\.|such as|for example|possibl[ey]|potential(?:ly)?|"
    r"perhaps|probably|(?:may|might|could|can) (?:also )?(?:be|have|indicate|mean|happen|occur|cause)|"
    r"if (?:you|the|this|it|that)|common (?:cause|reason)s?|verify|double[- ]check)\b(?:[^.?]|[.?](?=\S))*"
)


def facts(text: str) -> str:
    """A text without its advice and guesses; the whole text if nothing else would be left."""
    left = _ADVICE.sub("", text)
    return left if left.strip() else text

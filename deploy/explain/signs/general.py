"""Common words in errors that no sign describes: they still show what kind of fault an error is. Pure.

These rows are tried last, and only on the words of an exception or on a line that looks like an error. So their
patterns may be broad: no line of training output is matched against them. The first row that matches wins.
"""

from __future__ import annotations

from ..words import REFERS_ELSEWHERE, WRAPPERS, facts
from .kinds import ALONE, GPUS, Sign, general, several

_CANNOT = r"(?:could(?: not|n't)|can ?not|can't|unable to|fail(?:s|ed|ure)?(?: to| in| of| while)?)"
_ACCELERATOR = r"(?:cuda|gpus?|hip|npus?|xpus?|hbm|vram|accelerators?)"

# Faults of the outside world: whatever class of exception they have, the script is not at fault.
_OUTSIDE = (
    general("access-denied", r"(?i)\b40[13]\b.{0,60}(?:client error|forbidden|unauthori[sz]ed|denied)|"
            r"(?<!cuda )(?<!hip )(?<!acl )(?:error|status|code|response)\W{1,4}(?:\w+ ){0,3}40[13]\b|"
            r"\b(?:unauthori[sz]ed|forbidden)\b|"
            r"accessdenied|gatedrepo|api_key not configured|invalid user token|"
            r"\b(?:invalid|expired|missing|no|incorrect|wrong) (?:\w+ ){0,3}(?:credentials?|api[_ -]?key|(?:access|"
            r"auth\w*|security|login) (?:key|token))\b|nocredentials|expiredtoken|authenticat\w* (?:failed|required|"
            r"error)|not (?:logged in|authenticated|authori[sz]ed)|\bpermissions? to access\b|ask the project owner|"
            r"permission_(?:error|denied)|\bgated (?:repo|model|dataset)",
            "an internet service refuses the login, or the token is missing", "hf auth whoami"),
    # Only for texts without an address of this host itself.
    general("download", r"^(?!.{0,2000}(?:localhost|127\.0\.0\.1|0\.0\.0\.0|\[::1?\]))(?i:.{0,2000}?\b(?:429|"
            r"50[0234])\b.{0,60}(?:client|server) error|.{0,2000}?(?:too many requests|"
            r"rate limit|consistency check failed: file should be of size|(?:gateway|service) (?:time-?out|"
            r"unavailable)|\bhttp\w*error(?!.{0,20}4(?:00|09|13|22)\b)|"
            r"urlerror|incompleteread|chunkedencodingerror|entrynotfound|"
            r"download\w* .{0,60}(?:fail|error|interrupt|incomplete)|(?:fail\w*|"
            r"error|unable|can ?not|could not) .{0,40}download|(?:https?://[^/\s]{1,200}\.[a-z]{2,9}(?<!local)[/:]|"
            r"huggingface\.co|modelscope\.|s3[.:]).{0,200}(?:refused|reset|aborted|timed? ?out|unreachable|closed)))",
            "the run could not download a model or a data set, or the service limits its requests",
            "curl -sSI https://huggingface.co", "access-denied"),
    general("checkpoint-mismatch", "(?i)(?:checkpoint|state[_ ]?dict|pretrained|adapter "
            "weights).{0,160}(?:mismatch|(?:not|n't) (?:match|fit)|different (?:number|size|shape)|incompatib|"
            r"unexpected (?!keyword)|missing key)|(?:mismatch|(?:not|n't) (?:match|fit)|different|incompatib\w*) "
            ".{0,80}(?:checkpoint|state[_ ]?dict)|(?:missing|unexpected) keys?\\b.{0,40}(?:checkpoint|state[_ ]?dict)",
            "the checkpoint does not fit the model", ALONE, "checkpoint-broken"),
    general("checkpoint-broken", r"(?i)unable to load weights from \w+ checkpoint file|(?:corrupt|truncated|"
            r"incomplete|invalid header|bad magic|unexpected end).{0,100}(?:checkpoint|safetensors|weights|"
            r"\.(?:pt|pth|bin|ckpt)\b)|(?:checkpoint|safetensors|weights|\.(?:pt|pth|bin|ckpt)\b).{0,100}(?:corrupt|"
            "truncated|incomplete|invalid header|malformed|not a valid)",
            "a checkpoint cannot be read: truncated, still being written, or not a checkpoint", "ls -l FILE"),
    # Not for texts with a URL: an internet service uses the same words about a login.
    general("file-permission", "(?i)^(?!.{0,2000}(?:wandb|https?:)).{0,2000}?(?:permissionerror|permission denied|"
            "operation not permitted|not write?able)",
            "the run's user may not read or write a file", "ls -ld FOLDER; id", "folder-readonly"),
    general("disk-full", r"(?i)\bno (?:free |more |disk )?space (?:left|on|in /|available)|disk (?:is )?full|"
            r"(?:not enough|insufficient) (?:free )?(?:disk|storage) space",
            "a disk is full", "df -h; df -i", "disk-quota"),
    general("peer-name-unresolvable", r"(?i)name or service not known|failure in name resolution|no such host\b|"
            + _CANNOT + r" resolve (?:\w+ ){0,2}(?:host|name|address)|unknown ?host|getaddrinfo",
            "a node cannot resolve the name of another one, or its own", "getent hosts $MASTER_ADDR",
            "name-unresolvable", "endpoint-unresolvable"),
    general("scheduler", r"(?i)(?<!disk )quota (?:metrics|exceeded|limits?)|exceed\w* .{0,30}quota|capacityerror|"
            r"(?:not enough|insufficient|no (?:free|available|idle|more)) (?:\w+ ){0,2}(?:capacity|slots|nodes)\b|"
            r"resourcelimitexceeded|no capacity\b",
            "the scheduler or the cloud does not provide the hosts that the job asks for", "scontrol show job JOB"),
    # Scripts assert this. The same words about a kernel, an operator or the like do not mean that a GPU is missing.
    general("gpu-missing", r"(?i)\bno (?:\w+ ){0,3}" + _ACCELERATOR
            + r"\b(?! memory)(?: \w+){0,3} (?:found|available|detected|visible)|\brequires? an? (?:cuda |nvidia )?gpu\b"
            r"(?! with)|" + _ACCELERATOR
            + r" (?:(?!kernel|op|ext|impl|mem|graph|back)\w+ ){0,2}"
            r"(?:(?:is|was|are|were) not (?:available|found|detected|visible)|not (?:available|visible)|unavailable)",
            "the process sees no GPU", "nvidia-smi -L", "gpu-runtime", "gpu-hidden", "torch-without-cuda"),
    general("gpu-arch", r"(?i)unsupported (?:gpu|cuda|device) arch|not supported (?:in|on|by) this (?:gpu )?arch|"
            r"(?:compute capability|\bsm_?\d\d|ampere|hopper\b(?!-v\d)|blackwell).{0,80}(?:required|not supported|"
            r"unsupported|or (?:higher|newer|above|later))|"
            r"(?:requires?|only support(?:s|ed)|needs?) [^,]{0,60}"
            r"(?:compute capability|\bsm_?\d\d|ampere|hopper\b(?!-v\d))",
            "the GPU is too old or too new for what the script or a build needs",
            "nvidia-smi --query-gpu=name,compute_cap --format=csv", "compiler-missing"),
)  # fmt: skip
# Faults of the host, its GPUs and its libraries.
_HOST = (
    general("gpu-memory", "(?i)" + _ACCELERATOR
            + r"\b.{0,80}\b(?:out of memory|oom|(?:not enough|insufficient) memory)|(?:out of memory|(?:not "
            r"enough|insufficient) memory|\boom\b).{0,60}\b" + _ACCELERATOR + r"\b",
            "a GPU's memory is full", GPUS, "host-memory"),
    general("host-memory", r"(?i)\b(?:host|node|system|cpu|ram|container|cgroup|pod|replica|instance|kernel|job|"
            r"machine)\b.{0,80}(?:out[- ]of[- ]memory|\boom\b|(?:not enough|insufficient|low on) memory)|"
            r"(?:out[- ]of[- ]memory|\boom\b|(?:not enough|insufficient) memory).{0,60}\b(?:host|node|system|cpu|ram|"
            r"container|cgroup|pod|kill\w*)\b|out[- ]of[- ]host[- ]memory|memory pressure|arraymemoryerror|"
            r"exceed\w*(?: the)? memory",
            "a host's memory is full", "free -h; dmesg -T | grep -i oom", "killed", "gpu-memory"),
    several(r"(?i)\b(?:gcc|g\+\+|nvcc|clang|ninja|cmake)\b.{0,60}(?:fatal|\berror\b|failed)|ninja: build stopped|"
            r"(?:fail\w*|error)(?: to)? (?:build|compil)\w* "
            r"(?:\w+ ){0,2}(?:extension|op)\b",
            "the build of an extension failed; the compiler's output says why", "nvcc --version; gcc --version",
            "exception", "compiler-missing", "gpu-arch", "library-mismatch"),
    general("library-mismatch", "(?i)" + _CANNOT
            + r" load (?:the )?(?:\w+ ){0,2}(?:librar|shared|dynamic|any of|symbol|dll|native)|(?:could not find|"
            r"cannot load|failed to open) .{0,100}\.so\b|\.so(?:\.\d+){0,3}\b.{0,100}(?:not found|cannot|no such|"
            "undefined|not defined)|dll load failed.{0,200}(?:could not be found|not a valid|找不到)|"
            r"invalid elf|(?:compiled|built) (?:with|using|against|for) "
            r".{0,60}(?:but|cannot|incompatible|different|older|newer)|\bbut .{0,40}(?:compiled|built) (?:with|using|"
            r"against|for)|multiarray failed to import|(?:incompatible|mismatch\w*) (?:\w+ ){0,2}version(?! detected)|"
            "requires version .{0,80}but .{0,40}(?:installed|version)|version "
            "(?:mismatch|conflict|incompatib)|binary incompatib",
            "a compiled library is missing, or was built for another torch, CUDA or system",
            "pip list | grep -iE 'torch|cuda|nvidia|flash|numpy'", "module-missing"),
    general("module-missing", r"^(?:\w+\.){0,8}(?:ModuleNotFoundError|PackageNotFoundError|"
            r"DistributionNotFound|\w*VersionConflict)\b|"
            r"(?i:(?:is not|isn't|to be) installed|\b(?:pip|conda) install\b|"
            r"(?:package|module|library|requirement)s?\b.{0,80} not found in your environment)",
            "this environment lacks a package, or the version that the script wants", "pip list", "library-mismatch"),
    general("gpu-missing", r"(?i)/dev/(?:kfd|nvidia\w*|dri)\b(?!/).{0,60}(?:no such|not found|not exist)",
            "the host has no device file for the GPU: its driver is not loaded", "nvidia-smi -L; ls /dev/kfd",
            "gpu-driver", "gpu-runtime"),
    general("port-busy", r"(?i)address (?:is )?already in use|EADDRINUSE|port (?:\d+ )?(?:is )?(?:already "
            ")?(?:in use|taken|occupied)",
            "a port is in use on the host that should listen on it", "ss -ltnp"),
    general("command-missing", "(?i)(?:failed to execute|cannot run|could not (?:run|start|execute)|"
            r"exec(?:vp?e?|ute)?)\b(?!.{0,200}slurm_script).{0,60}(?:no such file|not found)|"
            r"executable .{0,60}not found|command not found",
            "a program does not exist there", "which PROGRAM"),
)  # fmt: skip

ROWS = (*_OUTSIDE, *_HOST)


def kind_by(words: str, outside_only: bool = False) -> Sign | None:
    """The kind of fault that the words of an error mean. outside_only: consider only faults of the outside world."""
    if WRAPPERS.search(words) or REFERS_ELSEWHERE.search(words):
        return None
    words = facts(words)
    return next((row for row in ROWS if (not outside_only or row in _OUTSIDE) and row.pattern.search(words)), None)

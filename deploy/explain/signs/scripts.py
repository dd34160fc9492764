"""Signs of faults in the script itself, and messages from ranks that only lost a peer. Pure."""

from .kinds import ALONE, NCCL_DEBUG, general, script, several, sign, victim

# If an attribute of one of these libraries is missing, the library has another version; elsewhere, the script is wrong.
_LIBRARY = (
    r"(?:torch\w*|numpy|scipy|pandas|jax\w*|tensorflow|keras|transformers|datasets|accelerate|deepspeed|peft|trl|"
    r"triton|xformers|flash_attn\w*|apex|megatron|vllm|ray|wandb|pytorch_lightning|lightning|diffusers|huggingface_hub|"
    r"bitsandbytes|cv2|PIL|google|pkg_resources|setuptools|distutils|collections|inspect|asyncio)"
)
SCRIPT = (
    script("collectives-differ", r"op\.preamble\.length <= op\.nbytes|Detected mismatch between collectives|"
           r"Mismatched collective detected|Cannot apply desired operation due to shape mismatches|"
           r"Collectives differ in the following|"
           r"(?i:disagree\w*|inconsistent|mismatch\w*|differ\w*|not the same) "
           r"(?:\w+ ){0,4}?(?:between|across|among|on) (?:\w+ ){0,2}?rank|Rank \d+ has different ",
           "ranks called different collectives, or with tensors of different sizes",
           "TORCH_DISTRIBUTED_DEBUG=DETAIL torchrun ..."),
    several(r"[Mm]essage truncated : receiv(?:ed|ing)", "a rank sent NCCL a size that its peer does not expect",
            NCCL_DEBUG, "collectives-differ", "nccl-differs"),
    script("models-differ", r"DDP expects same model|params\[\d+\] in this process with sizes|"
           r"appears not to match (?:sizes|strides) of the same param", "ranks have different models",
           "TORCH_DISTRIBUTED_DEBUG=DETAIL torchrun ..."),
    script("unused-parameters", r"Expected to have finished reduction in the prior iteration",
           "some parameters got no gradient", "TORCH_DISTRIBUTED_DEBUG=DETAIL torchrun ..."),
    script("parameter-twice", r"mark a variable ready only once|has been marked as ready twice",
           "a parameter got its gradient twice in one step: reentrant checkpointing, or use outside forward",
           "TORCH_DISTRIBUTED_DEBUG=DETAIL torchrun ..."),
    script("model-wrapped", r"'((?:Distributed)?DataParallel)' object has no attribute '(\w{1,60})'",
           "{0} wraps the model, and has only the attributes of torch.nn.Module: model.module.{1}", ALONE),
    script("launcher-missing", r"KeyError: '(?:LOCAL_RANK|RANK|WORLD_SIZE|MASTER_ADDR|MASTER_PORT)'|"
           r"environment variable (?:RANK|WORLD_SIZE|MASTER_ADDR|MASTER_PORT|LOCAL_RANK) expected, but not set",
           "the script was started without a launcher, which sets its rank and the address of the first node",
           "torchrun SCRIPT"),
    script("local-rank", r"unrecognized arguments:.{0,200}--local[-_]rank",
           "the launcher passes --local-rank, which the script does not know", "torchrun SCRIPT"),
    script("group-small", r"gloo/context\.cc:\d+\] rank < size\. (\d+) vs (\d+)",
           "the script formed a process group of {1}, but the launcher started a rank {0}: the script knows of "
           "too few hosts "
           "(Lightning: Trainer(num_nodes=...))", "env | grep -E 'WORLD_SIZE|NNODES'"),
    script("arguments", r": error: (unrecognized arguments:.{0,120}|the following arguments are required:.{0,120}|"
           r"argument .{0,120}|ambiguous option.{0,80})|"
           r"Error: ((?:No such|Missing) option.{0,120}|Some specified arguments are not used.{0,120})",
           "the script was given wrong arguments: {0}", "python SCRIPT --help"),
    # The words of getopt, of Docker, and of a schema such as Compose has for its file.
    sign("arguments", r"(?:^|: )(unrecognized option '[^']{1,80}'|unknown (?:shorthand )?flag: .{1,80})|"
         r"(Additional propert\w+ (?:\w+ )?(?:is|are) not allowed.{0,80}|"
         r"value '\w+' does not match any of the regexes)",
         "a program does not know an option that it was given; it may have another version, or lack a plugin: {0}",
         "which PROGRAM"),
    script("module-missing", r"(?:^|: )(No module named \S+)|"
           r"(?:^|: )(cannot import name (?!.{0,200}circular import).{0,80})|"
           rf"(module '{_LIBRARY}(?:\.\S+)?' has no attribute '\S+')",
           "{0}: this environment lacks the package, or the version that the script wants", "pip list"),
    sign("module-missing", r"No solution found when resolving|requirements are unsatisfiable|from versions: (?!none)|"
         r"ResolutionImpossible|PackagesNotFoundError|ResolvePackageNotFound|UnsatisfiableError: ",
         "no version of a package fits the request: the index does not have it, it is not for this Python, or "
         "another package excludes it", "python --version; pip index versions PACKAGE"),
    # pip prints the same if it cannot reach an index.
    several(r"Could not find a version that satisfies the|No matching distribution found for",
            "pip finds no version of a package: none is for this Python and system, or pip cannot reach an index",
            "python --version; pip index versions PACKAGE", "module-missing", "download"),
    script("exception", r"No backend type associated with device type (\w+)",
           "the process group has no backend for tensors on {0}: they are not on the GPU, the group is for "
           "another device (init_process_group('cpu:gloo,cuda:nccl')), or the package with that backend is "
           "missing", ALONE),
    script("checkpoint-mismatch", r"Error\(s\) in loading state_dict|Unexpected key\(s\) in state_dict|"
           r"Missing key\(s\) in state_dict|loaded state dict (?:contains|has)|"
           r"size mismatch for \S{1,200}: copying a param|Global shape mismatch for loaded|"
           r"Size mismatch between saved|MetadataIndex\(.{1,400} mismatch sizes",
           "the checkpoint does not fit the model", ALONE),
    script("checkpoint-broken", r"PytorchStreamReader failed|unpickling stack underflow|pickle data was truncated|"
           r"Error while deserializing header(?!.{0,9}(?i:header ?too ?large))|MetadataIncompleteBuffer|"
           r"invalid header or archive|"
           r"_pickle\.UnpicklingError(?!: Weights only)|invalid load key|InvalidHeaderDeserialization",
           "a checkpoint cannot be read: truncated, still being written, or not a checkpoint", "ls -l FILE"),
    sign("exception", r"(?:No such file or directory|Device or resource busy|Stale file handle|Text file busy)"
         r":? .{0,300}(?:/\.triton/cache/|/torchinductor_\w{1,60}/|/triton_cache/)",
         "several processes write to one cache of compiled code: the ranks of a host, or hosts that share a "
         "home folder",
         "TRITON_CACHE_DIR=/tmp/triton TORCHINDUCTOR_CACHE_DIR=/tmp/inductor torchrun ...", "disk-faulty"),
    general("exception", r"Device or resource busy: '[^']{0,300}\.nfs",
            "a network file system keeps a removed file while a process has it open", "fuser -v FOLDER/.nfs*"),
    sign("exception", r"(?:UnidentifiedImageError: )?cannot identify image file (u?'[^']{1,300}')|"
         r"UnidentifiedImageError|(?<!\")image file is truncated|broken data stream when reading image|"
         r"Parquet magic bytes not found|Corrupt snappy compressed data",
         "a file of the data set cannot be read, or is truncated ({0})", "ls -l FILE"),
    several(r"(?i)header ?too ?large", "a file's header is larger than the library allows, or it has no weights",
            "ls -l FILE", "checkpoint-broken", "exception"),
    general("exception", r"Weights only load failed",
            "torch.load finds more than weights in a file, and does not trust the file (weights_only)", ALONE,
            "library-mismatch", "checkpoint-broken"),
    sign("exception", r"AF_UNIX path too long",
         "the path of a socket is too long: choose a shorter folder for temporary files", "TMPDIR=/tmp torchrun ..."),
    script("pickle", r"[Cc]an't pickle|cannot pickle|Can't get attribute .{0,80} on <module",
           "something that should be passed to another process cannot be pickled", ALONE),
    script("loss-nan", r"[Ll]oss is (?:nan|inf)\b|(?:nan|NaN|non-finite) (?:loss|gradient)s?\b.{0,40}(?:stop|abort|"
           r"detected)|"
           r"[Ll]oss.{0,20}(?:NaN|Nan|nan|non-finite).{0,40}(?:stopping|terminat|abort)|"
           r"Error: (?i:.{0,80}\b(?:(?:loss|grad\w*)\b.{0,60}\b(?:nan|inf|non-?finite|not finite)|"
           r"(?:nan|inf|non-?finite)\b.{0,30}\b(?:loss|grad\w*)))\b|"
           r"Current loss scale already at minimum|Minimum loss scale reached", "the loss is no longer a number",
           ALONE),
    general("collective-timeout", r"\bEI000[26]\b.{0,200}times out",
            "HCCL waited for a rank that did not come or is stuck", "grep -rlE 'ERROR|EI[0-9]' ~/ascend/log",
            "node-missing", "data-ports-dropped"),
    general("worker-failed", r"(?:Pin memory thread|DataLoader worker)(?: \(pid(?:\(s\))? [\d, ]+\))? exited "
           r"unexpectedly|"
           r"One of the subprocesses has abruptly died",
           "a data loader worker ended without an error: memory ran out, or it crashed",
           "dmesg -T | tail -20", "killed", "crashed", "shm-small", "open-files"),
    general("worker-failed", r"DataLoader worker \(pid \d+\) is killed by signal: ",
            "a signal ended a data loader worker", "dmesg -T | tail -20", "killed", "stopped"),
)  # fmt: skip

VICTIM = (
    victim(r"Watchdog caught collective operation timeout.{0,200}?OpType=(\w+)|Watchdog caught collective\b|"
           r"watchdog (?:\w+ )?tim(?:ed|e) ?out|Timeout at NCCL work|"
           r"(?i:all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|barrier)(?!.{0,300}connect).{0,120}timed[- ]out",
           "a rank waited in a collective ({0}) for another rank that did not come or is stuck", "collective-timeout",
           "TORCH_NCCL_TRACE_BUFFER_SIZE=2000 TORCH_NCCL_DUMP_ON_TIMEOUT=1 torchrun ..."),
    victim(r"watchdog got stuck for|Heartbeat monitor timed out|due to a collective timeout from|"
           r"Some rank\w* (?:did not|didn't) (?:join|reach)|failed to pass monitoredBarrier|"
           r"Ranks? [\d, ]{1,80} failed to pass",
           "a rank did not come to a barrier or a collective, or is stuck in CUDA", "collective-timeout",
           "TORCH_NCCL_TRACE_BUFFER_SIZE=2000 TORCH_NCCL_DUMP_ON_TIMEOUT=1 torchrun ..."),
    victim(r"Connection (?:closed|reset) by (?:remote )?peer|Broken pipe|got 0 bytes|Timed out waiting \d+ms for "
           r"(?:send|recv)|"
           r"closing signal SIGTERM|exitcode\s*: -15|remote process exited|ncclRemoteError|RendezvousClosedError|"
           r"clients joined|wait timeout after \d+ms|NCCL communicator was aborted|Socket Timeout|Socket recv failed|"
           r"Connection reset by peer|is setting up NCCL communicator and retrieving|Failed to send MESSAGE_TASK_EXIT|"
           r"the Heartbeat|heartbeat monitor|Horovod has been shut down|"
           r"Some NCCL operations have failed|taking the entire process down|"
           r"Exception \(either an error or timeout\) detected by watchdog|"
           r"reached monitoredBarrier, but received errors while waiting|"
           # Slurm prints this for every step that it ends, also if it does so because one of the ranks has failed.
           r"(?:slurmstepd|srun): error: \*\*\* STEP \S+ ON \S+ CANCELLED AT [\w:-]+ \*\*\*"),
)  # fmt: skip

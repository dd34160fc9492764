"""Causes: faults of a script, which only a run's output shows. Data."""

from ..end_causes import Cause
from ..row import Row, Section

SECTIONS = (
    Section(
        "Only in a run's output",
        (
            Row(
                "script-error",
                "The script raised an error itself.",
                by_hand="find the first traceback that is not a `ChildFailedError`",
                fix="Correct the script.",
                ends=Cause.EXCEPTION,
            ),
            Row(
                "exception",
                "A library raised an error that Muster does not know, and the run ended.",
                by_hand="read the traceback above the quoted line, from its last file upwards",
                fix="do what the message says; often the library needs another version or other arguments.",
                ends=Cause.EXCEPTION,
            ),
            Row(
                "node-lost",
                (
                    "`ORTE has lost communication with a remote daemon`, `NodeNotReady`: a host of the run, or the "
                    "launcher's process on it, is lost."
                ),
                by_hand="`ssh HOST uptime`, and `dmesg -T | tail -50` there",
                fix="start the host again, or run without it.",
                ends=Cause.NODE_LOST,
            ),
            Row(
                "collectives-differ",
                "`op.preamble.length <= op.nbytes`: two ranks called a collective with different sizes.",
                by_hand="`TORCH_DISTRIBUTED_DEBUG=DETAIL`",
                fix="Make the same calls with the same shapes on all ranks.",
                ends=Cause.MISMATCH,
            ),
            Row(
                "models-differ",
                (
                    "`DDP expects same model across all ranks`, `appears not to match sizes of the same param`: "
                    "the ranks have different models."
                ),
                by_hand="print `sum(p.numel() for p in model.parameters())` on each rank",
                fix="Build the same model from the same configuration on all ranks.",
                ends=Cause.EXCEPTION,
            ),
            Row(
                "parameter-twice",
                "`Expected to mark a variable ready only once`: a parameter got its gradient twice in one step.",
                by_hand="`TORCH_DISTRIBUTED_DEBUG=DETAIL` names the parameter",
                fix=(
                    "Set `use_reentrant=False` for activation checkpoints, or `DistributedDataParallel(..., "
                    "static_graph=True)`. Use parameters only inside forward."
                ),
                ends=Cause.EXCEPTION,
            ),
            Row(
                "model-wrapped",
                (
                    "`'DistributedDataParallel' object has no attribute 'generate'`: the script uses the "
                    "wrapped model as if it were not wrapped."
                ),
                fix="Use `model.module.generate`, on all ranks or where no gradient is needed.",
                ends=Cause.EXCEPTION,
            ),
            Row(
                "launcher-missing",
                (
                    "`environment variable RANK expected, but not set`, `KeyError: 'LOCAL_RANK'`: the script "
                    "was started without a launcher."
                ),
                fix="`torchrun SCRIPT`, or `muster deploy --script SCRIPT`",
                ends=Cause.EXCEPTION,
            ),
            Row(
                "local-rank",
                (
                    "`unrecognized arguments: --local-rank`: `torch.distributed.launch` passes an argument that "
                    "the script does not take."
                ),
                fix='`torchrun SCRIPT`, and `os.environ["LOCAL_RANK"]` in the script',
                ends=Cause.EXCEPTION,
            ),
            Row(
                "group-small",
                (
                    "gloo's `enforce fail at .../gloo/context.cc:23] rank < size. 2 vs 1`: the script gave its "
                    "process group fewer ranks than the launcher started, as Lightning does without `num_nodes`."
                ),
                by_hand="print `WORLD_SIZE` and the size that the script passes to `init_process_group`",
                fix='`Trainer(num_nodes=3, devices="auto")`, or let the script set no world size',
                ends=Cause.EXCEPTION,
            ),
            Row(
                "arguments",
                (
                    "`error: unrecognized arguments` or a similar message: the script got arguments that it does "
                    "not take."
                ),
                by_hand="`python SCRIPT --help`",
                fix="Correct the arguments, or use another version of the script.",
                ends=Cause.EXCEPTION,
            ),
            Row(
                "module-missing",
                (
                    "`ModuleNotFoundError`, `cannot import name`: the run's environment lacks a package or the "
                    "right version of it; often it is not the environment that you meant."
                ),
                by_hand="`which python`; `pip list`",
                fix="Install the package in the image, for example with `--dockerfile FILE`.",
                ends=Cause.EXCEPTION,
            ),
            Row(
                "checkpoint-mismatch",
                "`Error(s) in loading state_dict`: the checkpoint belongs to another model.",
                by_hand="read the names and shapes in the message; DDP puts `module.` before each name",
                fix="Load it into the model that wrote it, or with `strict=False` if some parts are new on purpose.",
                ends=Cause.EXCEPTION,
            ),
            Row(
                "checkpoint-broken",
                (
                    "`PytorchStreamReader failed`, `invalid load key`, `HeaderTooLarge`: the file is incomplete, "
                    "some program is still writing it, or it is a git-lfs pointer."
                ),
                by_hand="`ls -l FILE`; `head -c 200 FILE`",
                fix="Use the previous checkpoint, or fetch the file again.",
                ends=Cause.EXCEPTION,
            ),
            Row(
                "pickle",
                (
                    "`Can't pickle local object`: a data loader worker or a spawned process gets an object that "
                    "pickle cannot send."
                ),
                fix="Define functions at the top level of a module, and use no lambdas.",
                ends=Cause.EXCEPTION,
            ),
            Row(
                "loss-nan",
                "The loss is `nan` or infinite.",
                by_hand="look at the previous step, and at the data of that rank",
                fix="Use a lower learning rate, `bf16` instead of `fp16`, or gradient clipping.",
                ends=Cause.EXCEPTION,
            ),
            Row(
                "worker-failed",
                (
                    "`DataLoader worker (pid(s) ...) exited unexpectedly`: it crashed, or the kernel killed it "
                    "because memory ran out."
                ),
                by_hand="`dmesg -T | tail`; `num_workers=0` shows an exception",
                fix="Use fewer workers or more memory.",
                ends=Cause.EXCEPTION,
            ),
            Row(
                "collective-timeout",
                (
                    "`Watchdog caught collective operation timeout`: a rank waited for others that never came. The "
                    "others crashed, hang, or run different code."
                ),
                by_hand=(
                    "see which rank did not report the timeout, and what it printed last; "
                    "`TORCH_NCCL_TRACE_BUFFER_SIZE=2000`"
                ),
                fix=(
                    "Look for the cause in the rank that did not come. If it was only slow (a long evaluation on "
                    "rank 0), set a longer `timeout=`."
                ),
                ends=Cause.LOCKED_UP,
            ),
            Row(
                "locked-up",
                (
                    "`is stuck in train.py:54`: a rank of a Muster run does nothing any more, and the others "
                    "wait for it."
                ),
                by_hand="`muster why` while the run continues; the line that the message names",
                fix=(
                    "Correct what the rank waits for there: a lock, a child process, a service without a "
                    "timeout. With `--restarts N`, Muster ends such a rank and starts all ranks again."
                ),
                ends=Cause.LOCKED_UP,
            ),
            Row(
                "left-early",
                (
                    "`left early, with code 0`, `ended with code 1 without an exception`: a rank of a Muster "
                    "run ended while the others waited for it, and did not say why."
                ),
                by_hand="what that rank printed last: `muster logs --rank N`",
                fix="Give all ranks the same number of steps; look for `sys.exit()` or `return` on one rank alone.",
                ends=Cause.LEFT_EARLY,
            ),
            Row(
                "paused",
                (
                    "`is stopped by a signal (SIGSTOP)`, `is paused`, `is stopped by a debugger`: somebody has "
                    "stopped or paused a rank of a Muster run, or its container."
                ),
                by_hand="`ps -o pid,stat,args` there (T: stopped); `docker ps`",
                fix="`kill -CONT PID`, or `docker unpause`.",
                ends=Cause.STOPPED,
            ),
            Row(
                "trained-alone",
                (
                    "The ranks of a Muster run formed no process group, or the ranks of each node formed a "
                    "separate one, so each trained its own model; or they wait at an address that no other node uses."
                ),
                by_hand="print `torch.distributed.get_world_size()`",
                fix=(
                    "do what the run's hint says for Lightning, Accelerate or plain torch, or for the line of a "
                    "shell script that it names (`--standalone`, `--nnodes=1`, a `MASTER_ADDR`); `muster docs "
                    "several-gpus` has the lines that a script for one GPU lacks; `--separate` if each rank "
                    "should train alone."
                ),
                ends=Cause.ALONE,
            ),
            Row(
                "node-missing",
                (
                    "`Timed out after ... seconds waiting for clients. 1/2 clients joined`: some processes "
                    "never started, or cannot reach the first host."
                ),
                by_hand="`muster preflight --hosts ...`; read the output of the nodes that did not join",
                fix="Start all nodes with the same address and world size.",
                ends=Cause.NODE_LOST,
            ),
        ),
        intro="`muster explain` names these. Preflight cannot see them before the run.",
    ),
)

"""Causes: what ends a run from outside, or is missing on its machine; only the run's output shows it. Data."""

from ..end_causes import Cause
from ..row import Row, Section

SECTIONS = (
    Section(
        "",
        (
            Row(
                "stopped",
                "`got signal: 15`, `KeyboardInterrupt`: a person or a scheduler ended the run.",
                by_hand="`last`; the scheduler's history of the job",
                ends=Cause.ENDED,
            ),
            Row(
                "cancelled",
                (
                    "Slurm's `CANCELLED AT`, without a reason: somebody ran `scancel`, or another node of the "
                    "job failed."
                ),
                by_hand="`sacct -X -j JOB --format JobID,State,Reason,ExitCode`",
                ends=Cause.ENDED,
            ),
            Row(
                "preempted",
                "Slurm's `DUE TO PREEMPTION`, `DUE TO JOB REQUEUE`, `DUE TO NODE FAILURE`.",
                fix="Write checkpoints, and submit with `--requeue`.",
                ends=Cause.ENDED,
            ),
            Row(
                "time-limit",
                "Slurm's `DUE TO TIME LIMIT`.",
                fix="Ask for a longer `--time`, or resume from a checkpoint.",
                ends=Cause.ENDED,
            ),
            Row(
                "scheduler",
                (
                    "`sbatch: error`, `Requested node configuration is not available`: the scheduler did not "
                    "accept the job."
                ),
                by_hand="`sinfo`; `scontrol show job JOB`",
            ),
            Row(
                "host-memory",
                (
                    "`oom-kill`, `Out of memory: Killed process`, `MemoryError`: the host or the container has "
                    "run out of memory."
                ),
                by_hand="`free -h`; `dmesg -T | grep -i oom`",
                fix="Use fewer data loader workers, a smaller batch, or a higher `--mem`.",
                ends=Cause.HOST_MEMORY,
            ),
            Row(
                "crashed",
                (
                    "Exit code -11 or -6, `Segmentation fault`: compiled code crashed, often because libraries "
                    "do not match."
                ),
                by_hand="`python -X faulthandler SCRIPT`",
                fix="Replace the library that the last frame names.",
                ends=Cause.KILLED,
            ),
            Row(
                "device-assert",
                (
                    "`device-side assert triggered`: an index is out of range on the GPU, most often a label or a "
                    "token id."
                ),
                by_hand="`CUDA_LAUNCH_BLOCKING=1`, or one step on the CPU",
                fix="Keep labels below the number of classes, and token ids below the size of the vocabulary.",
                ends=Cause.EXCEPTION,
            ),
            Row(
                "illegal-memory",
                "`an illegal memory access was encountered`: a kernel read or wrote outside its memory.",
                by_hand="`CUDA_LAUNCH_BLOCKING=1`; `compute-sanitizer python SCRIPT`",
                fix=(
                    "Install a newer version of the extension that has this kernel. If no extension is to "
                    "blame, test the GPU."
                ),
                ends=Cause.EXCEPTION,
            ),
            Row(
                "cuda-fork",
                "`Cannot re-initialize CUDA in forked subprocess`.",
                fix='Set `multiprocessing_context="spawn"`, or do not use CUDA before the fork.',
                ends=Cause.EXCEPTION,
            ),
            Row(
                "gpu-count",
                "`invalid device ordinal`: a rank wants a GPU that the host does not have.",
                by_hand="`nvidia-smi -L`; `echo $CUDA_VISIBLE_DEVICES`",
                fix=(
                    "Set `--nproc-per-node` to at most the number of GPUs. Choose the device by `LOCAL_RANK`, not "
                    "by `RANK`."
                ),
            ),
            Row(
                "gpu-peer",
                "`peer access is not supported`: the GPUs of one host cannot reach each other's memory.",
                by_hand="`nvidia-smi topo -p2p r`",
                fix="Set `NCCL_P2P_DISABLE=1`, or turn off the IOMMU's ACS.",
            ),
            Row(
                "nccl-cuda",
                "`Cuda failure '...'` from NCCL: one of its CUDA calls failed.",
                by_hand="`NCCL_DEBUG=INFO`; read the words in quotes",
                fix="Do what those words say.",
            ),
            Row(
                "library-missing",
                (
                    "`ImportError: libxcb.so.1: cannot open shared object file`: a Python package needs a "
                    "system library that the image, or this machine, does not have. The libraries of OpenCV "
                    "(`libGL.so.1`, `libgthread-2.0.so.0`, `libxcb.so.1`) are the most frequent ones."
                ),
                by_hand="`ldd FILE.so | grep 'not found'`; `apt-file search libxcb.so.1` names the package",
                fix=(
                    "Install its package with a Dockerfile ([my own image](my-own-image.md#system-libraries)), and "
                    "name it with `--dockerfile`. On this machine, without a container: `sudo apt-get install`. For "
                    "`cv2`, the package `opencv-python-headless` instead of `opencv-python` needs no such library."
                ),
            ),
            Row(
                "library-mismatch",
                (
                    "`undefined symbol`, `GLIBC_... not found`: a compiled library was built for another torch, "
                    "CUDA or system."
                ),
                by_hand="`pip list | grep -iE 'torch|cuda|flash|numpy'`",
                fix=("Build it again against this torch (`--no-build-isolation`), or install versions that match."),
            ),
            Row(
                "compiler-missing",
                (
                    "`Failed to find C compiler`, `CUDA_HOME does not exist`: a library builds kernels at first "
                    "use, and the image has no compiler."
                ),
                by_hand="`which gcc nvcc ninja`",
                fix=(
                    "Use a `devel` image, or install the packages (`RUN apt-get update && apt-get install -y g++` in a "
                    "Dockerfile). `--env TORCHDYNAMO_DISABLE=1` runs the script without `torch.compile`."
                ),
            ),
            Row(
                "disk-quota",
                "`Disk quota exceeded`: the user has reached the disk quota, although `df` shows free space.",
                by_hand="`quota -s`",
                fix="Remove files, or write to another disk.",
                ends=Cause.DISK_FULL,
            ),
            Row(
                "disk-faulty",
                (
                    "`Input/output error`, `Stale file handle`, `Read-only file system`: a disk or a network file "
                    "system failed."
                ),
                by_hand="`dmesg -T | tail`; `mount`",
            ),
            Row(
                "disk-silent",
                (
                    "`waits for a disk that does not answer`: a read or a write gets no answer from a disk, or "
                    "from the server of a network file system. The process is in state `D`, no signal ends it, "
                    "and its log does not say so. Muster names the file and the mount, and ends the run after "
                    "`--wait-lost`; the container ends once the disk answers."
                ),
                by_hand=(
                    "`ps -eo pid,stat,wchan:30,args | grep ' D'`; `findmnt -T FILE` (not `ls`: it would wait as well)"
                ),
                fix="Bring the server or the disk back, or unmount it by force: `sudo umount -f -l PLACE`.",
                ends=Cause.DISK_SILENT,
            ),
            Row(
                "command-missing",
                (
                    "`command not found`, `executable file not found`, mpirun's `was unable to find the specified "
                    "executable file`, tini's `exec X failed`: a program is missing in the container or on the "
                    "host, or is not in the `PATH`. Preflight looks for the commands that Muster's scripts call "
                    "on a host: "
                    "`base64`, `find` and the like."
                ),
                by_hand="`which PROGRAM`; `echo $PATH` (a shell over SSH reads other start-up files than your "
                "interactive shell)",
                fix="Install the program, or give its full path.",
                command="on {host}: sudo apt-get install --reinstall coreutils findutils grep sed gawk",
                symptom="a run that lacks its variables or files, or does not start there",
                group="hosts",
            ),
            Row(
                "file-permission",
                "`PermissionError`: the user of the run may not read or write a file.",
                by_hand="`ls -ld FOLDER`; `id`",
                fix="Change the owner, or use a folder that belongs to that user.",
            ),
            Row(
                "download",
                "`We couldn't connect to 'https://...'`: the host cannot reach the internet, or the service is down.",
                by_hand="`curl -sSI https://...` there",
                fix="Download the files once, mount them, and set `HF_HUB_OFFLINE=1`.",
            ),
            Row(
                "access-denied",
                "`401 Client Error`, `gated repo`: the service asks for a login, or wants you to accept its license.",
                fix="Give the run a token as a secret.",
            ),
            Row(
                "unused-parameters",
                "`Expected to have finished reduction in the prior iteration before starting a new one`.",
                fix=(
                    "Set `DistributedDataParallel(..., find_unused_parameters=True)`, or use all parameters in the "
                    "loss."
                ),
                ends=Cause.EXCEPTION,
            ),
            Row(
                "killed",
                "`exitcode: -9 (SIGKILL)` without any message before it: most often, memory ran out.",
                by_hand="`dmesg | grep -i oom` there",
                fix="Use a smaller batch, fewer data loader workers, or more memory.",
                ends=Cause.KILLED,
            ),
            Row(
                "ssh-hangup",
                "`got signal: 1`: the SSH session that held the run ended.",
                fix="Use `muster deploy --detach`: Docker then holds the run, not an SSH session.",
                ends=Cause.ENDED,
            ),
            Row(
                "rdma",
                "`ibv_modify_qp failed`, `wc error 12`: the RDMA connection has wrong settings, often its GID index.",
                by_hand="`NCCL_DEBUG=INFO`",
                fix="Set `NCCL_IB_GID_INDEX`; or set `NCCL_IB_DISABLE=1` to see whether sockets work.",
                ends=Cause.CUT_OFF,
            ),
            Row(
                "container-missing",
                "`No such image`.",
                fix="`muster push --hosts HOST`",
            ),
        ),
    ),
    Section(
        "A project's packages",
        intro=(
            "`muster deploy`, `muster push` and `muster up` print uv's own words before the error. "
            "[offline and proxies](offline-and-proxies.md#when-the-installation-fails) has the next step for "
            "each: an excluded torch, a missing compiler, an unreachable index, a full disk, a private index."
        ),
    ),
)

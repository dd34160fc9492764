"""Causes: memory, disks, folders and limits. Data."""

from ..end_causes import Cause
from ..row import LAB, Row, Section

SECTIONS = (
    Section(
        "Resources",
        (
            Row(
                "shm-small",
                (
                    "`unable to allocate shared memory(shm)`, `Bus error` in data loaders, NCCL's `failed to "
                    "extend /dev/shm`."
                ),
                by_hand="`df -h /dev/shm` in the container",
                fix="`docker run --shm-size 16g`, or `shm_size` in cluster.toml.",
                source="NVIDIA/nccl #290; docs.docker.com, run",
                what="no room in shared memory",
                symptom=(
                    "`unable to allocate shared memory(shm)`, `Bus error` in data loaders, NCCL's `failed to "
                    "extend /dev/shm`"
                ),
                others=(
                    "a full disk behind a mapped file",
                    "a memory error of the machine",
                ),
            ),
            Row(
                "open-files",
                "`Too many open files` with many ranks or loader workers.",
                by_hand="`ulimit -n` in the container",
                fix="`docker run --ulimit nofile=1048576`",
                source="NVIDIA/nccl #550",
                what="the limit of open files is too low",
                command="docker run --ulimit nofile=1048576",
                symptom="`Too many open files` with many ranks or workers",
                others=(
                    "a limit of the whole machine (fs.file-max)",
                    "a limit of inotify",
                ),
                explains="all-ports-rejected data-ports-rejected rendezvous-rejected",
            ),
            Row(
                "process-limits",
                (
                    "`File size limit exceeded`, exit code -25 (SIGXFSZ) or -24 (SIGXCPU), or the other hosts only "
                    "fall silent. `Memory mapping file failed: Cannot allocate memory` where memory is free: the "
                    "process may not map more areas. `can't start new thread`: a limit of processes; or one of the "
                    "stack, which is the size of each thread's stack: 64 GB (bytes taken for kilobytes, in "
                    "`default-ulimits` or limits.conf) are more than the memory, and no thread starts."
                ),
                by_hand=(
                    "`ulimit -a` in the container; `grep -A4 default-ulimits /etc/docker/daemon.json`; `sysctl "
                    "vm.max_map_count`, `wc -l /proc/PID/maps`"
                ),
                fix=(
                    "`docker run --ulimit fsize=-1 --ulimit cpu=-1`; outside containers, "
                    "/etc/security/limits.conf. For mappings, on the host: `sysctl -w vm.max_map_count=1048576`."
                ),
                source="setrlimit(2), mmap(2); measured in the laboratory (docs/evidence/preflight-score.md)",
                what="the limit of processes is too low",
                command="on {host}: ulimit -u; ulimit -s; systemctl show user-$(id -u).slice docker -p TasksMax",
                symptom="`cannot set up timer`: no start",
                others=(
                    "a seccomp profile that forbids new threads",
                    "too little memory for a stack",
                    "an odd limit of the stack",
                ),
            ),
            Row(
                "cpu-low",
                (
                    "Every step is slow on all hosts: the ranks of one host hardly get a core. A CPU quota of a "
                    "control group above all containers holds them back (it shows in no setting of the container), "
                    "or other programs keep its cores busy."
                ),
                by_hand=(
                    "`systemd-cgtop`; `cat /sys/fs/cgroup/cpu/*/cpu.cfs_quota_us` or `/sys/fs/cgroup/*/cpu.max`; `top`"
                ),
                fix="Raise or remove the quota; end the other programs.",
                source="measured on the rack (docs/evidence/preflight-score.md)",
                symptom="all ranks wait for those of this host in each step",
            ),
            Row(
                "memlock",
                "`ibv_reg_mr failed ... Cannot allocate memory`.",
                by_hand="`ulimit -l` in the container",
                fix="`docker run --ulimit memlock=-1`",
                source="NVIDIA/nccl, troubleshooting",
                what="the engine cannot raise memlock",
                command="on {host}: systemctl edit docker, LimitMEMLOCK=infinity",
                symptom="`ibv_reg_mr failed ... Cannot allocate memory`",
            ),
            Row(
                "memory-low",
                "Exit code -9 without any message.",
                by_hand="`free -h`; `dmesg | grep -i oom`",
                fix="Use fewer processes or loader workers, or smaller batches.",
                what="there is not enough memory",
                command="on {host}: free -h; ps aux --sort -rss | head",
                symptom="exit code -9 (SIGKILL) without a message",
                others=(
                    "a limit of address space (ulimit -v)",
                    "a limit of a control group",
                    "a process that kills others",
                ),
            ),
            Row(
                "home-readonly",
                (
                    "`mkdir: cannot create directory`: Muster creates a run's folder in `~/.muster/runs`. The user "
                    "cannot write there, or a file or a link to nowhere stands in its place."
                ),
                by_hand="`touch ~/x` there, `mount | grep -w ro`, `quota`",
                fix=(
                    "Mount it for writing. If the kernel made the disk read-only, the disk has errors (`dmesg | tail`)."
                ),
                source="mount(8)",
                what="a folder that the run may not write to",
                symptom="`mkdir: cannot create directory`: the run does not start there",
                others=(
                    "a seccomp profile",
                    "AppArmor or SELinux",
                    "a flag or a quota of the file system",
                ),
            ),
            Row(
                "mount-differs",
                (
                    "A path that all hosts mount is a file on one and a folder on another, or empty on some of "
                    "them: the ranks there read something else, or nothing. That a folder is empty is a warning: "
                    "it may be one that the run fills."
                ),
                by_hand="`ls -ld PATH; ls PATH | head` on each host",
                fix=(
                    "Copy to that host what the others have, or mount the path where it lies there (`mounts` under "
                    "a host in `cluster.toml`)."
                ),
                symptom="`No such file or directory` or `Not a directory` on that host alone, or a rank without data",
            ),
            Row(
                "mount-closed",
                (
                    "`Permission denied` in a mounted folder: the uid of the run's processes may not read it, or "
                    "not write to it. A deploy prints that uid. If you log in as root, Muster chooses a uid that "
                    "is unused on all hosts (`user` in cluster.toml sets it)."
                ),
                by_hand="`ls -ldn /data` there, and on the NFS server",
                fix="Run `sudo chown -R UID /data`. If the run only reads it, mount it with `:ro`.",
                command="on {host}: look at the mounted folder; if the run only reads it, mount it with :ro",
                symptom="`Permission denied`",
            ),
            Row(
                "folder-readonly",
                (
                    "`Read-only file system`; or no folder for temporary files can be written to: torchrun and "
                    "data loaders need one. Or `/var/tmp`, where each run says which GPUs it has, is not root's, "
                    "or not sticky: others could change what it says."
                ),
                by_hand="`touch /tmp/x`; `mount | grep /tmp`; `ls -ld /var/tmp` (`drwxrwxrwt ... root`)",
                fix="Mount `/tmp` writable, or set `TMPDIR`; `sudo chown root /var/tmp; sudo chmod 1777 /var/tmp`.",
                source=LAB,
                command=(
                    "on {host}: mount | grep -w -e /tmp -e ro; df -h /tmp; or export TMPDIR=<a folder that can be "
                    "written to>"
                ),
                symptom="`/var/tmp is not root's, or not sticky`: the run does not start there",
                others=(
                    "a seccomp profile",
                    "AppArmor or SELinux",
                    "a flag or a quota of the file system",
                ),
            ),
            Row(
                "disk-full",
                "`No space left on device`, at the start or at the first checkpoint.",
                by_hand="`df -h`",
                fix="Look at `docker system df`, and where no Docker is at `muster clean`; remove what is yours.",
                what="the disk is full",
                command="on {host}: df -h /var/lib/docker; docker system df   (without Docker: muster clean{at})",
                here="df -h /var/lib/docker; docker system df",
                symptom="`No space left on device`, at the start or at the first checkpoint",
                others=(
                    "a quota of the disk",
                    "no inodes left",
                    "a limit of keys, of watches or of shared memory",
                ),
                ends=Cause.DISK_FULL,
            ),
            Row(
                "inodes-full",
                "The same message, although `df -h` shows free space.",
                by_hand="`df -i`",
                fix="Remove many small files.",
                symptom="`No space left on device`",
            ),
            Row(
                "conntrack-full",
                "With many ranks, connections time out at random; `nf_conntrack: table full, dropping packet`.",
                by_hand="`sysctl net.netfilter.nf_conntrack_count net.netfilter.nf_conntrack_max`",
                fix="Raise nf_conntrack_max.",
                source="kernel, nf_conntrack-sysctl",
                symptom="connections time out at random",
            ),
        ),
        group="resources",
    ),
)

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
                what="no free space in shared memory",
                symptom=(
                    "`unable to allocate shared memory(shm)`, `Bus error` in data loaders, NCCL's `failed to "
                    "extend /dev/shm`"
                ),
                others=(
                    "a full disk that holds a mapped file",
                    "a memory fault in the machine",
                ),
            ),
            Row(
                "open-files",
                "`Too many open files` with many ranks or loader workers.",
                by_hand="`ulimit -n` in the container",
                fix="`docker run --ulimit nofile=1048576`",
                source="NVIDIA/nccl #550",
                what="the limit on open files is too low",
                command="docker run --ulimit nofile=1048576",
                symptom="`Too many open files` with many ranks or workers",
                others=(
                    "a limit for the whole machine (fs.file-max)",
                    "a limit of inotify",
                ),
                explains="all-ports-rejected data-ports-rejected rendezvous-rejected",
            ),
            Row(
                "process-limits",
                (
                    "`File size limit exceeded`, exit code -25 (SIGXFSZ) or -24 (SIGXCPU), or the host only "
                    "falls silent. `Memory mapping file failed: Cannot allocate memory` although memory is "
                    "free: the process may not map more areas. `can't start new thread`: a limit on processes; "
                    "or the stack limit, which sets the size of each thread's stack: with 64 GB (kilobytes "
                    "confused with bytes in `default-ulimits` or limits.conf), the stack is larger than the "
                    "memory, and no thread starts."
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
                what="the limit on processes is too low",
                command="on {host}: ulimit -u; ulimit -s; systemctl show user-$(id -u).slice docker -p TasksMax",
                symptom="`cannot set up timer`: the run does not start",
                others=(
                    "a seccomp profile that forbids new threads",
                    "too little memory for a stack",
                    "an unusual stack limit",
                ),
            ),
            Row(
                "cpu-low",
                (
                    "Every step is slow on all hosts, because the ranks of one host hardly get any CPU. A CPU "
                    "quota on a control group above all containers limits them (no setting of the container "
                    "shows it), or other programs keep the cores busy."
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
                "Exit code -9 without any other message.",
                by_hand="`free -h`; `dmesg | grep -i oom`",
                fix="Use fewer processes or loader workers, or smaller batches.",
                what="there is not enough memory",
                command="on {host}: free -h; ps aux --sort -rss | head",
                symptom="exit code -9 (SIGKILL) without a message",
                others=(
                    "a limit on address space (ulimit -v)",
                    "a control group's limit",
                    "a process that kills other processes",
                ),
            ),
            Row(
                "home-readonly",
                (
                    "`mkdir: cannot create directory`: Muster creates a run's folder in `~/.muster/runs`. The "
                    "user cannot write there, or there is a file or a dangling link in its place."
                ),
                by_hand="`touch ~/x` there, `mount | grep -w ro`, `quota`",
                fix=("Mount the disk for writing. If the kernel made it read-only, it has errors (`dmesg | tail`)."),
                source="mount(8)",
                what="a folder that the run may not write to",
                symptom="`mkdir: cannot create directory`: the run does not start there",
                others=(
                    "a seccomp profile",
                    "AppArmor or SELinux",
                    "a flag or a quota on the file system",
                ),
            ),
            Row(
                "mount-differs",
                (
                    "A path that all hosts mount is a file on one host and a folder on another, or is empty on "
                    "some hosts: the ranks there read something else, or nothing. An empty folder is only a "
                    "warning, because the run may fill it."
                ),
                by_hand="`ls -ld PATH; ls PATH | head` on each host",
                fix=(
                    "Copy to that host what the others have, or mount the path that holds it there (`mounts` "
                    "under a host in `cluster.toml`)."
                ),
                symptom="`No such file or directory` or `Not a directory` on that host alone, or a rank without data",
            ),
            Row(
                "mount-closed",
                (
                    "`Permission denied` in a mounted folder: the uid of the run's processes may not read or "
                    "write it. A deploy prints that uid. If you log in as root, Muster chooses a uid that "
                    "is unused on all hosts (`user` in cluster.toml sets it)."
                ),
                by_hand="`ls -ldn /data` there, and on the NFS server",
                fix="Run `sudo chown -R UID /data`. If the run only reads the folder, mount it with `:ro`.",
                command="on {host}: check the mounted folder; if the run only reads it, mount it with :ro",
                symptom="`Permission denied`",
            ),
            Row(
                "folder-readonly",
                (
                    "`Read-only file system`; or no folder for temporary files is writable, and torchrun and "
                    "data loaders need one. Or `/var/tmp`, where each run records which GPUs it uses, does not "
                    "belong to root or is not sticky: other users could change these records."
                ),
                by_hand="`touch /tmp/x`; `mount | grep /tmp`; `ls -ld /var/tmp` (`drwxrwxrwt ... root`)",
                fix="Mount `/tmp` writable, or set `TMPDIR`; `sudo chown root /var/tmp; sudo chmod 1777 /var/tmp`.",
                source=LAB,
                command=("on {host}: mount | grep -w -e /tmp -e ro; df -h /tmp; or export TMPDIR=<a writable folder>"),
                symptom="`/var/tmp is not root's, or not sticky`: the run does not start there",
                others=(
                    "a seccomp profile",
                    "AppArmor or SELinux",
                    "a flag or a quota on the file system",
                ),
            ),
            Row(
                "disk-full",
                "`No space left on device`, at the start or at the first checkpoint.",
                by_hand="`df -h`",
                fix="Look at `docker system df`, or without Docker at `muster clean`; remove what is yours.",
                what="the disk is full",
                command="on {host}: df -h /var/lib/docker; docker system df   (without Docker: muster clean{at})",
                here="df -h /var/lib/docker; docker system df",
                symptom="`No space left on device`, at the start or at the first checkpoint",
                others=(
                    "a disk quota",
                    "no inodes left",
                    "a limit on keys, on watches or on shared memory",
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

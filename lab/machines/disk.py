"""Rows about file systems, quotas and programs that look into files. Faults first, then oddities."""

from lab.machines.row import HOME, MADE, RUNS, agent, judge_files, loop, row, shell

row(
    "/var/tmp is full",
    "mount -t tmpfs -o size=16k,mode=1777 none /var/tmp; cat /dev/zero >/var/tmp/fill || true",
    "umount -l /var/tmp",
    "disk-full",
    says=r"/var/tmp|no space left",
)
row(
    "/run, where containerd keeps its state, is full",
    "mount -o remount,size=6m /run; cat /dev/zero >/run/fill || true",
    "rm /run/fill; mount -o remount,size=50% /run",
    "disk-full",
    says="no space left|/run (is|has) ",
)
row(
    "users' files may have a kilobyte, say PAM's limits",
    "echo 'muster hard fsize 1' >/etc/security/limits.d/90-a.conf",
    "rm /etc/security/limits.d/90-a.conf",
    "disk-quota",
    says="file size|too large|XFSZ|153|fsize",
)
loop(
    "a keeper of quotas deletes each file of the user's that has more than a megabyte",
    0.5,
    f"find {HOME}/.muster -type f -size +1000k -delete",
    "disk-quota",
    "folder-readonly",
    "home-readonly",
    says=r"no such file|delete[sd]?\b|vanish|disappear|\bgone\b|removed|quota",
)
agent(
    "a scanner of viruses takes each Python file outside of /usr for one, and lets nobody open it",
    judge_files(0x10000, '2 if path.endswith(".py") and not path.startswith(("/usr/", "/opt/")) else 1'),
    "file-permission",
    "folder-readonly",
    "home-readonly",
    "proof-failed",
    "probe-died",
    "mount-closed",
    says=r"not permitted|scanner|virus|\.py\b|may not (be )?(read|open)|fanotify",
)
row(
    "users may not write to /var/tmp",
    "mount -t tmpfs -o mode=755 none /var/tmp",
    "umount -l /var/tmp",
    "folder-readonly",
    says="/var/tmp|permission denied",
)
row(
    "/tmp is a link to a scratch disk that is not there",
    "mv /tmp /tmp.kept; ln -s /scratch/tmp /tmp",
    "rm /tmp; mv /tmp.kept /tmp",
    "folder-readonly",
    says=r"/tmp\b|temporary (folder|director)",
)
shell("the shell's umask is 0777", "umask 0777", "home-readonly", "folder-readonly", says="permission denied|umask")
row(
    "the disk had errors: the whole root is read-only, docker's own disk is not",
    f"{MADE}; mount -o remount,bind,ro /",
    "mount -o remount,bind,rw /",
    "home-readonly",
    "folder-readonly",
    says=r"read-only|may not write|not writable",
)
row(
    "four files for the runs",
    f"{MADE}; mount -t tmpfs -o nr_inodes=4,uid=1000,gid=1000,mode=700 none {RUNS}",
    f"umount -l {RUNS}",
    "inodes-full",
    "disk-full",
    "disk-quota",
    says="no space|inode",
)

row(
    "docker's folder of containers is full",
    "mount -t tmpfs -o size=4k none /var/lib/docker/containers",
    "umount /var/lib/docker/containers",
    "disk-full",
)
row(
    "the folder of the runs is full",
    f"mkdir -p {HOME}/.muster; mount -t tmpfs -o size=64k,mode=0777 none {HOME}/.muster; "
    f"cat /dev/zero >{HOME}/.muster/full || true",
    f"umount {HOME}/.muster",
    "disk-full",
)
row(
    "the home is read-only",
    f"mount --bind {HOME} {HOME}; mount -o remount,bind,ro {HOME}",
    f"umount {HOME}",
    "home-readonly",
)

# Odd but healthy: a run trains.
row(
    "/etc is read-only, as on a system that is an image",
    "mount --rbind /etc /etc; mount -o remount,bind,ro /etc",
    "umount -l /etc",
)
row(
    "the home is a disk of RAM over the real one, as on a live system",
    "set -e; mkdir -p /mnt/live; mount -t tmpfs "
    "none /mnt/live; mkdir /mnt/live/up /mnt/live/work; mount -t overlay -o lowerdir=/home,upperdir=/mnt/live/up,"
    "workdir=/mnt/live/work none /home",
    "umount -l /home; umount -l /mnt/live; rmdir /mnt/live",
)
row("the temporary folder is noexec", "mount -t tmpfs -o noexec,mode=1777 none /tmp", "umount /tmp")

"""Python as on macOS and the BSDs, as far as a Linux can show it: what only Linux has is not there."""

import fcntl
import os
import select
import signal
import socket

_LINUX_ONLY = {
    os: (
        *("sched_getaffinity", "sched_setaffinity", "pidfd_open", "memfd_create", "eventfd", "splice", "getrandom"),
        *("O_TMPFILE", "O_PATH", "O_DIRECT", "posix_fadvise", "posix_fallocate", "copy_file_range", "setns", "unshare"),
        *("getxattr", "setxattr", "listxattr", "removexattr", "waitid", "pipe2", "getresuid", "getresgid"),
    ),
    select: ("epoll",),
    signal: ("sigtimedwait", "sigwaitinfo", "pidfd_send_signal"),
    socket: ("SO_PEERCRED", "AF_NETLINK", "AF_PACKET", "AF_VSOCK", "SO_BINDTODEVICE", "SO_DOMAIN", "SO_PROTOCOL"),
    fcntl: ("F_SETPIPE_SZ", "F_GETPIPE_SZ", "F_ADD_SEALS", "F_OFD_SETLK"),
}
if "MUSTER_TEST_BARE" in os.environ:
    # Here its half for Linux is installed, which needs what follows; on another system it has another half.
    import psutil  # noqa: F401

    for module, names in _LINUX_ONLY.items():
        for name in names:
            if hasattr(module, name):
                delattr(module, name)

"""Hosts as people have them, on a rack: SSH servers, login shells and engines that are odd, some of them broken.

Each way has a cause, as in lab/rack_faults.py; without one, `muster preflight` must be green, its rehearsal included.
"""

from __future__ import annotations

import subprocess

from lab.rack_faults import Trouble

WAYS: dict[str, Trouble] = {}
_SSHD, _PASSWD = "/etc/ssh/sshd_config.d/way.conf", "usermod -s"
_AGAIN = "pkill -HUP -o -x sshd; sleep 1"
_RUNC = "$(cat /run/was)"


def _way(name, cause, breaks, mends, **how):
    """A way that two shell scripts make and mend, as root on the host."""

    def inject(cluster, host):
        cluster.root(host, "sh", "-ec", breaks)
        yield
        cluster.root(host, "sh", "-ec", mends)

    WAYS[name] = Trouble(name, cause, inject, **how)


def _sshd(name, cause, *lines):
    """Settings of the SSH server."""
    _way(name, cause, f"printf '%s\\n' {' '.join(map(repr, lines))} >{_SSHD}; {_AGAIN}", f"rm {_SSHD}; {_AGAIN}")


def _shell(name, cause, path):
    """Another login shell."""
    _way(name, cause, f"grep -qx {path} /etc/shells || echo {path} >>/etc/shells; {_PASSWD} {path} muster",
         f"{_PASSWD} /bin/bash muster")  # fmt: skip


def _file(name, cause, path, text):
    """A start-up file of the user's, or a script."""
    _way(name, cause, f"[ ! -e {path} ] || mv {path} {path}.kept; printf '%s\\n' {text!r} >{path}; chmod 755 {path}",
         f"rm {path}; [ ! -e {path}.kept ] || mv {path}.kept {path}")  # fmt: skip


_sshd("one_session_at_a_time", "", "MaxSessions 1")
_sshd("two_sessions_at_a_time", "", "MaxSessions 2")
_sshd("no_sessions_at_all", "ssh-sessions", "MaxSessions 0")
_sshd("nothing_is_forwarded", "", "DisableForwarding yes", "PermitTTY no")
_sshd("a_banner_before_the_login", "", "Banner /etc/services")
_sshd("a_forced_command_that_runs_what_is_asked", "", 'ForceCommand sh -c "$SSH_ORIGINAL_COMMAND"')
_sshd("a_forced_command_that_says_no", "ssh-shell", "ForceCommand echo This account is for backups only.")
_sshd("a_forced_command_that_shows_a_menu", "ssh-shell", "ForceCommand sh -c 'echo 1 logout; read answer'")
_shell("the_shell_is_fish", "", "/usr/bin/fish")
_shell("the_shell_is_tcsh", "", "/usr/bin/tcsh")
_shell("the_shell_is_zsh", "", "/usr/bin/zsh")
_shell("the_shell_is_restricted", "", "/usr/bin/rbash")
_shell("the_shell_refuses_logins", "ssh-shell", "/usr/sbin/nologin")
_shell("the_shell_is_missing", "ssh-key", "/usr/bin/gone")
_file("a_start_up_file_takes_12_s", "", "/home/muster/.bashrc", "sleep 12")
_file("a_start_up_file_takes_50_s", "ssh-slow", "/home/muster/.bashrc", "sleep 50")
_file(
    "a_start_up_file_prints_a_megabyte", "ssh-shell", "/home/muster/.bashrc", "head -c 1000000 /dev/zero | tr '\\0' x"
)
_file("a_start_up_file_reads_its_input", "ssh-slow", "/home/muster/.bashrc", "cat >/dev/null")
_file("a_start_up_file_changes_the_folder", "", "/home/muster/.bashrc", "cd /; umask 0")
_way("no_iproute2", "no-iproute2",
     "mv /usr/bin/ip /run/ip; mv /usr/bin/ss /run/ss; [ ! -e /usr/sbin/ip ] || mv /usr/sbin/ip /run/sip",
     "mv /run/ip /usr/bin/ip; mv /run/ss /usr/bin/ss; [ ! -e /run/sip ] || mv /run/sip /usr/sbin/ip")  # fmt: skip
_way("no_python_beside_the_image", "", "mv /usr/bin/python3 /run/python3", "mv /run/python3 /usr/bin/python3")
_way("docker_with_sudo_only", "docker-permission", "gpasswd -d muster docker", "gpasswd -a muster docker")
_way("an_engine_that_needs_25_s_to_start_a_container", "",
     f"which runc >/run/was; mv {_RUNC} /usr/bin/runc.kept; "
     f"printf '#!/bin/sh\\ncase \" $* \" in *\" create \"*) sleep 25;; "
     f"esac\\nexec /usr/bin/runc.kept \"$@\"\\n' >{_RUNC}; chmod 755 {_RUNC}",
     f"mv /usr/bin/runc.kept {_RUNC}")  # fmt: skip
_way("an_engine_that_is_frozen", "docker-silent", "pkill -STOP -x dockerd", "pkill -CONT -x dockerd")
_way("a_home_that_is_missing", "home-readonly", "mv /home/muster/.muster /run/kept 2>/dev/null || true; "
     "cp -r /home/muster/.ssh /run/ssh; sed -i 's|:/home/muster:|:/home/gone:|' /etc/passwd; "
     f"printf 'AuthorizedKeysFile /home/muster/.ssh/authorized_keys\\nStrictModes no\\n' >{_SSHD}; {_AGAIN}",
     f"sed -i 's|:/home/gone:|:/home/muster:|' /etc/passwd; rm {_SSHD}; {_AGAIN}")  # fmt: skip


def _logins_at_once(cluster, host):
    """Somebody holds all places before the login, for some seconds: MaxStartups is 2."""
    cluster.root(host, "sh", "-ec", f"echo 'MaxStartups 2:100:2' >{_SSHD}; {_AGAIN}")
    hold = "for n in 1 2 3; do (sleep 6 | nc -w 8 127.0.0.1 22 >/dev/null 2>&1) & done; wait"
    cluster.start(host, "sh", "-c", hold)
    cluster.root(host, "sleep", "1")
    yield
    cluster.root(host, "sh", "-ec", f"rm {_SSHD}; {_AGAIN}")


def _reboot(cluster, host):
    """The host goes down in the middle, and comes back."""
    later = f"sleep 2; docker restart -t 5 {cluster.rack.container(host)}"
    rebooting = subprocess.Popen(["sh", "-c", later], stdout=subprocess.DEVNULL)
    yield
    rebooting.wait()
    cluster.root(host, "sh", "-c", "for n in $(seq 100); do docker version >/dev/null 2>&1 && exit; sleep 0.3; done")


WAYS["all_places_before_the_login_are_taken"] = Trouble("all_places_before_the_login_are_taken", "", _logins_at_once)
WAYS["a_host_that_reboots_in_the_middle"] = Trouble(
    "a_host_that_reboots_in_the_middle", "ssh-lost", _reboot, also=("docker-down", "probe-died")
)

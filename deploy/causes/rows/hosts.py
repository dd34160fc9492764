"""Causes: SSH, the engine and what Muster needs on a host. Data."""

from ..end_causes import Cause
from ..row import Row, Section

SECTIONS = (
    Section(
        "Hosts, Docker, Python",
        (
            Row(
                "ssh",
                ("Nothing starts. SSH prints the reason: client and server share no method, or the connection broke."),
                by_hand="`ssh -o BatchMode=yes -v HOST true`",
                fix="Do what the message says.",
                source="sshd_config(5), ssh_config(5)",
            ),
            Row(
                "ssh-name",
                "`Could not resolve hostname`.",
                by_hand="`getent ahosts HOST`, `ssh -G HOST | grep hostname`",
                fix="Correct the spelling, or set an address (`HostName` in ~/.ssh/config).",
                source="ssh_config(5)",
            ),
            Row(
                "ssh-refused",
                "`Connection refused`: no sshd on that port, or a firewall rejects the connection.",
                by_hand="`nc -vz HOST 22`",
                fix="Run `sudo systemctl start ssh` on its console, or give the right port: `--hosts HOST:PORT`.",
                source="sshd(8)",
                ends=Cause.CUT_OFF,
            ),
            Row(
                "ssh-timeout",
                (
                    "`Connection timed out`, `No route to host`: the machine is off, or a firewall drops SSH, or a "
                    "VPN or jump host is missing."
                ),
                by_hand="`nc -vz HOST 22`, `ip route get ADDRESS`",
                fix="Allow TCP 22 from your machine, or name the jump host (`ProxyJump`).",
                source="ssh_config(5)",
                ends=Cause.CUT_OFF,
            ),
            Row(
                "ssh-silent",
                (
                    "The port is open, but no SSH server answers: it hangs, another program listens there, or "
                    "the server rejects logins because there are too many (`MaxStartups`)."
                ),
                by_hand="`nc HOST 22` should print `SSH-2.0-...`",
                fix="Restart sshd on the console. Raise MaxStartups if many users log in at once.",
                source="sshd_config(5), MaxStartups",
                ends=Cause.CUT_OFF,
            ),
            Row(
                "ssh-key",
                (
                    "`Permission denied (publickey)`: the host does not accept any of your keys for that user. "
                    "A server does not say why: the key is not installed, the account is locked or has expired, "
                    "`AllowUsers` or a `Match` block excludes it, or other users can write to its home folder "
                    "(`StrictModes`)."
                ),
                by_hand=(
                    "`ssh -v HOST true`; on its console: `journalctl -u ssh | tail`, `chage -l USER`, `ls -ld "
                    "~USER ~USER/.ssh`"
                ),
                fix=(
                    "Run `ssh-copy-id USER@HOST`, or set the right `IdentityFile` and `User` in ~/.ssh/config. If "
                    "the host also wants a second factor, or a token, a password or Kerberos instead of a key: "
                    "`muster login --hosts HOST` ([ssh.md](ssh.md))."
                ),
                source="sshd(8), AUTHORIZED_KEYS",
                others=(
                    "AllowUsers, DenyUsers or a Match block of its sshd_config",
                    "an account that has expired or is locked",
                    "a home folder or ~/.ssh that other users can write to (StrictModes)",
                    "logins that the host refuses for now (/etc/nologin)",
                ),
            ),
            Row(
                "ssh-host-key-unknown",
                "`Host key verification failed`: this machine does not know the host's key yet.",
                by_hand="`ssh-keygen -F HOST`",
                fix="`muster trust --hosts HOST` shows the key and asks.",
                source="ssh(1), VERIFYING HOST KEYS",
            ),
            Row(
                "ssh-host-key-changed",
                (
                    "`REMOTE HOST IDENTIFICATION HAS CHANGED`: the host was reinstalled, or somebody intercepts "
                    "the connection."
                ),
                by_hand="on its console: `ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub`",
                fix="Only if the fingerprint is the same: `ssh-keygen -R HOST`, then `muster trust --hosts HOST`.",
                source="ssh(1), VERIFYING HOST KEYS",
            ),
            Row(
                "ssh-shell",
                (
                    "Login works, but commands do not: `This account is currently not available`, a "
                    "`ForceCommand`, an expired password, a PAM limit, or a shell start-up file that ends the "
                    "shell, prints endlessly, or reads the input that a command should read; or the shell lacks "
                    "a library after an incomplete upgrade. The text quotes the last words of the login."
                ),
                by_hand="`ssh HOST true`, `echo words | ssh HOST cat`, `getent passwd USER` there",
                fix=(
                    "Do what the message says. Run `sudo chsh -s /bin/sh USER` there, or log in as another "
                    "user; or put `[ -t 0 ] || return` before the lines of the start-up file that print or "
                    "read. If a library is missing: `ldd $(command -v bash)`, and reinstall its package."
                ),
                source="nologin(8)",
                symptom="`ip route get` shows no route: the run does not start there",
                group="hosts",
                others=(
                    "no shell (nologin)",
                    "a ForceCommand",
                    "a start-up file that ends the shell",
                    "an expired password, or another PAM rule",
                ),
                without_reason=True,
            ),
            Row(
                "ssh-sessions",
                (
                    "Login works, but the server opens no session, even on a new connection. One session on "
                    "each connection is enough (`MaxSessions 1`), because Muster then opens more connections."
                ),
                by_hand="`ssh HOST true`; there `sudo sshd -T | grep -i maxsessions`",
                fix="Set `MaxSessions` to at least 1 in its sshd_config, and reload sshd.",
                others=(
                    "MaxSessions",
                    "PAM (maxlogins, or a session that PAM cannot open)",
                ),
                without_reason=True,
            ),
            Row(
                "ssh-lost",
                (
                    "The connection was open and then broke: the host went down or rebooted, or something on "
                    "the way dropped the connection."
                ),
                by_hand="`ssh HOST uptime` shows when it booted; `last -x reboot` there",
                fix=(
                    "If the host is back, run the command again. If this happens without a reboot, check the "
                    "idle timeouts of the network."
                ),
                others=(
                    "a restart of the host or of its SSH server",
                    "large packets that get lost",
                    "a limit on the login's processes or memory (PAM)",
                    "an idle limit",
                ),
                without_reason=True,
            ),
            Row(
                "ssh-slow",
                (
                    "SSH works, but a command does not start or end in time. Often a shell start-up file waits "
                    "for something: a network folder, a package manager, an `ssh-agent`."
                ),
                by_hand="`time ssh HOST true`; `ssh HOST 'sh -xc true'`; `ls -la ~` there",
                fix="Let the start-up files return early when there is no terminal: `[ -t 0 ] || return` in `.bashrc`.",
                command="time ssh {ssh} true; in ~/.bashrc there, as the first line: [ -t 0 ] || return",
                without_reason=True,
            ),
            Row(
                "folder-silent",
                (
                    "A command over SSH does not end, because a folder that it needs does not answer: the home "
                    "folder, `~/.muster`, or a folder in the `PATH` whose file server or automounter is gone. A "
                    "shell looks for each command in all folders of the `PATH`. The text names the folder, "
                    "where it leads, and its mount."
                ),
                by_hand="`ls -ld FOLDER &` there (it may hang), `mount | grep -e nfs -e autofs -e fuse`",
                fix=(
                    "Bring the server back, or run `sudo umount -fl PLACE`; remove the folder from the `PATH`; "
                    "point `~/.muster` to a folder that answers."
                ),
                source="measured on the rack (docs/evidence/preflight-score.md)",
            ),
            Row(
                "no-iproute2",
                (
                    "The host has no `ip` command, or `ip` lists no addresses; its message says why. Muster "
                    "uses it to get the host's addresses and routes. Another program called `ip` may come first "
                    "in the `PATH`: the text shows its path."
                ),
                by_hand="`ip -j addr` and `type -a ip` there",
                fix=(
                    "Install the package iproute2 (Debian, Ubuntu) or iproute (Fedora, RHEL); if it is "
                    "installed, repair what the message names (a library, a `PATH`), or rename the other program."
                ),
                symptom="the run does not start there",
                group="hosts",
            ),
            Row(
                "no-python",
                "The host has no Python, and does not have the image yet. Only preflight needs one of them.",
                by_hand="`ssh HOST python3 --version`",
                fix="Run `muster push` first (preflight's probe then runs in the image), or install python3.",
                what="the host has no Python",
                command="muster push{at} (preflight's probe then runs in the image), or install python3 there "
                "(3.8 or newer)",
                others=(
                    "a library that python3 needs and does not find",
                    "a PATH without python3",
                ),
            ),
            Row(
                "probe-died",
                "Preflight's probe on the host ended or stopped answering before it was done.",
                by_hand="`dmesg | tail`, `docker ps -a` there",
                fix="Try again. The usual reasons: the host ran out of memory, or somebody killed the container.",
                command="run muster preflight again; if it fails again, run there: dmesg | tail",
            ),
            Row(
                "docker-missing",
                (
                    "`docker: not found`: there is no `docker` in the `PATH` that commands get over SSH. The "
                    "text shows that `PATH`, and any `docker` outside it."
                ),
                by_hand="`ssh HOST docker version`",
                fix=(
                    "`muster bootstrap --hosts HOST`; if Docker is installed, add its folder to the `PATH` (in "
                    "the user's start-up file, or in /etc/environment)."
                ),
                source="docs.docker.com/engine/install",
                what="there is no `docker` command",
                command="muster bootstrap{at}",
            ),
            Row(
                "podman-command",
                (
                    "`docker` there is Podman's own command (the package `podman-docker`), which lacks features "
                    "of Docker's command that Muster needs."
                ),
                by_hand="`ssh HOST docker version` shows Podman and no server",
                fix="let Docker's own client use Podman's socket: [install](install.md#podman).",
                source="measured with Podman 5.4.2",
                what="`docker` there is Podman's own command, not Docker's",
                command="on {host}: let Docker's own client use Podman's socket: muster docs install",
            ),
            Row(
                "docker-wrapped",
                (
                    "`docker` there is a script or a function that prints its own lines to standard output, "
                    "among the engine's answers. Muster would read them as answers."
                ),
                by_hand=(
                    "`ssh HOST \"docker info --format '{{.DockerRootDir}}'\"` prints more than one folder; `ssh "
                    "HOST type docker`"
                ),
                fix="let the script print to standard error (`>&2`), or remove it.",
                source="measured on a rack (lab/machines)",
                what=(
                    "`docker` there is a script that prints its own lines to standard output, among the "
                    "engine's answers"
                ),
                command="on {host}: type docker; let the script print to standard error (>&2)",
            ),
            Row(
                "engine-rootless",
                (
                    "The engine (Docker's or Podman's) is rootless. It maps the users of a container to other "
                    "ids on the host, so the run's processes cannot write to their folder. Rootless Docker also "
                    "has its own network, even with `--network host`, so no other host can reach the run."
                ),
                by_hand="`docker info --format '{{.SecurityOptions}}'` there says `name=rootless`",
                fix=(
                    "use the engine that root runs: `docker context use default`, and unset `DOCKER_HOST`; the "
                    "user must be in the group `docker`."
                ),
                source="docs.docker.com/engine/security/rootless",
                what="the engine is rootless: the users of its containers have other ids on the host, and "
                "cannot write to the run's folder",
                command="on {host}: use the engine that root runs: `docker context use default`, unset DOCKER_HOST",
            ),
            Row(
                "docker-permission",
                "`permission denied while trying to connect to the Docker daemon socket`.",
                by_hand="`ssh HOST docker version`",
                fix="`sudo usermod -aG docker $USER`, then log in again.",
                source="docs.docker.com/engine/install/linux-postinstall",
                what="permission denied on the Docker socket",
                command="on {host}: sudo usermod -aG docker $USER, then log in again",
            ),
            Row(
                "docker-refused",
                (
                    "The engine answers but creates no container. Its message says why. `unable to upgrade to "
                    "tcp, received 400` is a warning: something between client and engine (a web server or a "
                    "proxy in front of the socket) does not forward the upgrade of a connection, so nothing can "
                    "connect to a container. A run starts and trains, but preflight cannot rehearse it, and "
                    "`muster exec`, `muster shell`, `muster why`, secrets, packages and `--overlay` do not work there."
                ),
                by_hand=(
                    "`docker run --rm --network host IMAGE true` there; `sudo ls -ld PATH` of the path that the "
                    "message names"
                ),
                fix=(
                    "Do what the message says. If it is about an upgrade: unset `DOCKER_HOST`, or let the proxy "
                    "forward `Upgrade: tcp`. Other common reasons: a missing runtime (`runc`), user namespaces "
                    "that forbid the host network, a damaged image store."
                ),
                source="docs.docker.com/engine/daemon/troubleshoot",
                what="Docker refuses",
                command="on {host}: docker info; journalctl -u docker | tail",
                symptom="`unable to upgrade to tcp`",
                group="hosts",
            ),
            Row(
                "mount-missing",
                "`bind source path does not exist`: a folder that the run mounts does not exist on that host.",
                by_hand="`ls -ld FOLDER` there",
                fix="Create the folder there, or mount another one: `--mount`, or `mounts` in cluster.toml.",
                source="docs.docker.com/engine/storage/bind-mounts",
                what="a folder that the container mounts does not exist",
                command="on {host}: ls -ld FOLDER; create it, or mount another (--mount, or mounts in cluster.toml)",
                others=(
                    "a parent folder that the engine may not enter",
                    "a seccomp profile",
                    "AppArmor or SELinux",
                    "a flag or a quota on the file system",
                ),
            ),
            Row(
                "docker-silent",
                (
                    "Every docker command hangs: the engine does not answer within 15 s. Or only some commands "
                    "hang: `docker info` asks each plugin of the client, and a plugin may never answer; or the "
                    "engine accepts a container but does not start it, because its control group is frozen or "
                    "its disk hangs."
                ),
                by_hand=(
                    "`ssh HOST docker version`, `ssh HOST docker info`, `journalctl -u docker | tail`; `ls "
                    "~/.docker/cli-plugins`"
                ),
                fix=(
                    "First look for a full or hanging disk (`df -h`, `dmesg | tail`), then `sudo systemctl "
                    "restart docker`. Remove a plugin that hangs."
                ),
                source="docs.docker.com/engine/daemon/troubleshoot",
                what="the Docker engine does not answer",
                command="on {host}: sudo systemctl restart docker",
                others=(
                    "an engine that waits for its disk",
                    "DOCKER_HOST or a docker context that points elsewhere",
                    "a setting in ~/.docker",
                    "a proxy",
                ),
                without_reason=True,
            ),
            Row(
                "docker-down",
                (
                    "`Cannot connect to the Docker daemon`: the daemon is not running, or the client looks for "
                    "it at another address (the message names it)."
                ),
                by_hand=(
                    "`ssh HOST systemctl status docker`, `ssh HOST docker context ls`, `ssh HOST 'echo $DOCKER_HOST'`"
                ),
                fix="`sudo systemctl start docker`; or `docker context use default`, and unset `DOCKER_HOST`.",
                source="docs.docker.com/engine/daemon",
                what="the Docker engine does not answer",
                command="on {host}: sudo systemctl start docker",
                others=(
                    "DOCKER_HOST or a docker context that points elsewhere",
                    "a setting in ~/.docker",
                    "a proxy",
                ),
            ),
        ),
    ),
)

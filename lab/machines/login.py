"""Rows about SSH servers, accounts and shells. Faults first, then oddities."""

from lab.machines.row import AGAIN, HOME, HUNG_UP, LATE, agent, away, judge_files, pam, row, server, shell

server("the server knows only an old key exchange", "KexAlgorithms diffie-hellman-group1-sha1", says="key exchange|kex")
server(
    "sshd takes only exchanges of keys that hold against quantum computers",
    "KexAlgorithms mlkem768x25519-sha256,sntrup761x25519-sha512@openssh.com",
    says=r"key exchange|\bkex\b|share no method",
)
server(
    "one cipher, and silent clients are dropped",
    "Ciphers chacha20-poly1305@openssh.com",
    "ClientAliveInterval 5",
    says="share no method",
)
row(
    "the host was set up anew, its host keys as well",
    f"mkdir /etc/ssh/campus; mv /etc/ssh/ssh_host_* /etc/ssh/campus/; ssh-keygen -A; {AGAIN}",
    f"rm /etc/ssh/ssh_host_*; mv /etc/ssh/campus/ssh_host_* /etc/ssh/; rmdir /etc/ssh/campus; {AGAIN}",
    "ssh-host-key-changed",
    says="host key|known_hosts",
)
server("only others may log in", "AllowUsers somebody", causes=("ssh-key",))
server(
    "sshd no longer asks PAM, and the account has no password: it counts as locked",
    "UsePAM no",
    causes=("ssh-key",),
    says=r"\block(ed)?\b|UsePAM",
)
server(
    "sessions that say nothing for four seconds are closed",
    "ChannelTimeout session=4s",
    "UnusedConnectionTimeout 4s",
    causes=("ssh-lost",),
    says="idle|ChannelTimeout|closed after",
)
row(
    "/run was cleaned by hand: sshd's empty folder is gone",
    "mv /run/sshd /run/sshd.kept",
    "rm -rf /run/sshd; mv /run/sshd.kept /run/sshd",
    *HUNG_UP,
    says=r"/run/sshd|privilege separation|closed|reset|hung up",
)
server(
    "sshd listens at an address that the host had before, and at the loopback",
    "ListenAddress 198.51.100.20",
    "ListenAddress 127.0.0.1",
    causes=("ssh-refused",),
    says=r"refused|nobody listens|nothing listens",
)
server(
    "a connection may have one session",
    "MaxSessions 1",
    causes=("ssh-sessions",),
    says=r"MaxSessions|second (session|channel)|(session|channel)s?\b.*(refused|denied|open|at once)",
)
server(
    "a connection may have two sessions at once",
    "MaxSessions 2",
    causes=("ssh-sessions",),
    says=r"MaxSessions|(second|third) (session|channel)|(session|channel)s?\b.*(refused|denied|open|at once)",
)
shell("the shell's file ends in another shell", "exec dash", "ssh-shell", says="said nothing|no answer|no output")
shell(
    "the shell's file calls newgrp docker, and that shell reads what is meant for the first",
    "newgrp docker",
    "ssh-shell",
    says=r"newgrp|standard input|\bstdin\b|\.bashrc",
)
row(
    "the host swaps itself to death: sshd is called and has no turn",
    "kill -STOP $(pgrep -o -x sshd)",
    "kill -CONT $(pgrep -o -x sshd); sleep 1",
    "ssh-silent",
    "ssh-timeout",
    says=r"banner|greet|silent|timed out|"
    r"nothing (comes|came)|no answer|not answer",
)
server(
    "each command of a login is ended after two seconds",
    'ForceCommand exec timeout 2 bash -c "$SSH_ORIGINAL_COMMAND"',
    causes=LATE,
    says=r"ForceCommand|time limit|\btimeout\b|after \S+ s(econds)?\b|"
    r"ended|\b124\b",
)
pam(
    "each login waits six seconds for a logind that does not answer",
    "session optional pam_exec.so /usr/bin/sleep 6",
    "ssh-slow",
    "ssh-silent",
    "ssh-timeout",
)
agent(
    "a scanner of viruses looks at each file for some milliseconds before it is opened",
    judge_files(0x10000, "time.sleep(0.003) or 1"),
    "ssh-slow",
)
row(
    "the sixth call of SSH within half a minute is dropped",
    "iptables -I INPUT -p tcp --dport 22 --syn -m recent --name rented --update --seconds 30 --hitcount 6 -j DROP; "
    "iptables -I INPUT -p tcp --dport 22 --syn -m recent --name rented --set",
    "iptables -D INPUT 1; iptables -D INPUT 1",
    "ssh-timeout",
    "ssh-silent",
)

row("SSH's port is dropped", "iptables -I INPUT -p tcp --dport 22 -j DROP", "iptables -D INPUT 1", "ssh-timeout")
row("sshd stands still", "pkill -STOP -x sshd", "pkill -CONT -x sshd", "ssh-silent")
away("the list of keys is gone", f"{HOME}/.ssh/authorized_keys", "ssh-key")
shell("the shell leaves at once", "exit 0", "ssh-shell")
row("the user has no shell", "usermod -s /usr/sbin/nologin muster", "usermod -s /bin/bash muster", "ssh-shell")
row("the account has expired", "chage -E 0 muster", "chage -E -1 muster", "ssh-key", "ssh", "ssh-shell")
row(
    "only one command is allowed",
    f"sed -i 's|^|command=\"/bin/false\" |' {HOME}/.ssh/authorized_keys",
    f"sed -i 's|^command=\"/bin/false\" ||' {HOME}/.ssh/authorized_keys",
    "ssh-shell",
)

# Odd but healthy: a run trains.
server("new keys every 16 kB", "RekeyLimit 16K")
shell("what the user makes is the user's only", "umask 077")
shell("20 open files for the user's programs", "ulimit -n 20")
shell("each shell says good-bye on standard output", "trap 'echo The session was recorded.' EXIT")
shell("the shell neither overwrites files nor expands patterns", "set -C -f -u; readonly TMOUT=60")
shell("each shell, and each shell of its scripts, prints what it does", "export SHELLOPTS; set -x")
shell("cd is a function that lists the folder", 'cd() { builtin cd "$@" && ls -la; }; export -f cd')
shell("PATH, HOME and more cannot be changed", "readonly PATH HOME USER SHELL LANG LC_ALL IFS TMPDIR PS4")
server("each command of a login is made nice", 'ForceCommand exec nice -n 15 bash -c "$SSH_ORIGINAL_COMMAND"')
shell("programs that are started here ignore hang-ups, broken pipes and requests to end", "trap '' HUP PIPE TERM INT")
shell("each shell begins in a folder that is gone", "mkdir /tmp/campus.$$ && cd /tmp/campus.$$ && rmdir /tmp/campus.$$")
shell(
    "dotfiles in git, and a merge of them stopped halfway",
    "<<<<<<< HEAD\nexport EDITOR=vim\n=======\nexport EDITOR=nano\n>>>>>>> laptop",
)
shell(
    "each shell goes to the marketplace's workspace, and has two seconds for whoever types",
    "cd /srv; TMOUT=2; readonly TMOUT; export TMOUT",
)
shell(
    "words end at commas, patterns that match nothing are errors, echo reads backslashes",
    "IFS=,; shopt -s failglob xpg_echo nocaseglob nocasematch; set -o pipefail",
)
server(
    "a login gets no new privileges, one core and no random addresses",
    'ForceCommand exec setpriv --no-new-privs setarch -R taskset -c 0 bash -c "$SSH_ORIGINAL_COMMAND"',
)
shell(
    "rm, cp and mv ask first, ls and grep are in colours, also where nobody types",
    "shopt -s expand_aliases; alias "
    "rm='rm -i' cp='cp -i' mv='mv -i' ls='ls -la --color=always' grep='grep -n --color=always'",
)
shell(
    "the company's line for shells: a limited history, a prompt that reports, a warning on standard error",
    'export HISTSIZE=0 PROMPT_COMMAND="logger -t audit" PS4="+ \\$(date) "; readonly HISTFILE=/dev/null; echo "This '
    'system is the property of Example Corp. Use is monitored." >&2',
)
shell("the shell is talkative", "echo welcome to this machine; echo quota: 93 percent >&2")
shell("the shell is slow", "sleep 2")

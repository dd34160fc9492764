#!/bin/sh
# road TOKEN BYTES LEASE DAYS PORTS [COMMAND...]: receives pieces and stores each in a file named by its digest; passes them to
# COMMAND in the order of the list as they arrive; and gives them to other hosts. Without COMMAND it only gives other
# hosts the pieces it has. The first BYTES of the input are the list of pieces: a line `DIGEST SIZE` for each, in order.
# Then come orders, one per line:
#   `put DIGEST SIZE`: the piece itself follows
#   `serve N KEY`: let another host with this key fetch pieces, as request N
#   `from N LINES PORT USER TYPE KEY ADDRESS...`: fetch these lines of the list (`sed -n LINES`) from another host
#   `stop`: end the current fetch; `beat`: a sign of life; `over`: end; `done`: remove the pieces and end
#   `stay`: nothing more comes from the control side, so continue alone at the end of the input
# It prints lines:
#   `had DIGEST`: the piece was here already; `got DIGEST`: it arrived
#   `ready FREE-KILOBYTES [KEYTYPE KEY]`: without a key, this host exchanges no pieces with other hosts
#   `serving N [PORT USER TYPE KEY ADDRESS...]`: where the other host fetches; only N if no port could be opened
#   `lost N WHY`: fetch N failed, because it was `cut`, got `wrong` bytes, or `unreached`
#   `out LINE` and `err LINE` of COMMAND, and `end CODE`, its exit code; `failed WHY`: a piece could not be received
# The keys are made for this push alone, and kept in memory if possible. At the end, after LEASE minutes of silence or after a kill,
# only pieces stay, for the next push; pieces older than DAYS are deleted.
umask 077
token=$1 bytes=$2 lease=$3 days=$4 ports=$5; shift 5
store=$HOME/.muster/road/$(uname -n)
mkdir -p -- "$store/pieces" && cd -P -- "$store" && store=$(env pwd -P) || exit
own='' main=$$ port='' sshd=$(PATH=$PATH:/usr/sbin:/usr/local/sbin; command -v sshd)
# The kernel may have given the process number to another process: kill it only if its command line contains this folder.
end() {
    cat "$1"/pid-* 2>/dev/null | tr ' ' '\n' | while read -r pid; do
        grep -qaF -- "$1/" "/proc/$pid/cmdline" 2>/dev/null && kill "$pid" 2>/dev/null
    done
    rm -rf -- "$1"
}
# Delete what an earlier push left behind: one whose processes were all killed, and one that continues alone (this push has the
# pieces it got). Each name contains its push's store and process number from the start, because another push to this host may
# begin at the same time.
sweep() {
    [ ! -L "$1" ] && [ "$(stat -c %u -- "$1" 2>/dev/null)" = "$(id -u)" ] || return
    [ -e "$1/left" ] || ! kill -0 "$2" 2>/dev/null || return
    end "$1"; tries=0
    while kill -0 "$2" 2>/dev/null && [ "$tries" -lt 100 ]; do tries=$((tries + 1)); sleep 0.1; done
}
mine=$(uname -n)-$(printf %s "$store" | cksum | cut -d ' ' -f 1)
for old in "/dev/shm/muster-road-$mine"-*-* "$store"/own-*-*; do pid=${old%-*}; sweep "$old" "${pid##*-}"; done
for old in pieces/.*.coming; do pid=${old#pieces/.}; sweep "$old" "${pid%%.*}"; done
find pieces -type f -mtime "+$days" -exec rm -f -- {} + 2>/dev/null
own=$(mktemp -d "/dev/shm/muster-road-$mine-$main-XXXXXXXX" 2>/dev/null || mktemp -d "$store/own-$main-XXXXXXXX") || exit
: >"$own/beat"; guard=''
trap 'kill $guard 2>/dev/null; end "$own"' EXIT; trap 'exit 1' HUP INT TERM PIPE
dd "bs=$bytes" count=1 iflag=fullblock 2>/dev/null >"$own/list"
[ "$(wc -c <"$own/list")" -eq "$bytes" ] || exit
# The caller reads both streams as answers: programs must not write errors there.
exec 2>/dev/null
# A process that is killed cannot clean up, so another process watches this one.
(
    trap '' HUP INT
    while kill -0 "$main" && [ -n "$(find "$own/beat" -mmin "-$lease")" ]; do sleep 2; done
    kill "$main"; end "$own"
) </dev/null >/dev/null &
guard=$!
alive() { [ -d "$own" ] && kill -0 "$main"; }
# take DIGEST SIZE WHO: read the next SIZE bytes of the input as this piece; keep them only if their digest is right.
take() {
    part=pieces/.$main.$1.$3.coming
    dd "bs=$2" count=1 iflag=fullblock 2>"$own/words-$3" >"$part"
    if [ "$(sha256sum <"$part")" = "$1  -" ]; then
        : >"$own/beat"
        # Print this before COMMAND can get the piece, and end.
        { echo "got $1" || [ -e "$own/stay" ]; } && mv -f -- "$part" "pieces/$1"
        return
    fi
    fault=1; [ "$(wc -c <"$part")" -ne "$2" ] || fault=2
    rm -f -- "$part"; return "$fault"
}
words() { sed -n 's/^dd: //p' "$own/words-$1" | tail -n 1; }
# Print the pieces in the order of the list, as they arrive.
feed() {
    while read -r digest _ <&4; do
        until alive && [ ! -e "$own/over" ] || return; [ -f "pieces/$digest" ]; do sleep 0.05; done
        cat "pieces/$digest" || return
    done 4<"$own/list"
    : >"$own/fed"
}
# The addresses of this host. An address with a zone (fe80::1%eth0) is valid only on this host's own interface, so it is left out.
addresses() {
    {
        echo "$SSH_CONNECTION" | cut -d ' ' -f 3
        ip -o addr show scope global | awk '$2 !~ /^(docker|br-|veth|cni|virbr|flannel|podman)/ { sub("/.*", "", $4); print $4 }'
    } | awk 'NF && !/%/ && !seen[$0]++' | head -n 8 | tr '\n' ' '
}
# What another host may run here: it gets pieces of this push, and names them by digest.
cat >"$own/give" <<EOF
echo "\$\$ \$PPID" >"$own/pid-\$\$"; trap 'rm -f -- "$own/pid-\$\$"' EXIT
cd -- '$store' || exit
alive() { [ -d '$own' ] && kill -0 $main 2>/dev/null; }
echo "muster $token"
while read -r digest size; do
    grep -qxF -- "\$digest \$size" '$own/list' || exit
    until [ -f "pieces/\$digest" ]; do alive || exit; sleep 0.05; done
    cat "pieces/\$digest" || exit
done
EOF
cat >"$own/config" <<EOF
HostKey "$own/host"
AuthorizedKeysFile "$own/keys"
StrictModes no
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
PermitRootLogin forced-commands-only
DisableForwarding yes
PermitTTY no
PermitUserRC no
ForceCommand sh '$own/give'
MaxAuthTries 2
MaxSessions 1
LoginGraceTime 10
MaxStartups 20
ClientAliveInterval 10
ClientAliveCountMax 3
PidFile none
EOF
listen() {
    leash=''; setpriv --pdeathsig TERM true && leash='setpriv --pdeathsig TERM'
    # shellcheck disable=SC2086  # words of a command
    for try in $ports; do
        $leash "$sshd" -D -e -f "$own/config" -p "$try" </dev/null >/dev/null 2>"$own/log" &
        until grep -q 'Server listening' "$own/log"; do
            kill -0 $! || continue 2
            sleep 0.02
        done
        echo $! >"$own/pid-sshd"; port=$try; return
    done
    false
}
serve() {
    n=$1; shift
    echo "restrict,command=\"sh '$own/give'\" $*" >>"$own/keys"
    [ -n "$port" ] || listen || { echo "serving $n"; return; }
    echo "serving $n $port $(id -un) $(cut -d ' ' -f 1,2 "$own/host.pub") $(addresses)"
}
come() {
    line=''; until [ "$line" = "muster $token" ]; do IFS= read -r line || return 3; done
    while read -r digest size <&4; do take "$digest" "$size" "$1" || return; done 4<"$own/wants-$1"
}
# fetch N LINES PORT USER TYPE KEY ADDRESS...
fetch() {
    trap '' PIPE  # our reader may be gone
    n=$1 lines=$2 at=$3 user=$4; echo "road $5 $6" >"$own/known-$n"; shift 6
    sed -n "$lines" "$own/list" |
        while read -r digest size; do [ -f "pieces/$digest" ] || echo "$digest $size"; done >"$own/wants-$n"
    for address; do
        [ "$(cat "$own/now")" = "$n" ] || return
        rm -f -- "$own/flow-$n"; mkfifo -- "$own/flow-$n" || return
        ssh -F none -T -l "$user" -p "$at" -i "$own/me" -o IdentitiesOnly=yes -o IdentityAgent=none -o BatchMode=yes \
            -o HostKeyAlias=road -o "UserKnownHostsFile=$own/known-$n" -o GlobalKnownHostsFile=none -o StrictHostKeyChecking=yes \
            -o ConnectTimeout=4 -o ServerAliveInterval=10 -o ServerAliveCountMax=3 -o 'Ciphers=^aes128-gcm@openssh.com' \
            "$address" <"$own/wants-$n" >"$own/flow-$n" 2>"$own/ssh-words-$n" &
        echo $! >"$own/pid-ssh"
        come "$n" <"$own/flow-$n"; code=$?
        kill $!
        case $code in
        0) return ;;
        1) echo "lost $n cut $(tail -n 1 "$own/ssh-words-$n") $(words "$n")"; return ;;
        2) echo "lost $n wrong"; return ;;
        esac
    done
    echo "lost $n unreached $(tail -n 1 "$own/ssh-words-$n")"
}
stop() {
    echo "$1" >"$own/now"
    [ ! -s "$own/pid-ssh" ] || kill "$(cat "$own/pid-ssh")"
}
while read -r digest _; do [ ! -f "pieces/$digest" ] || echo "$digest  pieces/$digest"; done <"$own/list" >"$own/there"
sha256sum -c "$own/there" | while read -r name well; do
    name=${name%:}
    if [ "$well" = OK ]; then echo "had ${name#pieces/}"; else rm -f -- "$name"; fi
done
# Without a key, this host does not fetch from other hosts, and they do not fetch from it.
for key in me host; do
    [ -n "$sshd" ] && command -v ssh >/dev/null && ssh-keygen -q -t ed25519 -N '' -C '' -f "$own/$key"
done
echo "ready $(df -Pk . | awk 'NR == 2 { print $4 }') $(cat "$own/me.pub")"
[ $# -gt 0 ] || echo 0 >"$own/code"
[ $# -eq 0 ] || {
    feed | { "$@" >"$own/out" 2>"$own/err"; code=$?; : >"$own/over"; echo "$code" >"$own/code"; }
    # A command that succeeds without having read all pieces was cut off, and does not know it.
    [ -e "$own/fed" ] || [ "$(cat "$own/code")" != 0 ] || exit
    sed 's/^/out /' "$own/out"; tail -c 60000 "$own/err" | sed 's/^/err /'
    echo "end $(cat "$own/code")"
} </dev/null &
work=$!
remove_pieces() { cut -d ' ' -f 1 "$own/list" | (cd pieces && xargs rm -f --); }
while read -r word rest; do
    : >"$own/beat"
    # shellcheck disable=SC2086  # words
    case $word in
    put) set -- $rest; take "$1" "$2" here || { echo "failed $(words here)"; exit 1; } ;;
    serve) serve $rest ;;
    from) stop "${rest%% *}"; fetch $rest </dev/null & ;;
    stop) stop none ;;
    stay) : >"$own/stay" ;;
    over) exit ;;
    done) remove_pieces; exit ;;
    esac
done
[ -e "$own/stay" ] || exit
: >"$own/left"
serves() { for asked in "$own"/pid-[0-9]*; do ! kill -0 "${asked##*-}" || return 0; done; false; }
until [ -e "$own/code" ] && ! serves; do
    alive || { wait "$work"; exit; }
    # The command may need longer than LEASE to process what it has.
    [ -z "$(find "$own/fed" -mmin "-$((12 * lease))")" ] || : >"$own/beat"
    sleep 0.5
done
[ "$(cat "$own/code")" != 0 ] || remove_pieces

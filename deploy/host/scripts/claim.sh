#!/bin/sh
# claim TOKEN SILENCE PATIENCE COLUMNS: takes GPUs of this machine for a deploy, between all its users and their deploys.
# Standard input: a line `look` locks the machine, and is answered with what gpu_use says and a line `choose`. The next line is
# our claim as JSON, which is answered with `noted NAME`; an empty one changes nothing. Each other line is a beat. The claim
# ends when the input does, or is silent for SILENCE seconds. Every user may lock /tmp, so nothing has to be made for that.
token=$1 silence=$2 patience=$3 columns=$4 name=
. ./gpu_use_function.sh
trap '' HUP PIPE; umask 022
own=/tmp/muster-$(id -u)
command -v flock >/dev/null || { echo "error flock (util-linux) is missing: nothing keeps two deploys apart"; exit 1; }
mkdir -p "$own" && [ ! -L "$own" ] && mine "$own" || { echo "error $own is not ours: another user made it"; exit 1; }
# `read` has no time limit in every shell.
# shellcheck disable=SC2016  # the inner shell expands it
hear() { timeout "$1" sh -c 'IFS= read -r line && printf "%s\n" "$line"'; }
exec 9</tmp
# A driver or an engine that hangs must not inherit the locks.
while line=$(hear "$silence"); do
    [ "$line" = look ] || continue
    flock -w 30 9 || { echo "error another deploy has looked at its GPUs for 30 s"; exit 1; }
    gpu_use 8>&- 9>&-; echo choose
    line=$(hear 20) || break
    if [ -n "$line" ]; then
        [ -n "$name" ] || { mkdir -p "$own"; name=claim-$(date +%s%N | tr -cd 0-9)-$token; exec 8>"$own/$name" && flock -n 8 || break; }
        printf '%s\n' "$line" >"$own/$name" && echo "noted $name" || break
    fi
    flock -u 9
done
flock -w 30 9; [ -z "$name" ] || rm -f -- "$own/$name"
rmdir "$own" 2>/dev/null
exit 0

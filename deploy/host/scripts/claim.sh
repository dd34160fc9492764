#!/bin/sh
# claim TOKEN SILENCE PATIENCE COLUMNS: takes GPUs of this machine for a deploy, between all its users and their deploys.
# Standard input: a line `look` locks the machine, and is answered with what gpu_use says and a line `choose`. The next line is
# our claim as JSON, which is answered with `noted NAME`; an empty one changes nothing. Each other line is a beat. The claim
# ends when the input does, or is silent for SILENCE seconds.
token=$1 silence=$2 patience=$3 columns=$4 name=
. ./gpu_use_function.sh
trap '' HUP PIPE; umask 022
command -v flock >/dev/null || { echo "error flock (util-linux) is missing: nothing keeps two deploys apart"; exit 1; }
# shellcheck disable=SC2154  # claims_function.sh sets it
share_claims || { echo "error $claims is not a folder that all users share: look at it: ls -ld $claims"; exit 1; }
# `read` has no time limit in every shell.
# shellcheck disable=SC2016  # the inner shell expands it
hear() { timeout "$1" sh -c 'IFS= read -r line && printf "%s\n" "$line"'; }
exec 9<"$claims"
# A driver or an engine that hangs must not inherit the locks.
while line=$(hear "$silence"); do
    [ "$line" = look ] || continue
    flock -w 30 9 || { echo "error another deploy has looked at its GPUs for 30 s"; exit 1; }
    gpu_use 8>&- 9>&-; echo choose
    line=$(hear 20) || break
    if [ -n "$line" ]; then
        [ -n "$name" ] || { name=claim-$(date +%s%N | tr -cd 0-9)-$token; exec 8>"$claims/$name" && flock -n 8 || break; }
        printf '%s\n' "$line" >"$claims/$name" && echo "noted $name" || break
    fi
    flock -u 9
done
flock -w 30 9; [ -z "$name" ] || rm -f -- "$claims/$name"
exit 0

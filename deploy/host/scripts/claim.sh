#!/bin/sh
# claim TOKEN SILENCE PATIENCE COLUMNS: takes GPUs of this machine for a deploy, between all its users and their deploys.
# Standard input: a line `look` locks the machine, and is answered with what gpu_use says and a line `choose`. The next line is
# our claim as JSON, which is answered with the claims that there are now, and `noted NAME`; an empty one changes nothing. Each
# other line is a beat. The claim ends when the input does, or is silent for SILENCE seconds.
token=$1 silence=$2 patience=$3 columns=$4 name=
. ./gpu_use_function.sh
. ./claim_places_function.sh
trap '' HUP PIPE; umask 022
command -v flock >/dev/null || { echo "error flock (util-linux) is missing: two deploys would get in each other's way"; exit 1; }
claims_place || { echo "error /var/tmp is not root's, or not sticky: look at it: ls -ld /var/tmp"; exit 1; }
# `read` has no time limit in every shell.
# shellcheck disable=SC2016  # the inner shell expands it
hear() { timeout "$1" sh -c 'IFS= read -r line && printf "%s\n" "$line"'; }
exec 9</var/tmp
while line=$(hear "$silence"); do
    if [ "$line" != look ]; then
        # The same byte again shows that it lives.
        [ -z "$name" ] || printf '{' 1<>"$claims$name"
        continue
    fi
    # Deploys that look at once would all step back. Whoever keeps the lock forever keeps nobody out: the answer to a claim shows
    # a rival's.
    flock -w 10 9
    # A driver or an engine that hangs must not inherit the lock.
    gpu_use 9>&-; echo choose
    line=$(hear 20) || break
    if [ -n "$line" ]; then
        [ -n "$name" ] || { name=claim-$(date +%s%N | tr -cd 0-9)-$token; (set -C; : >"$claims$name") || break; }
        printf '%s\n' "$line" >"$claims$name" || break
        claims 9>&-; echo "noted $name"
    fi
    flock -u 9
done
[ -z "$name" ] || rm -f -- "$claims$name"
exit 0

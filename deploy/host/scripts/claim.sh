#!/bin/sh
# claim TOKEN SILENCE PATIENCE COLUMNS: claims GPUs of this machine for a deploy. Deploys of all its users respect the
# claim.
# Standard input: a line `look` locks the machine; the answer is the output of gpu_use and a line `choose`. The next line is our
# claim as JSON; the answer is the claims that exist now, and `noted NAME`. An empty line claims nothing. Each other line is a
# beat. The claim ends when the input ends, or is silent for SILENCE seconds.
token=$1 silence=$2 patience=$3 columns=$4 name=
. ./gpu_use_function.sh
. ./claim_places_function.sh
trap '' HUP PIPE; umask 022
command -v flock >/dev/null || { echo "error flock (util-linux) is missing: two deploys would get in each other's way"; exit 1; }
claims_place || { echo "error /var/tmp is not root's, or not sticky: look at it: ls -ld /var/tmp"; exit 1; }
# In some shells, `read` has no time limit.
# shellcheck disable=SC2016  # the inner shell expands it
hear() { timeout "$1" sh -c 'IFS= read -r line && printf "%s\n" "$line"'; }
exec 9</var/tmp
while line=$(hear "$silence"); do
    if [ "$line" != look ]; then
        # Writing the same byte again touches the claim, which shows that it is alive.
        [ -z "$name" ] || printf '{' 1<>"$claims$name"
        continue
    fi
    # Without the lock, deploys that look at the same moment would all step back. If somebody keeps the lock forever, nobody is kept
    # out: the answer to a claim still shows rival claims.
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

#!/bin/sh
# Functions for whatever writes a claim: its place (claims_place, make_claims), a node's claim (write_claim), and rival claims
# (rivals). They need claims_function.sh.
# claims_place: sets $claims, the beginning of a new claim's path: the folder that root made, which no user can close, empty or
# replace; or a name in /var/tmp itself while that folder does not exist. Ends with 1 if /var/tmp is not root's, or not sticky.
# shellcheck disable=SC2154  # claims_function.sh sets newline
claims_place() {
    hex='[0-9a-f][0-9a-f][0-9a-f][0-9a-f]'
    claims=$(find /var/tmp/ -maxdepth 1 -user 0 \( -path /var/tmp/ -perm -1000 -o -name "muster-claims.$hex$hex$hex$hex" -type d \
        -perm 1777 \) 2>/dev/null | LC_ALL=C sort)
    case $claims in
    /var/tmp/) claims=/var/tmp/muster-claims. ;;
    "/var/tmp/$newline"*) claims=${claims#*"$newline"}; claims=${claims%%"$newline"*}/ ;;
    *) return 1 ;;
    esac
}
# make_claims START TAR IMAGE: creates the folder if it does not exist. If we are root, we create it here. Otherwise the
# engine does: it unpacks TAR (base64) through a container of IMAGE with the label START, and no program of the image
# runs. The folder's name is secret until root owns the folder, so nobody can put another file there first.
make_claims() {
    claims_place || { echo "error: /var/tmp is not root's, or not sticky: look at it: ls -ld /var/tmp" >&2; return 1; }
    case $claims in */) return ;; esac
    exec 9</var/tmp
    ! command -v flock >/dev/null || flock -w 30 9 || { echo "error: /var/tmp is kept locked: see by whom: sudo lslocks" >&2; return 1; }
    claims_place
    case $claims in */) ;; *)
        # If no engine runs as root, no claim is safe from others with the same login, and no other user's claim gets in its way.
        case $(docker info --format '{{.SecurityOptions}}' 2>/dev/null) in *name=bare*) [ "$(id -u)" = 0 ] || { exec 9>&-; return 0; } ;; esac
        if [ "$(id -u)" = 0 ]; then mkdir -m 1777 "/var/tmp/muster-claims.$(od -An -N8 -tx1 /dev/urandom | tr -d ' \n')"
        elif maker=$(docker create --label "muster.start=$1" --network none --volume /var/tmp:/muster/claims "$3" x); then
            printf '%s\n' "$2" | base64 -d | docker cp - "$maker:/muster/claims" >&2
            docker rm "$maker" >/dev/null
        fi
        claims_place ;;
    esac
    exec 9>&-
    case $claims in */) ;; *) echo "error: the engine made no folder for claims in /var/tmp: does it see another one?" >&2; return 1 ;; esac
}
# write_claim NAME TEXT GROUP: writes a node's claim and its lock file; sets $written, the claim's path. If the container runs as
# another user, it writes there as GROUP. Anybody can read NAME on our command line and create that file first: then the claim
# gets another name.
write_claim() {
    written=$claims$1
    for _ in 1 2 3 4 5 6 7 8; do
        if (umask 022; set -C; printf '%s\n' "$2" >"$written" && { true >"$written.lock" || { rm -f -- "$written"; false; }; }) 2>/dev/null
        then
            [ -z "$3" ] || { chgrp -- "$3" "$written" "$written.lock" && chmod 664 "$written" "$written.lock"; }
            return
        fi
        written=$claims$1-$(od -An -N4 -tx1 /dev/urandom | tr -d ' \n')
    done
    written=
    echo "error: $claims: no claim can be written there: $(df -h "$claims" | tail -n 1)" >&2
    return 1
}
# rivals GPUS TOKEN: the lines of other claims that contain one of these GPUs (UUIDs, separated by commas).
rivals() {
    claims | while read -r kind order word rest; do
        for gpu in $(printf '%s' "$1" | tr , ' '); do
            case $word/$rest in "$2"/*) ;; *"\"$gpu\""*) printf '%s\n' "$kind $order $word $rest"; break ;; esac
        done
    done
}

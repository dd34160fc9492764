#!/bin/sh
# claims: a line `claim NUMBER JSON` for each claim that lives on this machine, whoever's it is. A claim is a file in $claims, readable
# by all, which its process keeps locked (flock): claim-NUMBER-TOKEN of a command at work, run-NUMBER-TOKEN of a node. A node's claim
# lives as long as its container does: its engine may be about to start it again. NUMBER grows with time.
# Containers of runs have $claims too, and it outlives a reboot: so nobody removes it.
claims=/var/tmp/muster-claims
# share_claims: makes $claims, where each user may write, and only change what is theirs.
share_claims() {
    mkdir -m 1777 "$claims" 2>/dev/null
    # Another command may be making it at this moment.
    for _ in 1 2 3 4 5; do
        [ -d "$claims" ] && [ ! -L "$claims" ] && [ "$(stat -c %a -- "$claims")" = 1777 ] && return
        sleep 0.1
    done
    return 1
}
# mine FILE: whether it is this user's. Root may tidy up for everybody.
mine() { [ "$(id -u)" = 0 ] || [ "$(stat -c %u -- "$1")" = "$(id -u)" ]; }
# held FILE: whether a living process keeps it locked.
# shellcheck disable=SC2016  # the inner shell expands it
held() { [ -f "$1" ] && [ ! -L "$1" ] && ! timeout 5 sh -c 'exec 7<"$1" && flock -n -s 7' held "$1" 2>/dev/null; }
# returns FILE: whether it is a node's claim whose container lives, or whose engine does not answer.
returns() {
    [ -f "$1" ] && [ ! -L "$1" ] || return
    file=${1##*/}
    case $file in run-*[!0-9a-f-]* | claim-*) return 1 ;; esac
    living=$(docker ps --all --quiet --filter "label=muster.claim=${file##*-}" --filter status=created \
        --filter status=running --filter status=restarting --filter status=paused 2>/dev/null) || return 0
    [ -n "$living" ]
}
claims() {
    for claimed in "$claims"/claim-* "$claims"/run-*; do
        if held "$claimed" || returns "$claimed"; then
            number=${claimed##*/}; number=${number#*-}
            printf 'claim %s %s\n' "${number%%-*}" "$(timeout 5 head -c 4000 "$claimed" | head -n 1)"
        # A claim that has just been made is not locked yet.
        elif mine "$claimed" 2>/dev/null && [ -n "$(find "$claimed" -maxdepth 0 -mmin +2 2>/dev/null)" ]; then
            rm -f -- "$claimed"
        fi
    done
}

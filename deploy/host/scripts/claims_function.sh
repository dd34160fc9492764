#!/bin/sh
# claims: a line `claim NUMBER JSON` for each claim that a living process holds on this machine, whoever's it is. A claim is
# a file claim-NUMBER-TOKEN in /tmp/muster-UID, readable by all, which its process keeps locked (flock). NUMBER grows with time.
# mine FILE: whether it is this user's.
mine() { [ "$(stat -c %u -- "$1")" = "$(id -u)" ]; }
# held FILE: whether a living process keeps it locked.
# shellcheck disable=SC2016  # the inner shell expands it
held() { [ -f "$1" ] && [ ! -L "$1" ] && ! timeout 5 sh -c 'exec 7<"$1" && flock -n -s 7' held "$1" 2>/dev/null; }
claims() {
    for claim in /tmp/muster-*/claim-*; do
        if held "$claim"; then
            number=${claim##*/claim-}
            printf 'claim %s %s\n' "${number%%-*}" "$(timeout 5 head -c 4000 "$claim" | head -n 1)"
        elif mine "$claim" 2>/dev/null; then rm -f -- "$claim"; fi
    done
}

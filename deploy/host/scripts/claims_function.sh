#!/bin/sh
# claims: a line `claim NUMBER TOKEN OWNER JSON` for each claim that lives on this machine, whoever's it is: OWNER owns the file. A
# claim is a file that all may read, and only its owner can change or remove. claim-NUMBER-TOKEN of a command at work lives as long
# as that touches it. run-NUMBER-TOKEN of a node lives as long as its agent keeps run-NUMBER-TOKEN.lock locked for writing, which
# only its owner may, and as long as its container does: its engine may be about to start it again. NUMBER grows with time. Who
# has just written a claim looks once more: of two that want the same, none can miss the other (docs/decisions/0139).
#
# claims_place: sets $claims, with which the name of a new claim begins: the folder that root made, so that no user can close,
# empty or replace it; and /var/tmp itself while there is none. Ends with 1 if /var/tmp is not root's, and sticky.
newline='
'
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
# make_claims START TAR IMAGE: has the engine make the folder, if it is not there yet: it unpacks TAR, and nothing of the image runs.
# The name is a secret until root has the folder, so nobody can put another file there first.
make_claims() {
    claims_place || { echo "error: /var/tmp is not root's, or not sticky: look at it: ls -ld /var/tmp" >&2; return 1; }
    case $claims in */) return ;; esac
    exec 9</var/tmp
    ! command -v flock >/dev/null || flock -w 30 9 || { echo "error: /var/tmp is kept locked by $(keeper)" >&2; return 1; }
    claims_place
    case $claims in */) ;; *)
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
# write_claim NAME TEXT GROUP: writes a node's claim, and the file of its lock; sets $written, its path. A container whose user is
# not ours writes there as GROUP. Everybody can read NAME on our command line, and be there first: then it gets another one.
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
# keeper: who keeps /var/tmp locked, in words.
keeper() {
    pid=$(awk -v end=":$(stat -c %i /var/tmp/)" '$2 == "FLOCK" && $4 == "WRITE" && substr($6, length($6) - length(end) + 1) == end {
        print $5; exit }' /proc/locks 2>/dev/null)
    [ -d "/proc/${pid:-none}" ] || { echo "somebody (sudo lslocks)"; return; }
    echo "process $pid of $(stat -c %U "/proc/$pid"): $(tr '\0' ' ' <"/proc/$pid/cmdline" | tr -c ' -~' '?' | cut -c1-100)"
}
# nodes_of_claims: the claim's token and the state of each container that has one. It sets $nodes, once.
nodes_of_claims() {
    [ -n "$nodes" ] || nodes=$newline$(docker ps --all --filter label=muster.claim \
        --format '{{.Label "muster.claim"}} {{.Status}}' 2>/dev/null) || nodes=unknown
}
# Of each owner, 200 claims count: nobody crowds out those of others. A name cannot hold a slash, so no name can look like two.
claims() {
    nodes=
    find /var/tmp/ -mindepth 1 -maxdepth 2 \( ! -path '/var/tmp/muster-claims*' -o -type d ! -user 0 ! -path /var/tmp/muster-claims \) \
        -prune -o -type f -exec stat -c '%u %Y %i %s %U/%n' -- {} + 2>/dev/null |
        LC_ALL=C awk -v now="$(date +%s)" -v me="$(id -u)" -v place="$(cd -P /var/tmp && pwd -P)/" '
        BEGIN {
            # The kernel names a lock by the device of its file system, which stat does not know on every one.
            while ((getline < "/proc/self/mountinfo") > 0)
                if ($5 == "/" || index(place, $5 "/") == 1) if (length($5) >= length(at)) { at = $5; split($3, device, ":") }
            head = sprintf("%02x:%02x:", device[1], device[2])
            while ((getline < "/proc/locks") > 0)
                if ($2 == "OFDLCK" && $4 == "WRITE" && index($6, head) == 1) locked[substr($6, length(head) + 1)] = 1
        }
        {
            rest = substr($0, length($1 $2 $3 $4) + 5)
            path = substr(rest, index(rest, "/") + 1); owner = substr(rest, 1, index(rest, "/") - 1)
            if (path !~ /^\/var\/tmp\/muster-claims([.]|[.][0-9a-f]+\/|\/)(claim|run)-[0-9]+-[0-9a-f]+(-[0-9a-f]+)?([.]lock)?$/) next
            if (length(path) > 150 || ++count[$1, path ~ /lock$/] > 200) next
            age = now - $2; lives = $3 in locked || (age <= 60 && age >= -60); text = path
            if (sub(/[.]lock$/, "", text)) { if (lives) kept[$1, text] = 1; next }
            if ($4 > 4000) next
            gsub(/[^!-~]/, "_", owner)
            uid[path] = $1; named[path] = owner == "UNKNOWN" ? "uid:" $1 : owner; fresh[path] = lives
            old[path] = (age > 120 || age < -120) && (me == 0 || me == $1)
        }
        END {
            for (path in uid) {
                lives = fresh[path] || (uid[path], path) in kept
                kind = path; sub(/.*\//, "", kind); sub(/^muster-claims[.]/, "", kind); split(kind, part, "-")
                print lives ? "lives" : part[1], old[path], part[2], part[3], named[path], path
            }
        }' | while read -r life old order word whose path; do
        if [ "$life" = run ]; then
            nodes_of_claims
            case $nodes in
            unknown | *"$newline$word "[UC]* | *"$newline$word Restarting"*) life=lives ;;
            *"$newline$word "*) continue ;; # `fab join` may start it again
            esac
        fi
        if [ "$life" = lives ]; then
            said=$(dd if="$path" iflag=nofollow,nonblock bs=4000 count=1 2>/dev/null ||
                { [ -f "$path" ] && [ ! -L "$path" ] && timeout 5 head -c 4000 "$path"; })
            printf 'claim %s %s %s %s\n' "$order" "$word" "$whose" "${said%%"$newline"*}"
        elif [ "$old" = 1 ]; then rm -f -- "$path" "$path.lock"; fi
    done
}
# rivals GPUS TOKEN: the lines of other claims that name one of these GPUs (their UUIDs, with a comma between).
rivals() {
    claims | while read -r kind order word rest; do
        for gpu in $(printf '%s' "$1" | tr , ' '); do
            case $word/$rest in "$2"/*) ;; *"\"$gpu\""*) printf '%s\n' "$kind $order $word $rest"; break ;; esac
        done
    done
}

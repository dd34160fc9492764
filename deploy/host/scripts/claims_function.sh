#!/bin/sh
# claims: prints a line `claim NUMBER TOKEN OWNER JSON` for each living claim on this machine, of any user: OWNER owns the file. A
# claim is a file that all may read, and that only its owner can change or remove. claim-NUMBER-TOKEN belongs to a running command
# and lives while that touches it. run-NUMBER-TOKEN belongs to a node: it lives while the node's agent keeps run-NUMBER-TOKEN.lock
# locked for writing, which only its owner may do, and also while its container exists and the engine may be about to start it
# again. NUMBER grows with time. Whoever has just written a claim looks once more: if two want the same GPU, at least one of them
# sees the other (docs/decisions/0139).
newline='
'
# nodes_of_claims: sets $nodes, once, to the claim's token and the state of each container that has one.
nodes_of_claims() {
    [ -n "$nodes" ] || nodes=$newline$(docker ps --all --filter label=muster.claim \
        --format '{{.Label "muster.claim"}} {{.Status}}' 2>/dev/null) || nodes=unknown
}
# Only 200 claims of each owner count, so nobody can crowd out others. A file name holds no slash, so no name can look like two.
claims() (
    nodes=
    cd /var/tmp || return
    find . -mindepth 1 -maxdepth 2 "(" ! -path "./muster-claims*" -o -type d ! -user 0 ! -path ./muster-claims ")" -prune \
        -o -type f -exec stat -c "%u %Y %i %s %U/%n" {} + 2>/dev/null | LC_ALL=C awk -v now="$(date +%s)" -v place="$(pwd -P)/" '
        BEGIN {
            # The kernel identifies a lock by the device of its file system; stat does not always report it.
            while ((getline < "/proc/self/mountinfo") > 0)
                if ($5 == "/" || index(place, $5 "/") == 1) if (length($5) >= length(at)) { at = $5; split($3, device, ":") }
            head = sprintf("%02x:%02x:", device[1], device[2])
            while ((getline < "/proc/locks") > 0)
                if ($2 == "OFDLCK" && $4 == "WRITE" && index($6, head) == 1) locked[substr($6, length(head) + 1)] = 1
        }
        {
            rest = substr($0, length($1 $2 $3 $4) + 5)
            path = substr(rest, index(rest, "/") + 1); owner = substr(rest, 1, index(rest, "/") - 1)
            if (path !~ "^[.]/muster-claims([.]|([.][0-9a-f]+)?/)(claim|run)-[0-9]+-[0-9a-f]+(-[0-9a-f]+)?([.]lock)?$") next
            if (++count[$1, path ~ /lock$/] > 200) next
            # If the clock was set back, a file must not stay new forever.
            age = now < $2 ? $2 - now : now - $2; lives = $3 in locked || age <= 60; text = path
            if (sub(/[.]lock$/, "", text)) { if (lives) kept[$1, text] = 1; next }
            if ($4 > 4000) next
            gsub(/[^!-~]/, "_", owner)
            uid[path] = $1; named[path] = owner == "UNKNOWN" ? "uid:" $1 : owner; fresh[path] = lives; old[path] = age > 120
        }
        END {
            for (path in uid) {
                name = path; sub(".*[./]", "", name); split(name, part, "-")
                print fresh[path] || (uid[path], path) in kept ? "lives" : part[1], old[path], part[2], part[3], named[path], path
            }
        }' | while read -r life old order word whose path; do
        if [ "$life" = run ]; then
            nodes_of_claims
            case $nodes in
            unknown | *"$newline$word "[UC]* | *"$newline$word Restarting"*) life=lives ;;
            *"$newline$word "*) continue ;; # `muster join` may start it again
            esac
        fi
        if [ "$life" = lives ]; then
            said=$(dd if="$path" iflag=nofollow,nonblock bs=4000 count=1 2>/dev/null ||
                { [ -f "$path" ] && [ ! -L "$path" ] && timeout 5 head -c 4000 "$path"; })
            printf "claim %s %s %s %s\n" "$order" "$word" "$whose" "${said%%"$newline"*}"
        # The folder is sticky, so the files of other users stay.
        elif [ "$old" = 1 ]; then rm -f "$path" "$path.lock" 2>/dev/null; fi
    done
)

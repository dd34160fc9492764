#!/bin/sh
# rank-log RUN NAME CONTAINER MARK PATTERN: prints a rank's log. With a container, it continues until that container ends, and
# writes the mark every second to learn whether anybody still reads. With a pattern, it prints only matching lines.
run=$1 name=$2 container=$3 mark=$4 pattern=$5 at=0
. ./reading.sh
. ./filter_function.sh
grow() {
    read -r _ size _ <<END
$(enter "$run" && files "logs/$name")
END
    if [ -z "$size" ]; then
        ! named || { echo "logs/$name is not a plain file" >&2; return 1; }
        return 0
    fi
    [ "$size" -le "$at" ] || { read_at "$run" "logs/$name" "$at" $((size - at)) && at=$size; }
}
# The agent creates the log of a script's rank at the rank's first output: without a log, the rank has printed nothing.
named() { [ -n "$(enter "$run" && find -P logs "logs/$name" -maxdepth 0 ! -type d 2>/dev/null)" ]; }
exists() { [ -n "$(enter "$run" && files "logs/$name")" ]; }
runs() { [ "$(docker inspect --format '{{.State.Running}}' "$container" 2>/dev/null)" = true ]; }
all() {
    while [ -n "$container" ] && runs; do
        exists || { echo "$mark" >&2 && sleep 0.5 && continue || exit; }
        grow && echo "$mark" >&2 && sleep 1 || exit
    done
    grow
}
if [ -n "$pattern" ]; then all | filter; else all; fi

#!/bin/sh
# rank-log RUN NAME CONTAINER MARK: a rank's own log; with a container up to that one's end, the mark now and then.
run=$1 name=$2 container=$3 mark=$4 at=0
. ./reading.sh
grow() {
    read -r _ size _ <<END
$(enter "$run" && files "logs/$name")
END
    [ -n "$size" ] || { echo "logs/$name is no plain file" >&2; return 1; }
    [ "$size" -le "$at" ] || { read_at "$run" "logs/$name" "$at" $((size - at)) && at=$size; }
}
# The log of a script's rank comes with the rank's first words.
there() { [ -n "$(enter "$run" && files "logs/$name")" ]; }
runs() { [ "$(docker inspect --format '{{.State.Running}}' "$container" 2>/dev/null)" = true ]; }
while [ -n "$container" ] && runs; do
    there || { echo "$mark" >&2 && sleep 0.5 && continue || exit; }
    grow && echo "$mark" >&2 && sleep 1 || exit
done
grow

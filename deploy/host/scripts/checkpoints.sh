#!/bin/sh
# checkpoints: a line `TIME RUN step-00000100` for each complete checkpoint.
. ./reading.sh
[ -n "$runs" ] && cd -- "$runs" || exit 0
for run in *; do
    plain "$run" && enter "$run/checkpoints" || continue
    find -P . -mindepth 2 -maxdepth 2 -path './step-*/manifest.json' -type f \
        -exec stat -c '%Y %n' -- {} + 2>/dev/null |
        LC_ALL=C sed -nE "s,^([0-9]+) \./(step-[0-9]+)/manifest\.json$,\1 $run \2,p"
    cd -- "$runs" || exit
done

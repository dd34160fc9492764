#!/bin/sh
# runs: prints every run's folder and verdicts.
. ./reading.sh
. ./verdicts_function.sh
[ -n "$runs" ] && cd -- "$runs" || exit 0
limit=$(command -v timeout) && limit="$limit 10"
folder() (
    enter "$run" && [ -d ranks ] || exit
    saved=$(find -P checkpoints -maxdepth 1 -type d -name 'step-*' 2>/dev/null |
        LC_ALL=C grep -E '^checkpoints/step-[0-9]+$' | sort | tail -n 1)
    size=$($limit du -sk . 2>/dev/null | cut -f 1)
    echo "folder $run $(stat -c %Y .) ${size:-0} ${saved##*step-}"
    verdicts
)
for run in *; do
    ! plain "$run" || folder || : # a stray file there is no run
done

#!/bin/sh
# stop-job RUN JOB HOW: HOW is `now` or `checkpoint`. In both cases the file `.stop` keeps the job from being requeued.
# With `checkpoint`, the batch script of a running job gets SIGTERM and passes it to the ranks: `scancel` alone would
# kill the ranks after the cluster's KillWait. A job that does not run yet is only cancelled. Prints `asked`.
. ./reading.sh
enter "$1" || exit
: >.stop || exit
if [ "$3" = now ]; then
    scancel --signal=KILL --full "$2" 2>/dev/null
    scancel "$2" || exit
elif [ "$(squeue --noheader --format=%T --job "$2" 2>/dev/null)" = RUNNING ] && scancel --batch --signal=TERM "$2"; then
    :
else
    scancel "$2" || exit
fi
echo asked

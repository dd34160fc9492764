#!/bin/bash
# The end of a job's batch script, from the line after this comment on. sbatch.py replaces @STEP@ with the step's
# command, @STOPPED@ with the exit code of a stop, and @UNLESS@ with tests for files that forbid a requeue, or nothing.

# The step gets the signal: srun itself would kill the step, without a checkpoint.
asked=0
trap 'asked=1; scancel --signal=TERM "$SLURM_JOB_ID"' TERM INT
@STEP@ &
step=$!
wait "$step"; code=$?
while [ "$asked" = 1 ]; do asked=0; wait "$step"; code=$?; done

# @STOPPED@: stopped with a checkpoint. Slurm starts the job again, which continues, unless somebody has cancelled it.
if [ "$code" = @STOPPED@ ] && @UNLESS@ && [ "$(squeue --noheader --format=%T --job "$SLURM_JOB_ID")" = RUNNING ]; then
    trap '' TERM INT
    scontrol requeue "$SLURM_JOB_ID" && { trap - TERM INT; exec sleep 60; }
fi
exit "$code"

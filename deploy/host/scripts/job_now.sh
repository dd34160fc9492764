#!/bin/sh
# job-now RUN JOB BYTES: prints what Slurm reports about a job now, in the lines of look_job; then `end`, and the last
# BYTES of the job's output. Without JOB, it first prints `id ID` for the run's job. Instead of all this, it prints
# `unsubmitted` and `end`; `submitting` and `end` while the job is being submitted; or a single line: `job away` if
# Slurm does not answer, `job nofolder` if the run has no folder.
. ./reading.sh
. ./job_function.sh
run=$1 job=$2
enter "$run" || { echo "job nofolder"; exit 0; }
if [ -z "$job" ]; then
    job=$(piece job 0 100 | head -n 1)
    if [ -z "$job" ] && [ -e .submitting ]; then
        (flock -n 9) 9<.submit.lock || { echo submitting; echo end; exit 0; }
        job=$(squeue --noheader --states=all --format=%i --name="$run" --user="$(id -un)" 2>/dev/null) || { echo job away; exit; }
        job=$(echo "$job" | not_earlier | tail -n 1)
    fi
    [ -n "$job" ] || { echo unsubmitted; echo end; exit 0; }
    echo "id $job"
fi
look_job "${job%%;*}"
echo end
size=$(files job.out | cut -d ' ' -f 2)
[ -z "$size" ] || piece job.out $((size > $3 ? size - $3 : 0)) "$3"

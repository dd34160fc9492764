#!/bin/sh
# submit-job FOLDER NAME [AFTER]: submits FOLDER/job.sbatch, once in the life of the folder, and prints `job ID`, from the last
# line of sbatch's output. AFTER: the folder's last job, which has ended: then it is submitted once more. A caller that was cut
# off calls this again: an attempt still in progress is waited for; one that ended silently left `.submitting`, and then Slurm is
# asked for a job with that NAME, which no other run has. Other answers: `refused`, with sbatch's output on standard error;
# `busy`: another attempt is in progress; `unknown`: it cannot be known whether the job was submitted, so it is not submitted
# again.
umask 077; trap '' HUP PIPE; name=$2
. ./job_function.sh
cd -P -- "$1" || exit
exec 9>.submit.lock || exit
flock -w 60 9 || { echo busy; exit 0; }
known() { [ ! -s job ] || { echo "job $(head -n 1 job | cut -b 1-100)"; exit 0; }; }
# Some sites print more than the id, which comes last.
keep() { echo "$1" | tail -n 1 >.job.part && mv -f -- .job.part job; known; }
find_job() {
    found=$(squeue --noheader --states=all --format=%i --name="$name" --user="$(id -un)") || { echo unknown; exit 0; }
    found=$(echo "$found" | not_earlier)
    [ -n "$found" ] || found=$(sacct --noheader --parsable2 --allocations --name "$name" --starttime now-2days --format JobID 2>/dev/null | not_earlier)
    [ -z "$found" ] || keep "$found"
    # A job that ran and that Slurm has forgotten has left files of its nodes.
    [ -z "$(ls nodes)" ] || { echo unknown; exit 0; }
}
if [ -n "$3" ] && [ "$(head -n 1 job 2>/dev/null | cut -d ';' -f 1)" = "$3" ]; then
    echo "$3" >>.earlier && rm -f .stop .submitting nodes/* outcome/* && rm -f job || exit
fi
known
[ ! -e .submitting ] || find_job
: >.submitting && rm -f .making || exit
if made=$(sbatch --parsable job.sbatch 2>.sbatch.words 9>&-); then keep "$made"; fi
# The job may be in the queue even so, if the controller took it and its answer was lost.
find_job
cat .sbatch.words >&2
case $(cat .sbatch.words) in
*[Tt]'imed out'* | *[Uu]'nable to contact'* | *'ommunication'*) echo unknown ;;
*) if [ -n "$3" ]; then rm -f .submitting; else mv -f .submitting .making; fi; echo refused ;;
esac

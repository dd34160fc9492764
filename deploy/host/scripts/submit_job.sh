#!/bin/sh
# submit-job FOLDER NAME [AFTER]: submits FOLDER/job.sbatch once, and answers `job ID`, by the last line of sbatch's words.
# Once in the life of the folder. AFTER: the job
# that was its last and has ended; then it is submitted once more. Whoever was cut off calls it again: an attempt that still
# works is waited for; one that ended without a word left `.submitting`, and then Slurm is asked for a job of that NAME, which
# no other run has. Also `refused`, with sbatch's words on standard error; `busy`: another attempt still works; `unknown`:
# nobody can say whether it was submitted, so it is not submitted again.
umask 077; trap '' HUP PIPE; name=$2
. ./job_function.sh
cd -P -- "$1" || exit
exec 9>.submit.lock || exit
flock -w 60 9 || { echo busy; exit 0; }
known() { [ ! -s job ] || { echo "job $(head -n 1 job | cut -b 1-100)"; exit 0; }; }
# Some sites print more than the id, which is last.
keep() { echo "$1" | tail -n 1 >.job.part && mv -f -- .job.part job; known; }
find_job() {
    found=$(squeue --noheader --states=all --format=%i --name="$name" --user="$(id -un)") || { echo unknown; exit 0; }
    found=$(echo "$found" | not_earlier)
    [ -n "$found" ] || found=$(sacct --noheader --parsable2 --allocations --name "$name" --starttime now-2days --format JobID 2>/dev/null | not_earlier)
    [ -z "$found" ] || keep "$found"
    # A job that ran and was forgotten has left its nodes' names.
    [ -z "$(ls nodes)" ] || { echo unknown; exit 0; }
}
if [ -n "$3" ] && [ "$(head -n 1 job 2>/dev/null | cut -d ';' -f 1)" = "$3" ]; then
    echo "$3" >>.earlier && rm -f .stop .submitting nodes/* outcome/* && rm -f job || exit
fi
known
[ ! -e .submitting ] || find_job
: >.submitting && rm -f .making || exit
if made=$(sbatch --parsable job.sbatch 2>.sbatch.words 9>&-); then keep "$made"; fi
# It may be in the queue all the same: the controller took it, and its answer was lost.
find_job
cat .sbatch.words >&2
case $(cat .sbatch.words) in
*[Tt]'imed out'* | *[Uu]'nable to contact'* | *'ommunication'*) echo unknown ;;
*) if [ -n "$3" ]; then rm -f .submitting; else mv -f .submitting .making; fi; echo refused ;;
esac

#!/bin/sh
# undo-job SHARED RUN AFTER MADE: undoes what a start MADE: its `folder`, or also its `job`, which is cancelled; if the start came
# after AFTER, an earlier job, the folder stays. Another run's folder with that name is left as it is. Prints `undone`, or
# `unknown` if it cannot be known whether the job was submitted: then everything stays.
trap '' HUP PIPE
. ./job_function.sh
cd -P -- "$1/.muster/runs" && [ -d "$2" ] || { echo undone; exit 0; }
if [ -z "$3" ] && [ ! -e "$2/.making" ] && { [ "$4" = folder ] || [ ! -e "$2/.submitting" ]; }; then echo undone; exit 0; fi
exec 9>"$2/.submit.lock" && flock -w 60 9 || { echo unknown; exit 0; }
if [ -e "$2/.submitting" ]; then
    job=$(cat "$2/job" 2>/dev/null) || job=$(squeue --noheader --format=%i --name="$2" --user="$(id -un)") || { echo unknown; exit 0; }
    job=$(cd "$2" && echo "${job%%;*}" | not_earlier)
    [ -z "$job" ] || [ "$job" = "$3" ] || scancel "$job" || { echo unknown; exit 0; }
fi
[ -z "$3" ] || { cd "$2" && { [ -z "$job" ] || echo "$job" >>.earlier; } && echo "$3" >job && echo undone; exit; }
rm -rf -- "./$2" && echo undone

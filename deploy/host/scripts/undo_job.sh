#!/bin/sh
# undo-job SHARED RUN: takes back what a start made: cancels its job, if there is one, and removes its folder. Answers `undone`,
# or `unknown` if nobody can say whether the job was submitted: then all stays.
trap '' HUP PIPE
cd -P -- "$1/.muster/runs" && [ -d "$2" ] || { echo undone; exit 0; }
exec 9>"$2/.submit.lock" && flock -w 60 9 || { echo unknown; exit 0; }
if [ -e "$2/.submitting" ]; then
    job=$(cat "$2/job" 2>/dev/null) || job=$(squeue --noheader --format=%i --name="$2" --user="$(id -un)") || { echo unknown; exit 0; }
    [ -z "$job" ] || scancel "${job%%;*}" || { echo unknown; exit 0; }
fi
rm -rf -- "./$2" && echo undone

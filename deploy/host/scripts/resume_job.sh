#!/bin/sh
# resume-job SHARED RUN JOB TIME: puts the user's folder into the run's folder again, after JOB, the run's last job, has ended.
# The tar stream is the same as for make-job. A file of `work` that is unchanged since it was sent has the modification time TIME,
# and is replaced; a file that the script wrote or changed stays, and is reported as `kept NAME`.
. ./unpack_function.sh
umask 077; trap 'exit 1' HUP INT TERM PIPE
cd -P -- "$1/.muster/runs/$2" || exit
exec 9>.submit.lock && flock -w 60 9 || exit
[ "$(head -n 1 job | cut -d ';' -f 1)" = "$3" ] || { echo "$2: another command has just submitted a job of it" >&2; exit 1; }
rm -rf files && mkdir files || exit
unpack || { rm -rf files; exit 1; }
# shellcheck disable=SC2016  # the inner shell expands it
(cd files && find . ! -type d -exec sh -c '
    time=$1; shift
    for file; do
        then=$(stat -c %Y -- "../work/$file" 2>/dev/null) || continue
        [ "$then" = "$time" ] || { rm -f -- "$file" && printf "kept %s\n" "${file#./}"; }
    done' keep "$4" {} +) && cp -a --remove-destination files/. work/ && rm -rf files

#!/bin/sh
# resume-job SHARED RUN JOB TIME: puts the user's folder into the run's folder once more, after JOB, its last one, has ended. The
# tar stream is that of make-job. A file of `work` that is as it was sent has the modification time TIME, and is replaced;
# one that the script wrote or changed stays, and is answered as `kept NAME`.
umask 077; trap 'exit 1' HUP INT TERM PIPE
cd -P -- "$1/.muster/runs/$2" || exit
exec 9>.submit.lock && flock -w 60 9 || exit
[ "$(head -n 1 job | cut -d ';' -f 1)" = "$3" ] || { echo "$2: another command has just submitted a job of it" >&2; exit 1; }
rm -rf files && mkdir files || exit
words=$({ tar -xof - 2>&1 || echo "tar ended with $?"; } | head -n 5)
case $words in *"tar ended with "*) whole='' ;; *) whole=whole ;; esac
[ -e "$whole" ] || { printf '%s\n' "$words" "not all of the folder arrived" >&2; rm -rf files; exit 1; }
rm -f gone whole
# shellcheck disable=SC2016  # the inner shell expands it
(cd files && find . ! -type d -exec sh -c '
    time=$1; shift
    for file; do
        then=$(stat -c %Y -- "../work/$file" 2>/dev/null) || continue
        [ "$then" = "$time" ] || { rm -f -- "$file" && printf "kept %s\n" "${file#./}"; }
    done' keep "$4" {} +) && cp -a --remove-destination files/. work/ && rm -rf files

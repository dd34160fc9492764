#!/bin/sh
# follow-job RUN JOB MARK MOST EVERY RANKS LINGER: reports every change of a job and of its run's folder until nobody reads any
# more, in the lines that follow.sh describes; `said LINE` is a line of look_job. Its input has lines `SIZE PATH`. RANKS: the
# ranks whose logs are sent, with commas around each, or `all`. Of a log that the reader has not begun, only the last LINGER bytes
# are sent. Slurm is asked every second at first, then less and less often; immediately when a document has changed.
run=$1 job=$2 mark=$3 most=$4 every=$5 ranks=$6 linger=$7
. ./reading.sh
. ./report_function.sh
. ./job_function.sh
enter "$run" || { echo "$mark said job nofolder"; exit 0; }
while read -r size path; do keep "$path" "$size"; done
trap 'exit 0' HUP INT TERM PIPE
logs() {
    for log in logs/rank-*.log; do
        number=${log#logs/rank-}; number=${number%.log}
        case $ranks in all | *",$number,"*) [ ! -f "$log" ] || echo "$log" ;; esac
    done | head -n 4096
}
# shellcheck disable=SC2046  # names without blanks
skip() {
    while read -r path size _; do
        case $newline$known in *"$newline$path "*) continue ;; esac
        [ "${size:-0}" -le "$linger" ] || keep "$path" $((size - linger))
    done <<END
$(files job.out $(logs))
END
}
skip
said='' wait=1 next=0 before=''
while echo "$mark ."; do
    more='' now=$(date +%s)
    documents_now=$(files nodes outcome)
    if [ "$now" -ge "$next" ] || [ "$documents_now" != "$before" ]; then
        fresh=$(look_job "$job" 2>/dev/null)
        [ "$fresh" = "$said" ] && [ "$documents_now" = "$before" ] && wait=$((wait < 10 ? wait + 1 : 10)) || wait=1
        next=$((now + wait)) before=$documents_now
    fi
    # shellcheck disable=SC2046  # names without blanks
    report nodes config.json environment.json ranks metrics.jsonl telemetry scalars outcome job.out $(logs)
    [ -z "$more" ] || continue
    if [ "$fresh" != "$said" ]; then
        said=$fresh
        printf '%s\n' "$fresh" | while read -r line; do printf '%s\n' "$mark said $line" || exit; done
        echo "$mark said ." || exit
    fi
    sleep "$every"
done

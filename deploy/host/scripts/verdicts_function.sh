#!/bin/sh
# verdicts: prints a line `verdict RUN JSON` for each verdict of $run, for host/status.py.
# shellcheck disable=SC2154  # the script that includes this sets $run
verdicts() {
    (enter "$run" && files outcome) | while read -r path _; do
        case $path in *.json)
            printf 'verdict %s %s\n' "$run" "$(read_at "$run" "$path" 0 65536 | tr '\n\000' '  ')" ;;
        esac
    done
}

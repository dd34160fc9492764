#!/bin/sh
# ours RUN: the containers of a run, or of all runs, whose run folder is in this home. Labels do not suffice: another user
# of the engine may have a run of the same id, and an image may set labels itself.
source_folder='{{range .Mounts}}{{if eq .Destination "/muster/run"}}{{printf "%q" .Source}}{{end}}{{end}}'
home=${HOME%/}/.muster/runs
ours() {
    containers=$(docker ps --all --quiet --no-trunc --filter "label=muster.run${1:+=$1}") || return
    # shellcheck disable=SC2086  # one word for each container
    [ -z "$containers" ] || docker inspect --format "{{.Id}} $source_folder" $containers 2>/dev/null |
        while read -r id folder; do
            case $folder in
            "\"$home/${1:-/}\"") echo "$id" ;;
            "\"$home/"*) [ -n "$1" ] || echo "$id" ;;
            esac
        done
}

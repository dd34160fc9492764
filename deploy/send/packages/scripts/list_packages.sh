#!/bin/sh
# list-packages IMAGE USER: the layers and the PATH of IMAGE, then the name of each volume with whole packages of ours.
# A volume whose install was cut (by a reboot, say) has no mark in ~/.muster/packages and does not count; nor does one whose mark
# has another boot of the kernel: its files may not have reached the disk (run-order).
image=$1 user=$2
docker image inspect --format '{"layers":{{json .RootFS.Layers}},"environment":{{json .Config.Env}}}' "$image" || exit
now=$(cat /proc/sys/kernel/random/boot_id 2>/dev/null)
docker volume ls --filter label=muster.packages --filter "label=muster.user=$user" --format '{{.Name}} {{.Label "muster.start"}}' |
    while read -r name start; do
        if boot=$(cat "$HOME/.muster/packages/$start" 2>/dev/null) && case $boot in '' | "$now") ;; *) false ;; esac; then
            echo "{\"volume\":\"$name\"}"
        fi
    done

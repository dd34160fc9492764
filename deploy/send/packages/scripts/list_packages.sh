#!/bin/sh
# list-packages IMAGE USER: print the layers and the variables of IMAGE, then each volume in which all packages are
# installed.
# A volume whose install was cut (for example by a reboot) has no mark in ~/.muster/packages, and does not count. Nor does a volume
# whose mark is from another boot of the kernel: its files may not have reached the disk (run-order).
image=$1 user=$2
docker image inspect --format '{"layers":{{json .RootFS.Layers}},"environment":{{json .Config.Env}}}' "$image" || exit
now=$(cat /proc/sys/kernel/random/boot_id 2>/dev/null)
docker volume ls --filter label=muster.packages --filter "label=muster.user=$user" --format '{{.Name}} {{.Label "muster.start"}}' |
    while read -r name start; do
        if boot=$(cat "$HOME/.muster/packages/$start" 2>/dev/null) && case $boot in '' | "$now") ;; *) false ;; esac; then
            echo "{\"volume\":\"$name\"}"
        fi
    done

#!/bin/sh
# list-packages IMAGE USER: the layers and the PATH of IMAGE, then the name of each volume with whole packages of ours.
# A volume whose install was cut (by a reboot, say) has no mark in ~/.muster/packages and does not count.
image=$1 user=$2
docker image inspect --format '{"layers":{{json .RootFS.Layers}},"environment":{{json .Config.Env}}}' "$image" || exit
docker volume ls --quiet --filter label=muster.packages --filter "label=muster.user=$user" |
    xargs -r docker volume inspect --format '{{.Name}} {{index .Labels "muster.start"}}' |
    while read -r name start; do [ ! -e "$HOME/.muster/packages/$start" ] || echo "{\"volume\":\"$name\"}"; done

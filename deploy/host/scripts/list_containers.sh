#!/bin/sh
# Lists the containers that carry $label.
. ./container_line.sh
# A container that disappears between the two commands is not a fault. An engine that goes silent is one.
# shellcheck disable=SC2154  # the script that includes this sets $label
containers=$(docker ps --all --quiet --filter "label=$label") || exit
# shellcheck disable=SC2086  # one word for each container
[ -z "$containers" ] || docker inspect --format "container $container_line" $containers 2>/dev/null ||
    docker ps --quiet >/dev/null

#!/bin/sh
# remove-unstarted LABEL: removes the containers with that label that were created and never started.
docker ps --all --quiet --filter "label=$1" --filter status=created | xargs -r docker rm --volumes >/dev/null

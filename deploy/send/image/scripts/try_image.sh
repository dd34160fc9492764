#!/bin/sh
# try-image LINE IMAGE REPLACED...: shows the image, creates a container from it and removes that again; then removes the images
# REPLACED. A connection that is cut between the two leaves no container: they are one command.
line=$1 image=$2; shift 2
docker image inspect --format "$line" "$image" || exit
container=$(docker create --pull never --network none --label muster.run=push "$image" true) || exit
docker rm --volumes "$container" >&2 || exit
[ $# -eq 0 ] || docker image rm "$@" >&2 || true

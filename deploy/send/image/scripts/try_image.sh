#!/bin/sh
# try-image LINE IMAGE REPLACED...: show the image, create a container from it and remove that container again; then remove the
# images REPLACED. Creating and removing is one command, so that a connection cut between the two leaves no container.
line=$1 image=$2; shift 2
docker image inspect --format "$line" "$image" || exit
container=$(docker create --pull never --network none --label muster.run=push "$image" true) || exit
docker rm --volumes "$container" >&2 || exit
[ $# -eq 0 ] || docker image rm "$@" >&2 || true

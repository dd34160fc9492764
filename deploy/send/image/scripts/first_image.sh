#!/bin/sh
# first-image LINE NAME...: for each name, until the engine has an image of it: a line `name NAME`, then what Docker says; of an
# image, that is a JSON object in the format LINE.
line=$1; shift
for name; do
    echo "name $name"
    ! docker image inspect --format "$line" "$name" 2>&1 || exit 0
done

#!/bin/sh
# first-image LINE NAME...: for each name, until the engine has an image of that name, print a line `name NAME` and then Docker's
# answer: for an image, a JSON object in the format LINE.
line=$1; shift
for name; do
    echo "name $name"
    ! docker image inspect --format "$line" "$name" 2>&1 || exit 0
done

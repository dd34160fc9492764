#!/bin/sh
# receive-image LINE IMAGE REPLACED...: loads an archive from standard input, then as try-image.
docker load --quiet >&2 || exit
. ./try_image.sh

#!/bin/sh
# receive-image LINE IMAGE REPLACED...: load an archive from standard input, then do the same as try-image.
docker load --quiet >&2 || exit
. ./try_image.sh

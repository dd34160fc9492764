#!/bin/sh
# Runs the Python of an image, inside a container. The packages of Debian and Ubuntu have only python3. If an image has
# both names, torch belongs to `python`.
for name in python python3; do command -v $name >/dev/null && exec $name "$@"; done; echo no python in this image >&2; exit 127

#!/bin/sh
# Runs the Python of an image, inside a container. Debian's and Ubuntu's packages call it python3 alone; where an image
# has both, `python` is the one that has torch.
for name in python python3; do command -v $name >/dev/null && exec $name "$@"; done; echo no python in this image >&2; exit 127

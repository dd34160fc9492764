#!/bin/sh
# Runs an image's Python, inside a container. The packages of Debian and Ubuntu provide only python3. If an image has both
# names, `python` is the one with torch.
for name in python python3; do command -v $name >/dev/null && exec $name "$@"; done; echo no python in this image >&2; exit 127

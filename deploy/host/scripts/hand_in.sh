#!/bin/sh
# hand-in CONTAINER PYTHON NOBODY-WAITS: gives a node its secrets, which are a line of standard input. Ends with code
# NOBODY-WAITS if the container does not run.
name=$1 python=$2 nobody_waits=$3; IFS= read -r secrets || exit
. ./hand_in_function.sh
hand_in 0 && exit; code=$?
[ "$(docker inspect --format '{{.State.Status}}' "$name" 2>/dev/null)" = running ] || exit "$nobody_waits"
exit "$code"

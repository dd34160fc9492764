#!/bin/sh
# signal NAME RUN: sends a signal to the running containers of a run.
. ./ours.sh
containers=$(ours "$2")
# shellcheck disable=SC2086  # one word for each container
[ -z "$containers" ] || docker kill --signal "$1" $containers >/dev/null 2>&1 || :

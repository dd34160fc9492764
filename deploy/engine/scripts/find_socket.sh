#!/bin/sh
# find-socket: prints the path of the socket that this login's `docker` uses, if the login may write to it. Prints
# nothing if only the program itself can reach its engine: it is a script (sudo docker), a context is chosen, or the
# engine is on another machine.
docker=$(command -v docker) || { echo "docker: not found in PATH ($PATH)" >&2; exit 127; }
[ "$(head -c 2 "$docker" | tr -d '\0')" != '#!' ] || exit 0
[ -z "$DOCKER_CONTEXT" ] || [ "$DOCKER_CONTEXT" = default ] || [ -n "$DOCKER_HOST" ] || exit 0
[ -n "$DOCKER_HOST$DOCKER_CONTEXT" ] || ! grep -qs '"currentContext"' "${DOCKER_CONFIG:-$HOME/.docker}/config.json" || exit 0
case ${DOCKER_HOST:-unix:///var/run/docker.sock} in unix:///*) socket=${DOCKER_HOST:-unix:///var/run/docker.sock} ;; *) exit 0 ;; esac
socket=${socket#unix://}
[ ! -S "$socket" ] || [ ! -r "$socket" ] || [ ! -w "$socket" ] || echo "$socket"

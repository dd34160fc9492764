#!/bin/sh
# images LINE NAME...: a JSON object of the engine, one of its free disk space, and for each image what the format LINE says.
# Every start of `docker` takes its time on a host, so: as few as will do, in one command. Of the answer those lines count
# that are a JSON object.
line=$1; shift
engine='{"version":{{json .ServerVersion}},"machine":{{json .Architecture}},"system":{{json .OSType}},'
engine=$engine'"status":{{json .DriverStatus}},"root":{{json .DockerRootDir}}}{{"\n"}}{{.DockerRootDir}}'
info=$(docker info --format "$engine") || exit
printf '%s\n' "$info"
df -Pk "${info##*
}" 2>/dev/null | awk 'NR == 2 {print "{\"free\":\"" $4 "\"}"}'
# shellcheck disable=SC2046  # one word for each image
docker image inspect --format "$line" $(docker image ls --quiet --no-trunc | sort -u) "$@" 2>/dev/null
exit 0

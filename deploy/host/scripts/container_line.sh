#!/bin/sh
# A node's container as a JSON document, for `docker inspect`: what engine/engine.py reads of it. Its mounts tell whose run it is. Of its
# state, what does not change with each look at its health.
# shellcheck disable=SC2034  # the script that includes this uses it
container_line='{"Id":{{json .Id}},"Name":{{json .Name}},"State":{"Status":{{json .State.Status}},"ExitCode":{{json .State.ExitCode}},'
container_line=$container_line'"StartedAt":{{json .State.StartedAt}}},"Config":{"Labels":{{json .Config.Labels}}},"Mounts":{{json .Mounts}}}'

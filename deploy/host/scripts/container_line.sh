#!/bin/sh
# A node's container as a JSON document, for `docker inspect`: what engine/engine.py reads of it. Its mounts tell whose run it is.
# shellcheck disable=SC2034  # the script that includes this uses it
container_line='{"Id":{{json .Id}},"Name":{{json .Name}},"State":{{json .State}},"Config":{"Labels":{{json .Config.Labels}}},"Mounts":{{json .Mounts}}}'

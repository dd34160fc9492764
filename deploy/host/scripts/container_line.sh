#!/bin/sh
# The format for `docker inspect` that prints a node's container as a JSON document: those fields read by engine/engine.py that
# stay the same in each look until the container ends or starts. The host folder mounted as its run folder tells whose run this
# is.
# shellcheck disable=SC2034  # the script that includes this uses it
container_line='{"Id":{{json .Id}},"Name":{{json .Name}},"State":{"Status":{{json .State.Status}},"ExitCode":{{json .State.ExitCode}},'
container_line=$container_line'"StartedAt":{{json .State.StartedAt}}},"Config":{"Labels":{{json .Config.Labels}}},"Mounts":[{{range .Mounts}}'
container_line=$container_line'{{if eq .Destination "/muster/run"}}{"Destination":"/muster/run","Source":{{json .Source}}}{{end}}{{end}}]}'

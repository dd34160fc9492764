#!/bin/sh
# A node's container as a JSON document, for `docker inspect`. host/facts.py reads it.
container_line='{"name":{{json .Name}},"labels":{{json .Config.Labels}},'
# The host folder that the container has as its run folder: it tells whose run this is.
container_line=$container_line'"folder":[{{range .Mounts}}{{if eq .Destination "/muster/run"}}{{json .Source}}{{end}}{{end}}],'
container_line=$container_line'"state":{"Status":{{json .State.Status}},"ExitCode":{{json .State.ExitCode}},'
container_line=$container_line'"StartedAt":{{json .State.StartedAt}}}}'

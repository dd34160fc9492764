#!/bin/sh
# leave CONTAINER PYTHON: asks a node to leave its run to the others, and waits for its answer (trainer/node/leave.py).
exec docker exec "$1" sh -c "$2" sh -P -m trainer.node.leave

#!/bin/sh
# within CONTAINER PYTHON WORDS...: a command in a run's container, which ends when our input ends (trainer/node/within.py).
container=$1 python=$2
shift 2
exec docker exec -i "$container" sh -c "$python" sh -P -m trainer.node.within "$@"

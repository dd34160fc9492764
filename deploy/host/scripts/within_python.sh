#!/bin/sh
# within-python CONTAINER PYTHON WORDS...: the image's Python in a run's container, with these words; it ends as `within` does.
container=$1 python=$2
shift 2
exec docker exec -i "$container" sh -c "$python" sh -P -m trainer.node.within -- sh -c "$python" sh "$@"

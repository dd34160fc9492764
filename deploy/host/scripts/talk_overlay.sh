#!/bin/sh
# talk-overlay CONTAINER PYTHON SOCKET: talks with the end of a run's network in that container (trainer/node/overlay.py).
exec docker exec -i "$1" sh -c "$2" sh -P -m trainer.node.overlay talk "$3"

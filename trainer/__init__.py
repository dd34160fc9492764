"""The half that runs on a node: start the ranks, load data, train, write checkpoints. It never imports `deploy`."""

# `trainer` in a checkout and in an image, `muster.trainer` in an installed wheel.
NAME = __name__

"""What runs on a node: find the ranks, load data, train, checkpoint. Never imports `deploy`."""

# `trainer` in a checkout and in an image, `muster.trainer` where a wheel is installed.
NAME = __name__

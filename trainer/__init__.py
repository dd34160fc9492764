"""What runs on a node: find the ranks, load data, train, checkpoint. Never imports `deploy`."""

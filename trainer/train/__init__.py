"""One rank: environment, process group, data, loop, evaluation, metrics."""

"""Muster's own trainer on one rank: environment, process group, data, loop, evaluation, metrics."""

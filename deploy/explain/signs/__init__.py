"""The signs of causes in a failed run's output, a row each, with what else the same words may mean. Data."""

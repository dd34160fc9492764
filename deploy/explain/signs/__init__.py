"""The signs of causes in a failed run's output: a row for each, with other causes of the same words. Data."""

"""The signs of causes in a failed run's output: tables, one row per sign. Data."""

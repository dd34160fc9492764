"""What a training script may import. In a wheel, `muster.deploy` and `muster.trainer` stand beside it."""

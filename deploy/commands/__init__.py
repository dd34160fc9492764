"""The commands of `muster` and `fab`: each turns options into one call, and the result into an exit code."""

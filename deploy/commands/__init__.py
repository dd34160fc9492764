"""The commands of `fab` and `muster`: each turns options into one call, and its result into an exit code."""

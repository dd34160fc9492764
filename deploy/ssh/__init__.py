"""The only package that uses SSH."""

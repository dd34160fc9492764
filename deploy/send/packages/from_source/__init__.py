"""Packages that no index has as a wheel: fetched here, built by each host."""

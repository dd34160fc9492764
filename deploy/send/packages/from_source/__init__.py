"""Packages for which no index has a wheel: this machine fetches them, and each host builds them."""

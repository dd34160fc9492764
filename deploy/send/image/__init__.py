"""An image onto hosts without a registry."""

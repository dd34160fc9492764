"""Send an image to hosts without a registry."""

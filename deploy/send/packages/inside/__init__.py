"""What runs on a host, in a container of the base image: sent as one text."""

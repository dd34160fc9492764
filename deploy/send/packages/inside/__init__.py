"""The program that runs on a host, in a container of the base image. It is sent as one text."""

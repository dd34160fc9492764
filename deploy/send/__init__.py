"""What Muster sends to hosts, by digest: a folder's files, an image's layers, a project's packages."""

"""What goes to hosts, by digest: a folder as files, an image by its layers, a project's packages."""

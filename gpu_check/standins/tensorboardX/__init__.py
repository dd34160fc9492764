"""Takes the place of tensorboardX where it is not installed, so that the trainer can be tried; it writes nothing."""

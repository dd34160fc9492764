"""A replacement for tensorboardX if it is not installed, so that the trainer can be tried; it writes nothing."""

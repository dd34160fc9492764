"""Send bytes to many hosts but upload them once: the hosts pass the pieces on to each other."""

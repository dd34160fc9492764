"""What a rank's steps are made of: when, how long, with which loss, and whom it waited for."""

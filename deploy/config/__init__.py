"""What the user asked for: options and cluster.toml become Cluster, Host and Job. Pure."""

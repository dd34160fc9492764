"""Which nodes train together: a register kept by a majority, questions between nodes, nodes that join or leave."""

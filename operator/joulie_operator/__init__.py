"""Plans which nodes are performance nodes and which are eco nodes, and applies the plans."""

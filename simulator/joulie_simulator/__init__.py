"""A simulated cluster: nodes, pods, physics, and a scheduler that calls the real extender."""

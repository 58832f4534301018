"""The `joulie` command: the only place that wires everything together."""

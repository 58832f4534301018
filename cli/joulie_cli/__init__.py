"""The `joulie` command: the composition root of all parts."""

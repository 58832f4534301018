"""The agent of one node: reads its meters, its processors and its cards, and reports them."""

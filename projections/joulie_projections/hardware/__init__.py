"""Hardware models: catalog, spellings, GPU resources, MIG slices.

No I/O, no clock.
Not here: what a node draws (`twin.power`).
In: model names and resource names. Out: TDP, cards, shares.
"""

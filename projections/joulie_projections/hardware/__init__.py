"""Hardware models: catalog, spellings, GPU resources, MIG slices. Pure, except `catalog_file`.

Not here: what a node draws (`twin.power`).
In: model names and resource names. Out: TDP, cards, shares.
"""

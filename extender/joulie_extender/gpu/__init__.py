"""GPU placement: which nodes have the cards, which cards a pod gets.

No I/O, no clock.
Not here: claims on the log (`binding`).
In: a GPU request and cards as columns. Out: a verdict, chosen cards.
"""

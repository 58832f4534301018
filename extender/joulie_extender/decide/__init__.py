"""Filter and prioritize: which nodes a pod may have, and how good each is, with every term.

No I/O, no clock.
Not here: card choice (`gpu`).
In: a request and a snapshot. Out: an answer and the decision that explains it.
"""

"""What would happen to the pods of a manifest: nodes, cards, refusals, watts.

No I/O, no clock.
Not here: where the state and the settings come from (`answers`), the words of a terminal (`text`).
In: a manifest, the state and the twins at one position, settings in force. Out: the answer.
"""

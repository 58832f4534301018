"""A cluster at one moment, packed again, and a period of a log, run again under other settings.

No I/O, no clock.
Not here: lists of an API server, reading of a log, the words of the answers (`joulie_answers`).
In: nodes and pods. Out: nodes that could sleep with reasons; rows of settings, calibrated.
"""

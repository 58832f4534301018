"""Answers as text for people, the same from every source.

No I/O, no clock.
Not here: the answers themselves (`answers`).
In: answers. Out: lines.
"""

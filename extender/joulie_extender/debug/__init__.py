"""Pages for people: score terms and explanations of answers.

No I/O, no clock.
Not here: the console.
In: a snapshot and recent answers. Out: JSON.
"""

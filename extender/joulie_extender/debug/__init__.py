"""Pages for people: score terms and explanations of answers. Pure.

Not here: the console.
In: a snapshot and recent answers. Out: JSON.
"""

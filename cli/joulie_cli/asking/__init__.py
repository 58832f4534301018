"""Where the commands get answers: the local data, or a console.

Not here: the answers (`joulie_answers`), the commands (`ask`).
In: the options of a command line. Out: a source of answers.
"""

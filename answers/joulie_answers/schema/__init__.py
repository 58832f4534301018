"""Questions and answers: one class each, and the path of each in the API.

No I/O, no clock.
Not here: how an answer is found (`readers`), HTTP (`joulie_console`).
In: parameters. Out: documents.
"""

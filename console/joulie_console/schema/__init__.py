"""The documents that describe the API of the console.

No I/O, no clock.
Not here: questions and answers (`joulie_answers.schema`), HTTP (`api`).
In: the routes. Out: OpenAPI and AsyncAPI.
"""

"""The HTTP of the console: routes, queries, authentication, OpenAPI, connection limits.

Not here: values (`views`).
In: HTTP requests. Out: HTTP responses.
"""

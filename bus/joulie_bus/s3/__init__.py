"""Objects in a bucket with the API of S3: signed requests, writes that never overwrite.

Not here: what the objects hold.
In: names and bytes. Out: requests to the server of the settings.
"""

"""What happens, and how it travels: events, subjects, codec, log, broker, settings, errors.

Nothing above this package touches NATS, an environment variable or a subject string on its own.
"""

"""What is said of a log without facts, whatever was asked."""

EMPTY = (
    "The log is empty: no fact has been committed yet. `joulie status` shows what runs; "
    "`joulie demo` fills a log in seconds."
)

"""What decoding bytes of another program raises, also for bad UTF-8 and deep nesting.

No I/O, no clock.
"""

import msgspec

UNDECODABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

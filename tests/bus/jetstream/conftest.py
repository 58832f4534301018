from bare_stream import bare

__all__ = ["bare"]  # a fixture

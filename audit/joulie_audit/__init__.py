"""Verifies, replays, explains and archives the log."""

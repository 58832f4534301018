"""Looks back: is the log what was written, and does it say what was decided?"""

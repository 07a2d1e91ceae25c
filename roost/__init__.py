"""Roost decides where servers live, and keeps it so."""

__version__ = "0.1.0"

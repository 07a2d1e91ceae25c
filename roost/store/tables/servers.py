"""Servers, server groups and their members."""

"""Suites that others wrote, run against a served Roost from their packages as published."""

"""Actions: how they are accepted, queued, planned, carried out step by step, and ended."""

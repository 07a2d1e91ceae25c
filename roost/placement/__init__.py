"""Where servers go, and why: pure decisions over a fleet, with no I/O, no clock and no database."""

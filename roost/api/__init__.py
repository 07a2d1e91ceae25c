"""HTTP only: what clients send and receive. What it means is decided in the rooms below."""

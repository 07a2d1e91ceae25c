"""The embedded cloud: hosts and how they are divided, what can be booted, and who may use how much."""

"""Clusters, nodes, profiles, policies, actions, events and receivers."""

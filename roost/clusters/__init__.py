"""Clusters of servers, and the policies that govern them."""

"""What a cluster may ask of a cloud, and the clouds that can answer."""

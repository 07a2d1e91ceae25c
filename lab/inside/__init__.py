"""What runs inside the lab's OpenStack, in its own environment: nothing else of the project is imported here."""

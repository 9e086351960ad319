"""Rules about memory: what the backend allocates, and how."""

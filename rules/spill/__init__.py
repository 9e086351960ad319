"""Rules about memory that went where it is slow, without an error."""

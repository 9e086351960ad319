"""Backends: one file a server. What each can tell, what it cannot, and how its command line is read and written."""

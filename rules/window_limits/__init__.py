"""Rules about windows: the one in force is not the one that was set."""

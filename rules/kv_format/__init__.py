"""Rules about the cache: what one token costs, and whether that format works."""

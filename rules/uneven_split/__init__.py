"""Rules about several devices: each has its own limit, and the traffic between them a price."""

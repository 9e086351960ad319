"""Rules about slowness with everything in its place: prompt caches, kernels, speculation, the price of length."""

"""Ground floor: measure, never judge."""

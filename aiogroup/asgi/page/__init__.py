"""What a service shows to those with access: what it remembers, and what it looks up when they ask."""

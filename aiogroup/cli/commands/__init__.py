"""The commands, one module for each: its arguments, what it asks the brokers, and what it prints."""

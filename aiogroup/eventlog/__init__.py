"""Writes the events of consumers, and samples of how they are, as lines of JSON, for an analysis of many members."""

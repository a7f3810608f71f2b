"""The command line: groups, their lag and their records, from outside of any group."""

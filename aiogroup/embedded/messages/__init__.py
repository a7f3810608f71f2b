"""Messages that only a broker needs to know, and the versions that this one offers of each."""

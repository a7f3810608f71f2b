"""Transactions of the first protocol: who coordinates them, what state they are in, how they end."""

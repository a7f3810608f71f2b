"""Parts of a broker that run inside a process. They are pure: for simulations and, later, for a whole embedded
broker.
"""

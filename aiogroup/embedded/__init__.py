"""A broker's parts that run inside of a process: pure, for simulations and, later, for a whole broker around them."""

"""What algorithms have in common: the base classes of each family."""

"""What is seen of a run: how its roles spend their time, how far it is, what hangs."""

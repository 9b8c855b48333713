"""Choosing actions: how requests become answers, and by which way weights come to who chooses."""

"""The arithmetic of algorithms: returns, losses, targets, optimisers. Pure functions where possible."""

"""Where roles run: in this process, or in processes of their own; who starts them, and who replaces them."""

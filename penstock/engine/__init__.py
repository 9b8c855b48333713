"""The engine: roles with a non-blocking ``poll()``, the supervisor, and the backends that decide where roles run."""

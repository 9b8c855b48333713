"""Places for roles: this process, or processes of their own; starts and replacements."""

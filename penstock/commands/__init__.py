"""Commands that train and evaluate, with the exit codes and messages of every command.

Heavy modules are imported only when needed, so that help appears at once.
"""

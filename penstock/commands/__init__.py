"""Commands that train and evaluate, and the endings and messages of every command.

Nothing heavy is imported until it is known to be needed: asking for help answers at once.
"""

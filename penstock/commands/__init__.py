"""What the command line does of itself: training and evaluating, and how every command ends and explains itself.

Nothing heavy is imported until it is known to be needed: asking for help answers at once.
"""

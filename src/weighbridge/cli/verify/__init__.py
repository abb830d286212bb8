"""`weighbridge verify golden-path`: one generated file through the whole system.

command      reads the options and prints the result
dry_run      checks the preconditions, without writing
golden_path  loads a judgment, sends its batch again, deletes both
"""

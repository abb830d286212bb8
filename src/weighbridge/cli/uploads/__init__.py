"""Commands of uploads.

read_options  the options that say how a file is written
load         receives files and processes them until each has ended
watch        receives files from a folder; folder finds the complete and new ones
progress     progress bars
report       the result of an upload, as JSON or text
manage       list, inspect and retry uploads
preview      the changes of an upload on hold; promote or discard it
"""

"""Commands of uploads.

read_options  the options for how a file is written; request makes the request for a file from all options
load         receives files and processes them until each has ended
watch        receives files from a folder; complete_files finds the complete and new ones
progress     progress bars
report       the result of an upload, as JSON or text
manage       list, inspect and retry uploads
preview      the changes of an upload on hold; promote or discard it
"""

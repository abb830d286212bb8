"""Pages of uploads.

index        the upload form and the list of uploads
read_options  choices and labels of read options
upload       one upload
preview      the changes of an upload on hold
"""

"""Pages of projects.

pages        the list of projects; files, groups, keywords and tokens of one
edits        forms that edit groups
"""

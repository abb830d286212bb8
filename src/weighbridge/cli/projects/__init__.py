"""Commands of projects.

manage       create, inspect and run projects
status       prints the status of a project
groups       show and edit keyword groups
"""

"""Routes of projects.

models       request and response models
manage       projects, their jobs and their status
groups       groups, keywords and tokens: read and edit
"""

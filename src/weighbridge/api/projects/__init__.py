"""Routes of projects: create, status, jobs, groups."""

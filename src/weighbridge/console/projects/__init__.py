"""Pages of projects: the list, one project, forms that edit its groups."""

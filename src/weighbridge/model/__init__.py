"""The domain model: states, pipelines, rules, errors. Pure: only the standard library."""

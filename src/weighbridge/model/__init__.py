"""What Weighbridge talks about: states, pipelines, rules, errors. Pure: only the standard library."""

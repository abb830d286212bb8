"""Commands of projects."""

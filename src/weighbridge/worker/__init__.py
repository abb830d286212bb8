"""Runs the steps: claims uploads, keeps their leases alive, recovers what others dropped."""

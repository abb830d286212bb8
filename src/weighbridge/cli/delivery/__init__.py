"""Commands of delivery: deliver, conversions, sites, providers, vault."""

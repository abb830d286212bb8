"""Routes of delivery: conversions, sites, providers, cron."""

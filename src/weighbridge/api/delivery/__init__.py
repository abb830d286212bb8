"""Routes of delivery.

models       request and response models
sites        sites, their providers and credentials
conversions  create, list, inspect and retry conversions
providers    delivery status per site and provider
cron         deliver, recover and store credentials, for an external scheduler
"""

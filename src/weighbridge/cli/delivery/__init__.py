"""Commands of delivery.

sites        sites and their providers
providers    the available providers, and delivery status
credentials  stores credentials of a site
vault        the keys that encrypt credentials
enqueue      queues sales that are older than the provider of their site
deliver      delivers queued conversions
conversions  list, inspect and retry deliveries
"""

"""Pages of delivery.

index        delivery status per site and provider, and the list of conversions
conversion   one sale and its delivery to each provider
"""

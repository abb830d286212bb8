"""Commands of delivery.

sites              sites and their providers
providers          the available providers, and delivery status
group_status       the delivery status of a site and a provider, as JSON and as a table
credentials        stores credentials of a site
vault              the keys that encrypt credentials
enqueue            queues sales that are older than the provider of their site
deliver            delivers queued conversions
conversions        lists and shows deliveries
retry_conversions  requeues failed deliveries
"""

"""Delivery: conversions → ad platforms and webhooks, each once, with proof in a ledger.

context         the parts that delivery needs; outbound checks that they are there
sites           sites and their providers; credentials stores credentials, vault seals them, rotate_keys reseals them
sales           conversions over HTTP → sales, and with them rows of the queue
queue           every read and change of state of the queue
worker          delivers until the process stops
run             one run: groups → shares → dispatch
dispatch        the shares → calls: prefetch claims batches, slot_exchange acquires slots, provider_call makes one call,
                batcher and settle write the results of many calls in one transaction
in_flight       limits of one process; slots/ limits calls over all processes
providers/      an adapter for each provider
confirm         conversions that a provider checks later
forecast        the next run, without sending; dry_run has the providers check it
conversions     lists for people; ledger and overview answer operators
upload_webhooks finished uploads → the webhooks of sites
"""

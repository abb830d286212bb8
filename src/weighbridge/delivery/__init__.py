"""Delivery: conversions → ad platforms and webhooks, each once, with proof in a ledger.

context         the parts that delivery needs
sites           sites and their providers; credentials stores credentials, vault seals them, rotate_keys reseals them
sales           conversions over HTTP → sales, and with them rows of the queue
queue           every read and change of state of the queue
worker          delivers until the process stops
run             one run: groups → shares; dispatch makes the calls of the shares
in_flight       how many calls may be in flight; slots limits them over all processes
call            one call of a provider; providers/ has an adapter for each
batcher, settle results of many calls → rows, breaker and ledger in one transaction
confirm         conversions that a provider checks later
forecast        the next run, without sending; dry_run has the providers check it
conversions     lists for people; ledger and overview answer operators
upload_webhooks finished uploads → the webhooks of sites
"""

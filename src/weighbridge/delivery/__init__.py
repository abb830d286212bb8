"""Delivery: conversions → ad platforms and webhooks, each under one order id, with proof in a ledger.

context         the parts that delivery needs, and its database role
group_key       a site and a provider
sites           sites and their providers; sales: the sales of sites
credentials     checks and stores credentials: vault encrypts them, credential_queries stores them, rotate_keys encrypts
                them again
receive_conversions  conversions over HTTP → sales, and with them rows of the queue
queue           every read and change of state of the queue
deliverer       delivers until the process stops
deliver         one run: groups → plan (shares and probes) → dispatch_loop
plan            which groups send how many rows; breaker: which groups may send, probe or only wait
dispatch_loop   the main loop, from shares to calls: prefetch claims batches, slot_batcher acquires slots,
                provider_call makes one call, settle writes the results of many calls in one transaction
in_flight       limits of one process; slots/ limits calls over all processes
run_counts      counts of one run; run_signals: signals between the concurrent runs of one process
providers/      an adapter for each provider
retry_failed    failed conversions → queued again, for operators
confirm         conversions that a provider checks later
forecast        the next run, without sending; dry_run has the providers check it
conversions     queries of conversions and groups for people; ledger: of calls and their results
upload_webhooks finished uploads → the webhooks of sites
"""

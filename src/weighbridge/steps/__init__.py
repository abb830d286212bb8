"""The flow, one file a step, in this order:

receive   a request or a file in a folder → a stored blob and a pending upload
parse     stored file → staged rows, each judged
promote   staged rows → production rows, exactly once
finish    a project whose files have all ended → its groups, once
announce  what landed → audit log, alert evaluation, notifier, webhooks
deliver   conversions among it → their providers: run makes the calls of all shares, room says how many at once,
          verdict is one call, settle writes what came of it
clean     staged rows that nobody needs any more → gone

Beside it, where a file does not come or stay as it should:

resume    a file that comes in parts → receive; append writes one part
defer     a file that the store cannot take → a queue on this machine
replay    that queue → the store, and the upload on its way
preview   a staged file that is held → what it would change; then promote, or discarded
quota     may these bytes be stored, and how many are; recount compares that with the store
reopen    an ended upload → once more
retain    stored files that are kept no longer → gone

Beside deliver:

convert   conversions from programs → sales, and with them the queue
confirm   what a provider accepted and promised to check → confirmed, or not
forecast  what waits → the shares of the next run, and nothing written
rehearse  what waits → checked by its providers, and nothing written
rotate    credentials → the same under the vault's first key; credentials puts others in their place
"""

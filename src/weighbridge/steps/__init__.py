"""The flow, one file a step, in this order:

receive   a request or a file in a folder → a stored blob and a pending upload
parse     stored file → staged rows, each judged
promote   staged rows → production rows, exactly once
finish    a project whose files have all ended → its groups, once
announce  what landed → audit log, alert evaluation, notifier
clean     staged rows that nobody needs any more → gone
"""

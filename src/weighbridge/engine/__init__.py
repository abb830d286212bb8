"""The engine, written once for every queue: claim, lease, heartbeat, fence, retry, recover, announce.

context       the parts that every step needs
options       how a worker process behaves
loop          claim → work → announce, until the process stops
signals       inside the process: work has ended
leases        the leases that a process holds, and their renewal
write_result  the result of finished work → the database, also after an outage
recover       attempts whose lease expired → back to their queue
chores        work at intervals
outbox        events and their deliveries; announce_loop → announce delivers them to consumers
"""

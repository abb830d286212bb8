"""Stored files: blobs, the queue of files that the store could not accept, usage and quota.

context     the parts that storing files needs
quota       may this file be stored? usage has the counters and limits
blobs       the interface of a file store; store implements it for a folder and for S3
files       atomic, durable writes; waiting_files and parts: folders of files that wait or are incomplete
queue       files that wait for the store; replay_loop claims them, replay stores one
resumable   queries of resumable uploads
retention   stored files whose retention period is over
recount     counters compared with the store
"""

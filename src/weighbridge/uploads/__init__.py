"""Uploads: one file's journey into Postgres, in this order.

context         the parts that loading files needs
check_request   the fields of a request, checked; read_options says how a file is written, recognise finds its pipeline
receive         → a stored file and a pending upload; file_kind checks its kind, duplicates finds an earlier upload of
                the same file, store_unavailable keeps it if the store is unavailable
resumable       a file that arrives in parts → receive; resumable_append writes one part
claim           the queue, as a worker claims from it; queue has every read and change of state
attempt         one attempt: its lease, and the request to end it early
run_attempt     parse → threshold → promote, and the consequence of each kind of failure
stored_file     the stored file, verified and opened
parse           stored file → staged rows and rejections; reload_rejects reads a fixed rejects file
staging         queries of staged rows; rejections of rejected rows and warnings
threshold       too few valid rows → refused
promote         staged rows → production; promote_entity writes one entity, upsert_sql has its SQL,
                new_rows finds rows that need no look-up, promotion_counts counts, unchanged_groups are skipped,
                late_files yield to later files
preview         an upload on hold → its changes; preview_rows, preview_sql and preview_queries help it
write_rejects_file  rejected rows → a CSV to fix; fixed_rows links the fixed file to its original
operator_retry  an operator retries or dismisses; release_batch releases the name of a failed batch
browse          lists of uploads; history and live answer questions about them
figures         backlog, failures and history of uploads, and the alerts about them
retention       staged rows and scratch files whose retention period is over
golden_path_queries  statements of `weighbridge verify golden-path`
"""

"""Postgres: connections, transactions, roles, schema. No module here depends on uploads or deliveries.

address, embedded       where the database is: at DATABASE_URL, or a server in WEIGHBRIDGE_HOME
connections             how every connection is opened, and the limit of every wait
transactions, errors    transactions in a role, for a workspace, under a lease; errors as RetryLater or as faults
queries                 named queries from the `.sql` file beside a module
roles                   the database roles of the workers
migrate                 tables, by numbered migrations; apply_functions applies the functions.sql of every subject;
                        replaced_migrations recognises a database that older migrations made
pipeline_tables         staging and production tables of the declared pipelines; production_columns checks existing ones
readiness               all of it in order
clock, listen, copy     time, notifications, bulk loading
doctor, schema          for operators: what is wrong, and the schema as text
"""

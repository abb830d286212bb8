"""`weighbridge doctor`: checks of this machine, the database and deliveries.

command      runs the checks and prints their results
check        the result of one check
machine      folders, file store, alerts
database     schema, permissions, clocks, unfinished work
delivery     vault keys, credentials, blocked groups, slots
"""

"""`weighbridge doctor`: checks of this machine, the database and deliveries."""

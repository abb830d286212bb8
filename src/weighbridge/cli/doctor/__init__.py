"""`weighbridge doctor`: checks of the machine, the database and deliveries."""

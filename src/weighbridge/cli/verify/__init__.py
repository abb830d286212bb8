"""`weighbridge verify golden-path`: one generated file through the whole system."""

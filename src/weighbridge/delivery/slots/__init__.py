"""Slots limit how many calls are in flight at once, over all processes: per site and provider, and per provider.

base        the interface and the limits
leased      what both implementations share
redis       in Redis, where REDIS_URL is set
postgres    in Postgres otherwise; table has its queries
"""

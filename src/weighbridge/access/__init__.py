"""Access to the service: who may use it.

keys        API keys: shown once, stored hashed, bound to a workspace
signing     browser sessions and upload tokens
"""

"""The bytes of objects in buckets, checked, several at a time.

Nothing here knows what a token is. `client` is the one door to the network.
"""

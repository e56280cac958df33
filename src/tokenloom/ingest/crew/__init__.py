"""Takes numbered blocks → gives their documents in order, whoever encodes them.

`executors` decides how many processes encode; `worker` is one of them, from both ends of its pipe;
`wire` is what they say to each other.
"""

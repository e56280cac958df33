"""Takes the runs of several sources → gives one run of all of them, merged by virtual time.

The room of `tokenloom.mix`. Any index is computed without those before it.
"""

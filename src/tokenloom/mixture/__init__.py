"""Takes the runs of several sources → gives one run of all of them, merged by virtual time.

The room behind `tokenloom.mix`. Any index is found without those before it.
"""

"""Takes inputs and a number of stretches → gives a store that any number of machines wrote.

`division` cuts the inputs; `stretch_work` writes the shards of one stretch and a record of it;
`drive` runs stretches here, one of them, or on Ray, and joins their records into a manifest.
"""

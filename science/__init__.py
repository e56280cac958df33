"""Claims about data, each tested by training small models: `python -m science`.

One idea: a claim is an ordering that somebody else can check in minutes. Every experiment names
what was asked, the arms that are compared, the seeds, and what counts as holding. Its module turns
an arm and a seed into a record, and nothing else: `records` keeps these, `report` writes
docs/results.md from them, and `verdicts` says which orderings hold over the seeds.

==============  ====================================================================================
models          the tiny Llama-like model, with RoPE or learned positions
training        one plain loop over `tokenloom.Loader`, exact to the bit on a CPU
texts           texts that every machine has, and Markov chains whose reachable loss is known
plan            what an experiment is: arms, seeds, figures, a judge and a picture
splice_claim    which of (t, s) teaches a model something
samplers        packed and clipped splices against the published sampler
scaling         1, 5, 10 and 50 documents
shuffles        full, era, block and laned orders of a corpus with a strong storage order
sharing         least-consumed mixing against alternation and temperature
packing         truncation against splitting, attention across documents on and off
exact_mixing    mixing by tokens against mixing by rows
resuming        train, kill, resume: equal curves
==============  ====================================================================================
"""

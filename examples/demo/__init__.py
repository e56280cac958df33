"""tokenloom at work on text that is already on this machine; nothing is downloaded.

`__main__` runs the steps in order. A step is a function that takes a `World`, prints what it did,
and returns the `World` with what it made: a new step is one function and one line in `STEPS`.

======================  ========================================================
``world.py``            what the steps pass on, and the sizes of everything
``corpus.py``           text from the Python installation: `code` and `prose`
``tokenizer.py``        a small byte-level BPE, trained on a slice of it
``building.py``         one store per source, and a look inside
``promises.py``         same bytes whoever builds and whatever dies; damage is found
``printing.py``         headings, tables and ticks
======================  ========================================================
"""

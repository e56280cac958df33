"""Takes the lengths of documents → gives the spans of any row: which tokens go into which cells.

From lengths alone; no token is read. `windows` cuts, `pack` bins, `splice` places.
"""

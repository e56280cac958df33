"""Takes users' arguments → gives the objects they hold: `Store`, `Documents`, `Dataset`.

Thin on purpose: the work is done in the packages below; here arguments are parsed, checked and
described.
"""

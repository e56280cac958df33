"""Splices as others configure them: records, constructors and YAML, down to a `Dataset`."""

"""Takes the subject of a report → gives answers to what everybody asks, and warnings.

A module answers one question with `answer(subject)`, and gives the warnings that belong to it, the
gravest first, with `cautions(subject)`.
"""

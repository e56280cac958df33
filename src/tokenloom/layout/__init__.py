"""Layouts: frame index → spans, from document lengths alone."""

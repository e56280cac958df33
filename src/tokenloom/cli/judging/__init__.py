"""Takes a run, a store or a model → gives verdicts on it: audits, forecasts, losses, pages."""

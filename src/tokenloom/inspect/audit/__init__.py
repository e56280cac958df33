"""Takes a run, or anybody's batches → gives a verdict on every law, as a certificate.

- `tokenloom.inspect.audit_run` looks at an epoch, a range or a sample of a run.
- `tokenloom.inspect.audit_batches` judges batches and index lists, tokenloom's or any other.
- `tokenloom.inspect.check_certificate` computes a certificate again, all of it or a part.
"""

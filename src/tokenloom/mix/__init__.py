"""Several sources as one run: virtual times and their merge."""

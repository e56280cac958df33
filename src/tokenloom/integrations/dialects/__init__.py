"""Takes settings of another trainer → gives the run that they mean, and what is not used."""

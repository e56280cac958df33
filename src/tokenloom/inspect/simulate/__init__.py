"""Takes a run and the settings of a loader → gives what its steps will show, read and wait for."""

"""Takes a cache of Levanter → gives its description: leaves of flat Zarr arrays under a ledger."""

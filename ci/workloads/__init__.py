"""What `ci/programs` runs: real programs, how each is started, and what of it is compared."""

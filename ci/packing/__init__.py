"""What `ci/packages` builds and tries: a file for each kind of package, and what they share."""

"""`make demo`: the whole path on a corpus that every machine has."""

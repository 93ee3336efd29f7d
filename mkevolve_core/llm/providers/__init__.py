"""One file a dialect; each makes one attempt and raises nothing but `CallFailed`."""

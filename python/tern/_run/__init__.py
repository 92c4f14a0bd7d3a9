"""`tern run` starts the ranks of a job; `tern up` a daemon for ranks of another launcher."""

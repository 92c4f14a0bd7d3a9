"""`tern run`: starts the ranks of a job on one node or on several."""

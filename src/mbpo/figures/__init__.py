"""The figures, one file each: the only rooms that import matplotlib."""

"""One file a figure; the only place that imports matplotlib."""

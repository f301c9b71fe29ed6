"""Where transitions come from: the tasks, and the one adapter through which environments are driven."""

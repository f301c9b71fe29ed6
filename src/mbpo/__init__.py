"""Model-Based Policy Optimization: a good policy from few real steps."""

__version__ = "0.1.0"

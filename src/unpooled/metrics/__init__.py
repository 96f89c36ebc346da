"""Metrics of clusterings, and of predictions with their uncertainty."""

"""Metrics of clusterings (`clustering`), and of predictions with their uncertainty (`regression`). Nothing is sent."""

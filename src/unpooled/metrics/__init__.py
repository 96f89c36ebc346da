"""How good a fit is: metrics of clusters and of predictions with their uncertainty."""

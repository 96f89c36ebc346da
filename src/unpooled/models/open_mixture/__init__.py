"""OpenMixture: clusters when nobody knows how many and clients hold different ones."""

from unpooled.models.open_mixture.estimator import OpenMixture

__all__ = ["OpenMixture"]

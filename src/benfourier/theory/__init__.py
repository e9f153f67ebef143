"""The theory of Benford-Fourier coefficients in float64: NumPy and SciPy, no torch."""

from benfourier.theory.coefficients import (
    coefficient_magnitudes,
    coefficients,
    estimate_coefficients,
    estimate_magnitudes,
    magnitudes_of_rows,
)
from benfourier.theory.error_law import ExactLaw, RayleighLaw, noise_floor
from benfourier.theory.ggd import GGD
from benfourier.theory.ggd_fit import GGDFit, fit_ggd, fit_rows

__all__ = [
    "GGD",
    "ExactLaw",
    "GGDFit",
    "RayleighLaw",
    "coefficient_magnitudes",
    "coefficients",
    "estimate_coefficients",
    "estimate_magnitudes",
    "fit_ggd",
    "fit_rows",
    "magnitudes_of_rows",
    "noise_floor",
]

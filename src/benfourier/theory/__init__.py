"""The theory of Benford-Fourier coefficients in float64: NumPy and SciPy, no torch."""

from benfourier.theory.coefficients import (
    ProductForm,
    coefficient_magnitudes,
    coefficients,
    estimate_coefficients,
    estimate_magnitudes,
    magnitudes_of_rows,
    product_magnitudes,
)
from benfourier.theory.error_law import ErrorLaw, ExactLaw, RayleighLaw, noise_floor
from benfourier.theory.fitting import GGDFit, fit, moment_shape
from benfourier.theory.ggd import GGD

__all__ = [
    "GGD",
    "ErrorLaw",
    "ExactLaw",
    "GGDFit",
    "ProductForm",
    "RayleighLaw",
    "coefficient_magnitudes",
    "coefficients",
    "estimate_coefficients",
    "estimate_magnitudes",
    "fit",
    "magnitudes_of_rows",
    "moment_shape",
    "noise_floor",
    "product_magnitudes",
]

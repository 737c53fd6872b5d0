"""Tensors on other devices than the CPU, and what exchanges them in place of Gyre."""

"""This process's place in its job, process sets, and exchanges of NumPy arrays: what the interfaces to all frameworks
share. Imports none of them."""

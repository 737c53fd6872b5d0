"""The package in which newer platforms have the workers API; see gyre.cdsw."""

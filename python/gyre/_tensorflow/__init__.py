"""TensorFlow's tensors in Gyre's exchanges: what gyre.keras stands on."""

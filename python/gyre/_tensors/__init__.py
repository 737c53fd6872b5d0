"""torch's tensors as the engine sees them, below both faces: gyre.torch and gyre.distributed."""

"""torch's tensors as the engine sees them, used by both interfaces: gyre.torch and gyre.distributed."""

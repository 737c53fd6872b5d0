"""What Keras 3 no longer has of Keras 2, for programs that were written for that: scripts for Horovod 0.28 under
`--horovod-compat` (tensorflow_2.py), and those of 2018 under `--keras-2018`, which adds to it (gyre.keras_2018)."""

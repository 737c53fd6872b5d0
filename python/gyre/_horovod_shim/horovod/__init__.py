"""`import horovod` under `gyre run --horovod-compat`: see gyre.horovod."""

import gyre.horovod

gyre.horovod.load()

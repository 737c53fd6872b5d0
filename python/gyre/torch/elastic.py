"""Not available: importing it says so, also as horovod.torch.elastic."""

raise ImportError(
    "Gyre has no elastic training: a job has the ranks it was started with, and ends when one of them fails. Keep "
    "checkpoints, and let `gyre run --max-restarts N` start the script anew (docs/guide/from_horovod.md)"
)

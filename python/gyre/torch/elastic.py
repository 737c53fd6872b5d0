"""Not available: importing it says so, also as horovod.torch.elastic."""

from gyre._job.absent_names import NO_ELASTIC

raise ImportError(NO_ELASTIC)

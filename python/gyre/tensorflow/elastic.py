"""Not available: importing it says so, also as horovod.tensorflow.elastic."""

from gyre._job.absent_names import NO_ELASTIC

raise ImportError(NO_ELASTIC)

"""The programs that `gyre bench` starts as ranks: `gyre_*` are ours through Python, `gloo_*` and `openmpi_*` the
peers'.
Each takes `--result FILE`, where its rank 0 writes one JSON object."""

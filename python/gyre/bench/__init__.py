"""`gyre bench`: measures Gyre on this machine, compared with its bounds and its alternatives.

`gyre bench COMMAND --help` explains the commands; docs/guide/bench.md explains the figures. The modules: `__main__`
reads the command line; `allreduce`, `messages`, `moves`, `exchange`, `step`, `ps`, `jobs` and `loader` produce the rows
of one command each; `launch` starts the programs that they measure (`ranks`, and gyre-bench-rank and gyre-bench-step
for the C++ rows); `report` shows and writes rows; `models` has the networks.
"""

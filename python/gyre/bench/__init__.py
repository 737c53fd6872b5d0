"""`gyre bench`: what Gyre's exchange costs on this machine, compared with what it could cost and what others take.

`gyre bench VERB --help` explains the verbs; docs/guide/bench.md the figures. The modules: `command` reads the command
line, `allreduce`, `exchange` and `step` make the rows of one verb each, `launch` starts the programs they measure
(`ranks`, gyre-bench-rank and gyre-bench-step for the C++ rows), `report` shows and writes rows, `models` has the
networks.
"""

"""Modules of `horovod` that scripts import besides horovod.torch, one file for each. See gyre.horovod."""

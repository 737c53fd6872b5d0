"""What scripts import from `horovod` besides horovod.torch, one file for each of its modules. See gyre.horovod."""

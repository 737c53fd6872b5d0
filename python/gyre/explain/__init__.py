"""`gyre explain`: runs a job and says where its exchange's time went. docs/guide/explain.md has an example.

`report` reads and words what rank 0 wrote; `__main__` runs the job.
"""

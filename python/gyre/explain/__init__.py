"""`gyre explain`: runs a job and reports where its exchange spent its time. docs/guide/explain.md has an example.

With --workers it runs nothing, and compares ways to exchange gradients (`architecture`). `report` formats what rank 0
wrote; `__main__` runs the job.
"""

"""Starting jobs from Python: functions (gyre.run) and, behind `gyre run -H`, several hosts through ssh."""

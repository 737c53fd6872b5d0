"""Starting jobs from Python: functions (gyre.run), and where the program `gyre` is."""

"""Starting jobs from Python: functions (gyre.run), and finding the program `gyre`."""

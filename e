[0] python: can't open file '/work/wt/hosts/ar.py': [Errno 2] No such file or directory
gyre run: rank 0 of 2 failed first, 0.5 s after the start: exit code 2
  host         vm
  pid          17803
  others       1 rank was ended because of it: 1
  log file     none; `--log-dir DIR` keeps one for each rank
  its last lines
    | python: can't open file '/work/wt/hosts/ar.py': [Errno 2] No such file or directory
gyre explain: there is no account: the job ended before rank 0 had joined it, or rank 0 was killed before it left (a program that is not Python's must end by itself)

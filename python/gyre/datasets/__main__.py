import sys

from gyre.datasets import main

sys.exit(main())

"""How fast the code of a job comes to its nodes, compared in the same run with what one TLS stream for each node
carries, and with such streams whose receivers hash and write what comes: the service and the nodes are on this
machine, over TCP (bench/micro/code_bench.cc)."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

PROGRAM = Path(__file__).resolve().parent.parent / "build" / "release" / "bench" / "micro" / "code_bench"


def main() -> int:
    parser = argparse.ArgumentParser(prog="./dev bench code_transfer", description=__doc__)
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--megabytes", type=int, default=100, help="of the archive")
    parser.add_argument("--rounds", type=int, default=5, help="of both, in turn; the medians count")
    parser.add_argument("--json", metavar="FILE", type=Path, help="write the row here")
    asked = parser.parse_args()
    command = [PROGRAM, "--nodes", asked.nodes, "--megabytes", asked.megabytes, "--rounds", asked.rounds]
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        return done.returncode
    row = json.loads(done.stdout)
    if asked.json:
        asked.json.write_text(json.dumps([row], indent=1) + "\n")
    print(
        f"{row['megabytes']} MB to each of {row['nodes']} nodes: {row['code_mb_s']} MB/s in all, "
        f"{row['streams_mb_s']} MB/s by a TLS stream each (share {row['share']:.2f}), "
        f"{row['files_mb_s']} MB/s by streams into hashed files (share {row['share_of_files']:.2f})"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())

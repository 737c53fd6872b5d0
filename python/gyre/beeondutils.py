"""`beeondutils` of NAG's tutorial on CosmoFlow, done by `gyre stage`: nothing is downloaded to do it, every byte is
checked, and a staging that fails is an error.

    from gyre.beeondutils import pull_data_from_blob_sharded

    pull_data_from_blob_sharded("account", "container", "/mnt/beeond", "@sas.txt", total=4, index=node)

As a command: python -m gyre.beeondutils --account NAME --container NAME --sas @FILE --beeond-stage-dir DIR
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path

from gyre._command_line import Parser
from gyre.errors import Error, InvalidArgumentError
from gyre.launch.program import find_program

_FILES = (
    "*_???.tfrecord*"  # The tutorial's set ends with _000.tfrecord.gz to _063.tfrecord.gz, or the same without .gz.
)
_ARGUMENTS_BEGIN = 45  # In /proc/self/stat, behind the program's name.


def _hide_in_own_arguments(secret: str) -> bool:
    """Overwrites `secret` where the kernel shows this process's command line; whether it stood there."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    begin, end = (int(word) for word in fields[_ARGUMENTS_BEGIN : _ARGUMENTS_BEGIN + 2])
    found = False
    at = ctypes.string_at(begin, end - begin).find(secret.encode())
    while at >= 0:
        ctypes.memset(begin + at, ord("x"), len(secret.encode()))
        found = True
        at = ctypes.string_at(begin, end - begin).find(secret.encode())
    return found


def _is_named(sas: str) -> bool:
    """Whether a SAS is not the signature itself, but where it is."""
    return sas == "-" or sas.startswith(("@", "env:"))


def _share(total: int | None, index: int | None) -> tuple[int, int]:
    if (total is None) != (index is None):
        raise InvalidArgumentError("total and index belong together: of how many nodes, and which of them this is")
    if total is None or index is None:
        return 1, 0
    if total < 1:
        raise InvalidArgumentError(f"total is {total}; at least one node is needed")
    if not 0 <= index < total:
        raise InvalidArgumentError(f"index is {index}; with total={total} it is 0 to {total - 1}")
    return total, index


def pull_data_from_blob_sharded(
    account: str,
    container: str,
    dest: str | os.PathLike[str],
    sas: str,
    total: int | None = None,
    index: int | None = None,
) -> None:
    """Brings the files of a container whose names end with _NNN.tfrecord or _NNN.tfrecord.gz to `dest`/`container`,
    decompressed; with `total` and `index` those with NNN % total == index. What is there already stays.

    account: the storage account's name, or the URL of a blob service (an emulator's, or another cloud's).
    sas: the shared access signature: "@FILE", "env:NAME", "-" (standard input), or the signature itself. That warns if
        it stands on this process's command line, and is overwritten there at once.

    Error if not every file arrived, InvalidArgumentError for shares that there are not.
    """
    if not _is_named(sas) and _hide_in_own_arguments(sas):
        warnings.warn(
            "a signature on the command line can be read by others while the program starts, and stays in the shell's "
            "history; --sas @FILE, env:NAME and - do without",
            stacklevel=2,
        )
    total, index = _share(total, index)
    environment = dict(os.environ)
    service = f"https://{account}.blob.core.windows.net"
    if "://" in account:
        service = account.rstrip("/")
        name = service.rpartition("/")[2].partition(".")[0]
        environment["AZURE_STORAGE_CONNECTION_STRING"] = f"BlobEndpoint={service};AccountName={name}"
    command = [
        str(find_program()), "stage", "copy", f"{service}/{container}", os.fspath(dest), "--recursive", "--decompress",
        "--overwrite", "false", "--include-pattern", _FILES, "--shard", f"{index}/{total}", "--shard-by", "suffix",
        "--sas", sas if _is_named(sas) else "-",
    ]  # fmt: skip
    given = None if _is_named(sas) else sas
    done = subprocess.run(command, input=given, env=environment, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode == 0:
        sys.stderr.write(done.stderr)
        return
    reason = done.stderr.strip().removeprefix("gyre stage: ").removesuffix("\nSee `gyre stage --help`.")
    raise Error(f"the files of {container} did not all arrive in {os.fspath(dest)}: {reason}")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = Parser(
        prog="python -m gyre.beeondutils",
        description="Bring a container's numbered TFRecord files to a folder, as NAG's tutorial does.",
    )
    parser.add_argument("--account", required=True, help="storage account, or the URL of a blob service")
    parser.add_argument("--container", required=True, help="container; its name becomes a folder")
    parser.add_argument("--sas", required=True, help="signature: @FILE, env:NAME or - for standard input")
    parser.add_argument("--beeond-stage-dir", required=True, metavar="DIR", help="where the files go")
    parser.add_argument("--total", type=int, help="nodes that share the files")
    parser.add_argument("--index", type=int, help="which of them this is, from 0")
    words = parser.parse_args(arguments)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            pull_data_from_blob_sharded(
                words.account, words.container, words.beeond_stage_dir, words.sas, words.total, words.index
            )
        except Error as error:
            sys.stderr.write(f"{parser.prog}: {error}\n")
            return 2 if isinstance(error, InvalidArgumentError) else 1
        finally:
            for warning in said:
                sys.stderr.write(f"{parser.prog}: {warning.message}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

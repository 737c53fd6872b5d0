"""horovod.common.util: queries about what was built, and small helpers that scripts use. Answers about other libraries
are truthful, as those of gyre._job.introspection."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import itertools
import os
import re
import sysconfig
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from gyre.errors import InvalidArgumentError

__all__ = [
    "EXTENSIONS",
    "ccl_built",
    "check_extension",
    "check_installed_version",
    "ddl_built",
    "env",
    "extension_available",
    "get_average_backwards_compatibility_fun",
    "get_ext_suffix",
    "get_extension_full_path",
    "gloo_built",
    "gpu_available",
    "is_iterable",
    "is_version_greater_equal_than",
    "mpi_built",
    "nccl_built",
    "num_rank_is_power_2",
    "split_list",
]

Item = TypeVar("Item")

EXTENSIONS = ["torch", "tensorflow", "keras"]
"""The frameworks that Gyre has an interface for."""


def extension_available(ext_base_name: str, verbose: bool = False) -> bool:
    """Whether `import horovod.NAME` works."""
    available = ext_base_name in EXTENSIONS and importlib.util.find_spec(ext_base_name) is not None
    if verbose:
        print(f"horovod.{ext_base_name} {'can' if available else 'cannot'} be imported under Gyre.")
    return available


def check_extension(ext_name: str, ext_env_var: str, pkg_path: str, *args: str) -> None:
    """ImportError for a framework without an interface. The last three arguments are for compatibility with Horovod."""
    del ext_env_var, pkg_path, args
    framework = ext_name.rpartition(".")[2]
    if framework not in EXTENSIONS:
        raise ImportError(
            f"{ext_name} does not exist under Gyre, which has {', '.join(f'horovod.{name}' for name in EXTENSIONS)}"
        )
    if importlib.util.find_spec(framework) is None:
        raise ImportError(f"{ext_name} needs the package {framework}, which is not installed")


def gpu_available(ext_base_name: str, verbose: bool = False) -> bool:
    """Whether torch sees a GPU. (Gyre exchanges tensors in host memory only.)"""
    available = extension_available(ext_base_name) and bool(importlib.import_module("torch").cuda.is_available())
    if verbose:
        print(f"{ext_base_name} {'sees a' if available else 'sees no'} GPU.")
    return available


def mpi_built(verbose: bool = False) -> bool:
    """False: see gyre._job.introspection, as for all of these."""
    return _built("MPI", verbose)


def gloo_built(verbose: bool = False) -> bool:
    """False."""
    return _built("Gloo", verbose)


def nccl_built(verbose: bool = False) -> int:
    """0."""
    return int(_built("NCCL", verbose))


def ddl_built(verbose: bool = False) -> bool:
    """False."""
    return _built("DDL", verbose)


def ccl_built(verbose: bool = False) -> bool:
    """False."""
    return _built("oneCCL", verbose)


def _built(library: str, verbose: bool) -> bool:
    if verbose:
        print(f"Gyre is not built with {library}: it has its own transport.")
    return False


def get_ext_suffix() -> str:
    """The suffix of extension modules' file names."""
    return str(sysconfig.get_config_var("EXT_SUFFIX") or ".so")


def get_extension_full_path(pkg_path: str, *args: str) -> str:
    """The file of the extension module whose name is the last argument, in folders below that of `pkg_path`."""
    if not args:
        raise InvalidArgumentError("the name of an extension module is needed")
    return os.path.join(os.path.dirname(pkg_path), *args[:-1], args[-1] + get_ext_suffix())


@contextlib.contextmanager
def env(**kwargs: str | None) -> Iterator[None]:
    """Sets these variables within the `with` statement, then restores them. None leaves a variable unchanged."""
    changed = {name: value for name, value in kwargs.items() if value is not None}
    before = {name: os.environ.get(name) for name in changed}
    os.environ.update(changed)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def get_average_backwards_compatibility_fun(reduce_ops: Any) -> Callable[[Any, bool | None], Any]:
    """(op, average) -> the operation meant: `reduce_ops.Average` or `.Sum` if only `average` is given."""

    def operation_of(op: Any, average: bool | None) -> Any:
        if average is None:
            return reduce_ops.Average if op is None else op
        if op is not None:
            raise InvalidArgumentError("give either op or the deprecated average, not both")
        warnings.warn("average is deprecated: use op=Average or op=Sum", DeprecationWarning, stacklevel=2)
        return reduce_ops.Average if average else reduce_ops.Sum

    return operation_of


def num_rank_is_power_2(num_rank: int) -> bool:
    return num_rank > 0 and num_rank.bit_count() == 1


def split_list(l: Sequence[Item], n: int) -> list[Sequence[Item]]:  # noqa: E741  Horovod's name.
    """`n` pieces in order; the first ones are longer by one if the length is not divisible."""
    length, longer = divmod(len(l), n)
    begins = [index * length + min(index, longer) for index in range(n + 1)]
    return [l[begin:end] for begin, end in itertools.pairwise(begins)]


def check_installed_version(name: str, version: str, exception: Exception | None = None) -> None:
    """Nothing to check: Gyre's Python side is not compiled for one version of a framework. Raises `exception` again, if
    given one."""
    del name, version
    if exception is not None:
        raise exception


def is_iterable(x: object) -> bool:
    try:
        iter(x)  # type: ignore[call-overload]
    except TypeError:
        return False
    return True


def is_version_greater_equal_than(ver: str, target: str) -> bool:
    """Whether release `ver` is `target` (major.minor.patch) or newer; suffixes such as that of 2.1.0+cpu are ignored,
    but a release candidate or development build is older than its release."""
    if not isinstance(ver, str) or not isinstance(target, str):
        raise InvalidArgumentError(f"versions must be strings, not {ver!r} and {target!r}")
    if target.count(".") != 2:
        raise InvalidArgumentError(f"the version to compare with must have the form major.minor.patch, not {target!r}")
    return _release(ver) >= _release(target)


def _release(version: str) -> tuple[list[int], bool]:
    match = re.match(r"v?(\d+(?:\.\d+)*)(.*)", version.strip())
    if match is None:
        raise InvalidArgumentError(f"{version!r} does not begin with a version number")
    numbers = [int(number) for number in match.group(1).split(".")]
    early = re.match(r"[-_.]?(a|b|c|rc|alpha|beta|pre|preview|dev)[-_.]?\d*", match.group(2), re.IGNORECASE)
    return [*numbers, *[0] * (3 - len(numbers))], early is None

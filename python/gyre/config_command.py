"""`gyre-config`: where C++ programs find Gyre: beside this package in a wheel, in the build folder in a checkout."""

from __future__ import annotations

import sys
from pathlib import Path

from gyre import __version__
from gyre._command_line import Parser

EXAMPLES = """\
examples:
  cmake -S . -B build -Dgyre_DIR="$(gyre-config --cmake-dir)"
  PKG_CONFIG_PATH="$(gyre-config --pkg-config-dir)" pkg-config --cflags --libs gyre
"""
PACKAGE = Path(__file__).resolve().parent


def find_libraries(package: Path = PACKAGE) -> Path | None:
    """The folder of libgyre, which contains the folders of CMake's and pkg-config's files."""
    # python/gyre of a checkout never has a folder lib of its own.
    places = (package / "lib", package.parents[1] / "build" / "release" / "lib")
    return next((place for place in places if any(place.glob("libgyre.so.*"))), None)


def main(arguments: list[str] | None = None) -> int:
    parser = Parser(
        prog="gyre-config",
        description="Print where CMake or pkg-config finds Gyre's C++ libraries.",
        epilog=EXAMPLES,
        raw=True,
    )
    parser.add_argument("--cmake-dir", action="store_true", help="the folder of gyreConfig.cmake")
    parser.add_argument("--pkg-config-dir", action="store_true", help="the folder of gyre.pc")
    parser.add_argument("--version", action="version", version=__version__)
    chosen = parser.parse_args(arguments)
    if not chosen.cmake_dir and not chosen.pkg_config_dir:
        parser.error("missing option: --cmake-dir or --pkg-config-dir")
    libraries = find_libraries()
    if libraries is None:
        print(
            f"gyre-config: the Gyre in {PACKAGE} has no C++ libraries; in a checkout, run `./dev build`",
            file=sys.stderr,
        )
        return 1
    if chosen.cmake_dir:
        print(libraries / "cmake" / "gyre")
    if chosen.pkg_config_dir:
        print(libraries / "pkgconfig")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""What a rank of a test runs: `python rank_main.py TEST_FILE FUNCTION` calls that function of that file."""

import importlib.util
import sys
from pathlib import Path


def main() -> None:
    path, function = sys.argv[1:3]
    spec = importlib.util.spec_from_file_location(Path(path).stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    getattr(module, function)()


if __name__ == "__main__":
    main()

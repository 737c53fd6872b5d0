"""The layers are only as firm as the checker: every kind of violation is planted once and must be found."""

from pathlib import Path

import pytest
from check_layers import problems


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("gyre/net/stream.h", '#include "gyre/base/error.h"'),
        ("gyre/engine/engine.cc", '#include "gyre/collectives/ring.h"'),
        ("gyre/train/optimizer.cc", '#include "gyre/engine/engine.h"'),
        ("gyre/train/optimizer.cc", "#include <torch/all.h>"),
        ("gyre/net/tcp/stream.cc", '#include "gyre/net/internal/frame_reader.h"'),
        ("gyre/net/stream_test.cc", '#include "gyre/net/internal/frame_reader.h"'),
        ("tests/conformance/group_test.cc", '#include "gyre/group/internal/messages.h"'),
        ("apps/gyre/main.cc", '#include "apps/gyre/run.h"'),
        ("workloads/cifar10/main.cc", "#include <torch/all.h>"),
        ("bench/ring.cc", '#include "gyre/collectives/ring.h"'),
        ("gyre/base/error.cc", "#include <vector>"),
        ("gyre/jobs/node/node_job.cc", '#include "gyre/jobs/spec/job_spec.h"'),
        ("gyre/jobs/node/node_job.cc", '#include "gyre/launch/spec.h"'),
        ("apps/gyre/job.cc", '#include "gyre/jobs/http/server.h"'),
    ],
)
def test_what_the_house_allows_passes(repository: Path, plant, path: str, line: str) -> None:
    plant(path, f"{line}\n")
    assert problems(repository) == []


@pytest.mark.parametrize(
    ("path", "line", "message"),
    [
        ("gyre/base/error.cc", '#include "gyre/net/stream.h"', "must not look up to net"),
        ("gyre/collectives/ring.cc", '#include "gyre/data/sampler.h"', "siblings"),
        ("gyre/engine/engine.cc", '#include "gyre/params/shard.h"', "siblings"),
        ("gyre/data/reader.cc", '#include "gyre/net/stream.h"', "knows nothing of net"),
        ("gyre/engine/engine.cc", "#include <torch/all.h>", "libtorch"),
        ("gyre/base/error.h", "  #  include <c10/util/Half.h>", "libtorch"),
        ("apps/gyre/main.cc", "#include <ATen/ATen.h>", "libtorch"),
        ("gyre/group/group.cc", '#include "gyre/net/internal/frame_reader.h"', "private to gyre/net"),
        ("gyre/net/tcp/stream.cc", '#include "gyre/net/unix/internal/path.h"', "private to gyre/net/unix"),
        ("tests/conformance/group_test.cc", '#include "gyre/net/internal/frame_reader.h"', "private to gyre/net"),
        ("gyre/engine/engine.cc", '#include "gyre/magic/wand.h"', "not a folder of the house"),
        ("gyre/engine/engine.cc", '#include "apps/gyre/run.h"', "included by nobody"),
        ("workloads/resnet50/main.cc", '#include "workloads/cifar10/network.h"', "included by nobody"),
        ("gyre/net/stream.cc", '#include "stream.h"', "not a path from the root"),
        ("gyre/magic/wand.cc", "#include <vector>", "has no level"),
        ("gyre/wand.cc", "#include <vector>", "no room"),
        ("attic/wand.cc", "#include <vector>", "no room"),
        ("gyre/jobs/spec/parse.cc", '#include "gyre/jobs/node/node_job.h"', "jobs/spec must not look up to jobs/node"),
        ("gyre/jobs/spec/parse.cc", '#include "gyre/jobs/magic/wand.h"', "not a room of gyre/jobs"),
        ("gyre/jobs/spec/parse.cc", '#include "gyre/engine/engine.h"', "jobs knows nothing of engine"),
        ("gyre/jobs/magic/wand.cc", "#include <vector>", "none of the rooms of gyre/jobs"),
        ("gyre/jobs/wand.cc", "#include <vector>", "none of the rooms of gyre/jobs"),
    ],
)
def test_a_planted_violation_is_found(repository: Path, plant, path: str, line: str, message: str) -> None:
    plant("gyre/base/innocent.h", "#include <vector>\n")
    plant(path, f"// A first line.\n{line}\n")
    (found,) = problems(repository)
    assert found.startswith(path)
    assert message in found


def test_the_line_number_is_named(repository: Path, plant) -> None:
    plant("gyre/base/a.h", '\n\n#include "gyre/net/b.h"\n')
    (found,) = problems(repository)
    assert found.startswith("gyre/base/a.h:3: ")


def test_includes_that_come_back_are_found_as_one_circle(repository: Path, plant) -> None:
    plant("gyre/base/a.h", '#include "gyre/base/b.h"\n')
    plant("gyre/base/b.h", '#include "gyre/base/c.h"\n#include "gyre/base/d.h"\n')
    plant("gyre/base/c.h", '#include "gyre/base/a.h"\n')
    plant("gyre/base/d.h", "#include <vector>\n")
    (found,) = problems(repository)
    assert found == "a circle of includes: gyre/base/a.h -> gyre/base/b.h -> gyre/base/c.h -> gyre/base/a.h"


TYPES_ONLY = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from gyre.{} import Group\n"


@pytest.mark.parametrize(
    ("path", "line", "message"),
    [
        ("python/gyre/errors.py", "from gyre import launch", "errors (level 0) must not look up to launch"),
        ("python/gyre/torch/state.py", "def f():\n    import gyre.distributed", "must not look up to distributed"),
        ("python/gyre/launch/call.py", "from gyre.data import Loader", "siblings"),
        ("python/gyre/magic.py", "import os", "has no level"),
        (
            "python/gyre/torch/state.py",
            "from gyre.torch import init",
            "a circle of imports: gyre.torch -> gyre.torch.state",
        ),
        ("python/gyre/torch/state.py", "from gyre.torch import handle", ""),
        ("python/gyre/torch/state.py", TYPES_ONLY.format("distributed"), ""),
        ("python/gyre/torch/state_test.py", "import gyre.distributed", ""),
        ("python/gyre/distributed/group.py", "from gyre.torch import handle", ""),
        ("python/gyre/distributed/group.py", "def f():\n    from gyre import torch_backend", "a circle of imports"),
    ],
)
def test_pythons_imports_keep_to_the_levels_and_come_back_nowhere(
    repository: Path, plant, path: str, line: str, message: str
) -> None:
    plant("python/gyre/__init__.py", "")
    for name in ("launch", "distributed"):
        plant(f"python/gyre/{name}/__init__.py", "")
    plant("python/gyre/data/__init__.py", "")
    plant("python/gyre/torch/__init__.py", "from gyre.torch.state import init\n")
    plant("python/gyre/torch/handle.py", "")
    # Importing a module runs its package first.
    plant("python/gyre/torch_backend.py", "def f():\n    import gyre.distributed.group\n")
    plant("python/gyre/distributed/__init__.py", "from gyre.distributed import group\n")
    plant(path, f"{line}\n")
    found = problems(repository)
    assert any(message in one for one in found) if message else found == []

"""What a rank checks of a result, and of a wrong use."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    import torch


def check(result: torch.Tensor, wanted: torch.Tensor) -> None:
    import torch  # noqa: PLC0415  The ranks of tests/tensorflow have none.

    assert result.dtype == wanted.dtype
    torch.testing.assert_close(result, wanted)


def fails_with(kind: type[BaseException], call: Callable[[], object]) -> str:
    """What the error says."""
    with pytest.raises(kind) as caught:
        call()
    return str(caught.value)

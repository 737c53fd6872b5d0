"""What a rank checks of a result, and of a wrong use."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch


def check(result: torch.Tensor, wanted: torch.Tensor) -> None:
    assert result.dtype == wanted.dtype
    torch.testing.assert_close(result, wanted)


def fails_with(kind: type[BaseException], call: Callable[[], object]) -> str:
    """What the error says."""
    with pytest.raises(kind) as caught:
        call()
    return str(caught.value)

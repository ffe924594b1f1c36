"""Turns texts into a block on all cores: each process reads a share, and their blocks are joined."""

from __future__ import annotations

import logging
import pickle
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any, TypeAlias

from gpumatch.errors import GpumatchError
from gpumatch.expr.normal import Splitting
from gpumatch.parallel.processes import run_module
from gpumatch.parallel.threads import get_num_threads
from gpumatch.subscriptions.block import Attributes, Block
from gpumatch.subscriptions.merge import join_blocks
from gpumatch.subscriptions.texts import text_block

_Share: TypeAlias = "tuple[Attributes, Sequence[Any], Splitting]"
_Read: TypeAlias = "tuple[Block, dict[int, GpumatchError]]"

_LOG = logging.getLogger("gpumatch")
_SHARE = 50_000  # expressions that take much longer to read than a process takes to start


def shared_block(attributes: Attributes, texts: Sequence[Any], splitting: Splitting) -> _Read:
    """``text_block`` with a process per thread, if there are enough texts."""
    count = min(get_num_threads(), len(texts) // _SHARE)
    if count < 2:
        return text_block(attributes, texts, splitting)
    bounds = [len(texts) * at // count for at in range(count + 1)]
    own, *others = [(attributes, texts[first:last], splitting) for first, last in pairwise(bounds)]
    with ThreadPoolExecutor(len(others), "gpumatch-read") as pool:
        reading = [pool.submit(_elsewhere, share) for share in others]
        read = [text_block(*own), *(one.result() for one in reading)]
    block = join_blocks(attributes, [block for block, _ in read], [None] * count)
    starts = zip(bounds[:-1], read, strict=True)
    return block, {first + row: error for first, (_, errors) in starts for row, error in errors.items()}


def _elsewhere(share: _Share) -> _Read:
    try:
        found: _Read = pickle.loads(run_module(__name__, given=pickle.dumps(share)))
    except Exception as error:  # whatever it is, this process can do the work
        _LOG.warning("expressions are read in this process instead: %s; set_num_threads(1) starts no other", error)
        return text_block(*share)
    return found


if __name__ == "__main__":
    pickle.dump(text_block(*pickle.load(sys.stdin.buffer)), sys.stdout.buffer)

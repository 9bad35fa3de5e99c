"""Kernels whose compiled variants are compared: what decides whether two of them are one tree is the layout of their reductions."""

import triton
import triton.language as tl


@triton.jit
def row_sum(x, y, M, N, stride, BLOCK: tl.constexpr):
    """One program a row; the order inside the sum is the layout's."""
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    v = tl.load(x + row * stride + cols, mask=(cols < N) & (row < M), other=0.0)
    tl.store(y + row, tl.sum(v, axis=0), mask=row < M)


@triton.jit
def row_max(x, y, M, N, stride, BLOCK: tl.constexpr):
    """As row_sum, with a combiner that no order changes."""
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    v = tl.load(x + row * stride + cols, mask=(cols < N) & (row < M), other=float("-inf"))
    tl.store(y + row, tl.max(v, axis=0), mask=row < M)

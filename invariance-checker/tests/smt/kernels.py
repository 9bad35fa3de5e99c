"""Kernels whose index arithmetic the built-in provers do not decide, and an SMT solver does; and one for which the solver must not help.

`python3 make.py` in this folder writes the TTIR and index.tsv.
"""
import triton
import triton.language as tl

CASES = []
F, I = "*fp32", "i32"


def case(without, within, why, sig, ce=None):
    """Verdict without a solver, and with one."""
    def deco(fn):
        CASES.append(dict(fn=fn, name=fn.__name__, without=without, within=within, why=why, sig=sig, ce=ce or {}))
        return fn
    return deco


@case("INVARIANT UNDER", "INVARIANT", "a mask that is an alternative of two bounds, both within the row",
      dict(x=F, y=F, stride=I, A=I, B=I), dict(BLOCK=256))
@triton.jit
def either_of_two_bounds(x, y, stride, A, B, BLOCK: tl.constexpr):
    tl.assume(A <= stride)
    tl.assume(B <= stride)
    r = tl.program_id(0)
    o = tl.arange(0, BLOCK)
    v = tl.load(x + r * stride + o, mask=(o < A) | (o < B), other=0.0)
    tl.store(y + r, tl.sum(v, 0))


@case("UNKNOWN", "INVARIANT", "a window that wraps around within the row, by condition",
      dict(x=F, y=F, stride=I, N=I, first=I), dict(BLOCK=256))
@triton.jit
def wraps_by_condition(x, y, stride, N, first, BLOCK: tl.constexpr):
    tl.assume(first >= 0)
    tl.assume(first < N)
    tl.assume(N <= stride)
    r = tl.program_id(0)
    o = tl.arange(0, BLOCK)
    at = tl.where(first + o < N, first + o, first + o - N)
    v = tl.load(x + r * stride + at, mask=o < N, other=0.0)
    tl.store(y + r, tl.sum(v, 0))


@case("INVARIANT UNDER", "INVARIANT UNDER", "one of the two bounds is not within the row",
      dict(x=F, y=F, stride=I, A=I, B=I), dict(BLOCK=256))
@triton.jit
def one_of_two_bounds(x, y, stride, A, B, BLOCK: tl.constexpr):
    tl.assume(A <= stride)
    r = tl.program_id(0)
    o = tl.arange(0, BLOCK)
    v = tl.load(x + r * stride + o, mask=(o < A) | (o < B), other=0.0)
    tl.store(y + r, tl.sum(v, 0))

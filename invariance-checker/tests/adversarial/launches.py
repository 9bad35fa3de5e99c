"""Adversarial kernels, continued: what is stored, what is remembered, and what the launch and its schedule decide."""
import triton
import triton.language as tl

from kernels import I, N64, P, ROWS, XY, case


# ------------------------------------------------------------------ store sites
@case("NOT", "the store site, and with it the order of addition, is chosen by program id", XY,
      dict(x="rows:64", y="out:1", M="batch"), "M", dict(N=64, B=16))
@triton.jit
def site_chosen_by_program(x, y, M, N: tl.constexpr, B: tl.constexpr):
    r = tl.program_id(0)
    o = tl.arange(0, N)
    b = tl.arange(0, B)
    if r < M // 2:
        tl.store(y + r, tl.sum(tl.load(x + r * N + o), 0))
    else:
        acc = tl.zeros((B,), tl.float32)
        for s in range(0, N, B):
            acc += tl.load(x + r * N + s + b)
        tl.store(y + r, tl.sum(acc, 0))


@case("INV", "two store sites with complementary guards and one value", XY, ROWS, "M", N64)
@triton.jit
def two_sites_one_value(x, y, M, N: tl.constexpr):
    r = tl.program_id(0)
    o = tl.arange(0, N)
    v = tl.load(x + r * N + o) * 0.5
    if r < M // 2:
        tl.store(y + r * N + o, v)
    else:
        tl.store(y + r * N + o, v)


@case("NOT", "a later store overwrites column M", XY, ROWS, "M", N64)
@triton.jit
def later_site_at_column_m(x, y, M, N: tl.constexpr):
    r = tl.program_id(0)
    o = tl.arange(0, N)
    tl.store(y + r * N + o, tl.load(x + r * N + o))
    tl.store(y + r * N + M % N, 0.0)


@case("NOT", "every program also writes row 0", XY, ROWS, "M", N64)
@triton.jit
def everyone_writes_row_zero(x, y, M, N: tl.constexpr):
    r = tl.program_id(0)
    o = tl.arange(0, N)
    v = tl.load(x + r * N + o)
    tl.store(y + r * N + o, v)
    tl.store(y + o, v)


@case("NOT", "the last tile of rows is done in another precision", XY, dict(x="rows:64", y="out:1", M="batch"), "M/4",
      dict(N=64, BM=4))
@triton.jit
def edge_tile_in_half(x, y, M, N: tl.constexpr, BM: tl.constexpr):
    p = tl.program_id(0)
    r = p * BM + tl.arange(0, BM)
    o = tl.arange(0, N)
    if (p + 1) * BM <= M:
        v = tl.load(x + r[:, None] * N + o[None, :])
        tl.store(y + r, tl.sum(v, 1))
    else:
        v = tl.load(x + r[:, None] * N + o[None, :], mask=(r < M)[:, None], other=0.0)
        tl.store(y + r, tl.sum(v.to(tl.float16), 1).to(tl.float32), mask=r < M)


@case("INV", "the last tile of rows only adds masks", XY, dict(x="rows:64", y="out:1", M="batch"), "M/4", dict(N=64, BM=4))
@triton.jit
def edge_tile_masked(x, y, M, N: tl.constexpr, BM: tl.constexpr):
    p = tl.program_id(0)
    r = p * BM + tl.arange(0, BM)
    o = tl.arange(0, N)
    if (p + 1) * BM <= M:
        v = tl.load(x + r[:, None] * N + o[None, :])
        tl.store(y + r, tl.sum(v, 1))
    else:
        v = tl.load(x + r[:, None] * N + o[None, :], mask=(r < M)[:, None], other=0.0)
        tl.store(y + r, tl.sum(v, 1), mask=r < M)


@case("NOT", "returns early when a flag of the batch is set", dict(x=P, flag="*i32", y=P), dict(x="rows:64", flag="varbuf:1", y="out:64"),
      "M", N64, batch="*flag")
@triton.jit
def early_return_on_flag(x, flag, y, N: tl.constexpr):
    r = tl.program_id(0)
    o = tl.arange(0, N)
    if tl.load(flag) > 1:
        return
    tl.store(y + r * N + o, tl.load(x + r * N + o))


# ------------------------------------------------------------------ what an accumulator remembers
@case("NOT", "a persistent loop does not reset its accumulator between rows", XY,
      dict(x="rows:64", y="out:1", M="batch"), "2", N64)
@triton.jit
def accumulator_not_reset(x, y, M, N: tl.constexpr):
    o = tl.arange(0, N)
    acc = tl.zeros((N,), tl.float32)
    for r in range(tl.program_id(0), M, 2):
        acc += tl.load(x + r * N + o)
        tl.store(y + r, tl.sum(acc, 0))


@case("INV", "a persistent loop that resets its accumulator", XY, dict(x="rows:64", y="out:1", M="batch"), "2",
      dict(N=64, B=16))
@triton.jit
def accumulator_reset(x, y, M, N: tl.constexpr, B: tl.constexpr):
    o = tl.arange(0, B)
    for r in range(tl.program_id(0), M, 2):
        acc = tl.zeros((B,), tl.float32)
        for s in range(0, N, B):
            acc += tl.load(x + r * N + s + o)
        tl.store(y + r, tl.sum(acc, 0))


@case("NOT", "keeps a running maximum over the rows of its program", XY, dict(x="rows:64", y="out:64", M="batch"), "2", N64)
@triton.jit
def maximum_over_earlier_rows(x, y, M, N: tl.constexpr):
    o = tl.arange(0, N)
    top = tl.full((N,), float("-inf"), tl.float32)
    for r in range(tl.program_id(0), M, 2):
        v = tl.load(x + r * N + o)
        top = tl.maximum(top, v)
        tl.store(y + r * N + o, v - tl.max(top, 0))


# ------------------------------------------------------------------ batch-wide data and launch geometry
@case("NOT", "a dynamic scale of the whole tensor", dict(x=P, amax=P, y=P), dict(x="rows:64", amax="varbuf:1", y="out:64"), "M",
      N64, batch="*amax")
@triton.jit
def dynamic_tensor_scale(x, amax, y, N: tl.constexpr):
    r = tl.program_id(0)
    o = tl.arange(0, N)
    tl.store(y + r * N + o, tl.load(x + r * N + o) / tl.load(amax))


@case("INV", "a static scale for each column", dict(x=P, w=P, y=P), dict(x="rows:64", w="shared:64", y="out:64"), "M", N64, batch="")
@triton.jit
def column_scale(x, w, y, N: tl.constexpr):
    r = tl.program_id(0)
    o = tl.arange(0, N)
    tl.store(y + r * N + o, tl.load(x + r * N + o) / tl.load(w + o))


@case("NOT", "the value is scaled by the size of the grid", dict(x=P, y=P), dict(x="rows:64", y="out:64"), "M", N64, batch="")
@triton.jit
def scaled_by_grid(x, y, N: tl.constexpr):
    r = tl.program_id(0)
    o = tl.arange(0, N)
    tl.store(y + r * N + o, tl.load(x + r * N + o) * tl.num_programs(0))


@case("NOT", "the split of the sum is the second extent of the grid", dict(x=P, part=P, y=P),
      dict(x="rows:64", part="scratch:64", y="out:1"), "M", dict(N=64), batch="")
@triton.jit
def splits_from_grid(x, part, y, N: tl.constexpr):
    r = tl.program_id(0)
    o = tl.arange(0, N)
    n = tl.minimum(tl.num_programs(0), 8)
    width = tl.cdiv(N, n)
    acc = 0.0
    for s in range(0, n):
        k = s * width + o
        acc += tl.sum(tl.load(x + r * N + k, mask=(o < width) & (k < N), other=0.0), 0)
    tl.store(y + r, acc)


@case("NOT", "rounds to half when the batch is large", XY, dict(x="rows:64", y="out:1", M="batch"), "M", N64)
@triton.jit
def precision_by_batch(x, y, M, N: tl.constexpr):
    r = tl.program_id(0)
    o = tl.arange(0, N)
    v = tl.load(x + r * N + o)
    if M > 5:
        v = v.to(tl.float16).to(tl.float32)
    tl.store(y + r, tl.sum(v, 0))


@case("NOT", "rows in the upper half of the batch take another formula", XY, ROWS, "M", N64)
@triton.jit
def upper_half_doubled(x, y, M, N: tl.constexpr):
    r = tl.program_id(0)
    o = tl.arange(0, N)
    v = tl.load(x + r * N + o)
    tl.store(y + r * N + o, tl.where(r < M // 2, v, v * 3.0))


@case("IDX", "the value depends on the row's own number, not on the batch", XY, ROWS, "M", N64)
@triton.jit
def parity_of_row(x, y, M, N: tl.constexpr):
    r = tl.program_id(0)
    o = tl.arange(0, N)
    v = tl.load(x + r * N + o)
    tl.store(y + r * N + o, tl.where(r % 2 == 0, v, -v))


@case("IDX", "noise keyed by the flat output index", dict(x=P, y=P, seed=I), dict(x="rows:64", y="out:64", seed="7"), "M", N64, batch="")
@triton.jit
def noise_by_flat_index(x, y, seed, N: tl.constexpr):
    i = tl.program_id(0) * N + tl.arange(0, N)
    tl.store(y + i, tl.load(x + i) + tl.rand(seed, i))


@case("INV", "noise keyed by the request's own seed and the column", dict(x=P, seeds="*i32", y=P),
      dict(x="rows:64", seeds="rowint:0:1000", y="out:64"), "M", N64, batch="")
@triton.jit
def noise_by_own_seed(x, seeds, y, N: tl.constexpr):
    r = tl.program_id(0)
    o = tl.arange(0, N)
    tl.store(y + r * N + o, tl.load(x + r * N + o) + tl.rand(tl.load(seeds + r), o))


@case("INV", "grouped program order: how a program found its row cancels", XY, dict(x="rows:64", y="out:64", M="batch"), "M*64/64",
      dict(N=64, G=4))
@triton.jit
def grouped_program_order(x, y, M, N: tl.constexpr, G: tl.constexpr):
    p = tl.program_id(0)
    first = (p // G) * G
    size = tl.minimum(M - first, G)
    r = first + (size - 1 - p % G)
    o = tl.arange(0, N)
    if r >= 0:
        tl.store(y + r * N + o, tl.load(x + r * N + o) + 1.0)


# ------------------------------------------------------------------ atomics and scheduling
@case("NOT", "a ticket is stored", dict(x=P, counter="*i32", y=P), dict(x="rows:64", counter="scratch:1", y="out:64"), "M", N64, batch="")
@triton.jit
def ticket_as_value(x, counter, y, N: tl.constexpr):
    r = tl.program_id(0)
    o = tl.arange(0, N)
    t = tl.atomic_add(counter, 1)
    tl.store(y + r * N + o, tl.load(x + r * N + o) + t)


@case("INV", "a ticket chooses the row", dict(x=P, counter="*i32", y=P), dict(x="rows:64", counter="scratch:1", y="out:64"), "M", N64, batch="")
@triton.jit
def ticket_as_row(x, counter, y, N: tl.constexpr):
    o = tl.arange(0, N)
    t = tl.atomic_add(counter, 1)
    tl.store(y + t * N + o, tl.load(x + t * N + o) * 2.0)


@case("NOT", "two programs add their halves of a row atomically to what a third wrote", dict(x=P, y=P, M=I), dict(x="rows:64", y="out:1", M="batch"),
      "M*4/1", dict(N=64, B=16))
@triton.jit
def row_sum_by_float_atomics(x, y, M, N: tl.constexpr, B: tl.constexpr):
    p = tl.program_id(0)
    o = tl.arange(0, B)
    r = p // 4
    tl.atomic_add(y + r, tl.sum(tl.load(x + r * N + (p % 4) * B + o), 0), sem="relaxed")


@case("INV", "one atomic addition for each address", XY, dict(x="rows:64", y="out:1", M="batch"), "M", N64)
@triton.jit
def one_float_atomic_each(x, y, M, N: tl.constexpr):
    r = tl.program_id(0)
    o = tl.arange(0, N)
    tl.atomic_add(y + r, tl.sum(tl.load(x + r * N + o), 0), sem="relaxed")


@case("INV", "integer atomics count each row's own bins", dict(x="*i32", y="*i32"), dict(x="rows:64", y="out:16"), "M", dict(N=64, B=16), batch="")
@triton.jit
def integer_histogram_of_row(x, y, N: tl.constexpr, B: tl.constexpr):
    r = tl.program_id(0)
    o = tl.arange(0, N)
    v = tl.load(x + r * N + o) & (B - 1)
    tl.atomic_add(y + r * B + v, tl.full((N,), 1, tl.int32), sem="relaxed")


@case("NOT", "an integer maximum over the batch: order-free, but it mixes rows", dict(x="*i32", top="*i32", y="*i32"),
      dict(x="rows:64", top="scratch:1", y="out:1"), "M", N64, batch="")
@triton.jit
def integer_maximum_of_batch(x, top, y, N: tl.constexpr):
    r = tl.program_id(0)
    o = tl.arange(0, N)
    tl.atomic_max(top, tl.max(tl.load(x + r * N + o), 0))
    tl.store(y + r, tl.load(top))


@case("NOT", "reads the output of the row before", XY, dict(x="rows:64", y="out:64", M="batch"), "M", N64)
@triton.jit
def reads_previous_output(x, y, M, N: tl.constexpr):
    r = tl.program_id(0)
    o = tl.arange(0, N)
    before = tl.load(y + (r - 1) * N + o, mask=(r > 0) & (o < N), other=0.0)
    tl.store(y + r * N + o, tl.load(x + r * N + o) + before)


@case("NOT", "in place, but reads the next row, which another program overwrites", dict(x=P, M=I), dict(x="inout:64", M="batch"), "M", N64)
@triton.jit
def in_place_next_row(x, M, N: tl.constexpr):
    r = tl.program_id(0)
    o = tl.arange(0, N)
    n = tl.load(x + (r + 1) * N + o, mask=(r + 1 < M) & (o < N), other=0.0)
    tl.store(x + r * N + o, tl.load(x + r * N + o) + n)


@case("INV", "in place, each program its own row", dict(x=P), dict(x="inout:64"), "M", N64, batch="")
@triton.jit
def in_place_own_row(x, N: tl.constexpr):
    r = tl.program_id(0)
    o = tl.arange(0, N)
    v = tl.load(x + r * N + o)
    tl.store(x + r * N + o, v / tl.sum(v * v, 0))


@case("NOT", "the last program to arrive adds the partial sums, starting with its own", dict(x=P, part=P, counter="*i32", y=P),
      dict(x="rows:64", part="scratch:256", counter="scratch:64", y="out:1"), "M*4/1", dict(N=64, B=16), batch="")
@triton.jit
def last_arrival_reduces(x, part, counter, y, N: tl.constexpr, B: tl.constexpr):
    p = tl.program_id(0)
    o = tl.arange(0, B)
    r = p // 4
    mine = tl.sum(tl.load(x + r * N + (p % 4) * B + o), 0)
    tl.store(part + p, mine)
    if tl.atomic_add(counter + r, 1) == 3:
        acc = mine
        for s in range(1, 4):
            acc += tl.load(part + r * 4 + (p + s) % 4)
        tl.store(y + r, acc)


@case("INV", "programs in groups, the last one smaller; a row beyond the last reads another one, and is not stored", dict(x=P, y=P, M=I),
      dict(x="rows:64", y="out:64", M="batch"), "M/4", dict(N=64, BM=4, G=2))
@triton.jit
def wrapped_row_of_grouped_tiles(x, y, M, N: tl.constexpr, BM: tl.constexpr, G: tl.constexpr):
    pid = tl.program_id(0)
    first = pid // G * G
    r = (first + pid % min(tl.cdiv(M, BM) - first, G)) * BM + tl.arange(0, BM)
    o = tl.arange(0, N)
    v = tl.load(x + (r % M)[:, None] * N + o[None, :])
    tl.store(y + r[:, None] * N + o[None, :], v + v, mask=r[:, None] < M)

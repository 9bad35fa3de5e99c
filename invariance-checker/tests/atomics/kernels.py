"""Atomics, most of them histograms: which counts are a row's own, and which are not.

Integer addition commutes, so the order in which programs arrive does not matter. What matters is whether the cells that
a program counts into, and the numbers that it counts, belong to one row.

A @case says what the kernel is (INV, NOT) and how to launch it, in the words of `../adversarial/kernels.py`; `allow`
names the conditions that a reader must confirm (nothing: INVARIANT outright).

`python3 make.py` in this folder writes the TTIR and index.tsv.
"""
import triton
import triton.language as tl

CASES = []
C, P, I = "*i32", "*fp32", "i32"


def case(verdict, why, sig, launch, grid, ce=None, batch=""):
    def deco(fn):
        CASES.append(dict(fn=fn, verdict=verdict, why=why, sig=sig, launch=launch, grid=grid, ce=ce or {}, batch=batch))
        return fn
    return deco


ROW = dict(x=C, bins=C, N=I)
IN = dict(x="rows:50", bins="out:16", N="50")


# ------------------------------------------------------------------ a row's own counts
@case("INV", "one program a row, bins of a constant number, masked tail", ROW, IN, "M", dict(BINS=16, BLOCK=64))
@triton.jit
def masked_tail(x, bins, N, BINS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    o = tl.arange(0, BLOCK)
    v = tl.load(x + row * N + o, mask=o < N, other=0)
    tl.atomic_add(bins + row * BINS + v, 1, mask=(o < N) & (v >= 0) & (v < BINS), sem="relaxed")


@case("INV", "several programs a row, each a block of it", ROW, IN, "M 4", dict(BINS=16, BLOCK=16))
@triton.jit
def blocks_of_a_row(x, bins, N, BINS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    o = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + row * N + o, mask=o < N, other=0)
    tl.atomic_add(bins + row * BINS + v, 1, mask=(o < N) & (v >= 0) & (v < BINS), sem="relaxed")


@case("INV", "the bin is the low digit of the number, which no mask need limit", ROW, IN, "M 4", dict(BINS=16, BLOCK=16))
@triton.jit
def low_digits(x, bins, N, BINS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    o = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + row * N + o, mask=o < N, other=0)
    tl.atomic_add(bins + row * BINS + (v & (BINS - 1)), 1, mask=o < N, sem="relaxed")


@case("INV", "strides of rows from arguments, bins of a constant number",
      dict(x=C, bins=C, N=I, sx=I, sb=I), dict(x="rows:50", bins="out:20", N="50", sx="50", sb="20"), "M", dict(BINS=16, BLOCK=64))
@triton.jit
def strides_given(x, bins, N, sx, sb, BINS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    o = tl.arange(0, BLOCK)
    v = tl.load(x + row * sx + o, mask=o < N, other=0)
    tl.atomic_add(bins + row * sb + v, 1, mask=(o < N) & (v >= 0) & (v < BINS), sem="relaxed")


@case("INV", "the number of bins is an argument, and the stride of the rows of bins",
      dict(x=C, bins=C, N=I, B=I), dict(x="rows:50", bins="out:16", N="50", B="16"), "M", dict(BLOCK=64))
@triton.jit
def number_of_bins_given(x, bins, N, B, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    o = tl.arange(0, BLOCK)
    v = tl.load(x + row * N + o, mask=o < N, other=0)
    tl.atomic_add(bins + row * B + v, 1, mask=(o < N) & (v >= 0) & (v < B), sem="relaxed")


@case("INV", "a loop over the blocks of a row, atomics in it", ROW, IN, "M", dict(BINS=16, BLOCK=16))
@triton.jit
def blocks_in_a_loop(x, bins, N, BINS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    for start in range(0, N, BLOCK):
        o = start + tl.arange(0, BLOCK)
        v = tl.load(x + row * N + o, mask=o < N, other=0)
        tl.atomic_add(bins + row * BINS + v, 1, mask=(o < N) & (v >= 0) & (v < BINS), sem="relaxed")


@case("INV", "counts of a block by tl.histogram, then added", ROW, IN, "M 4", dict(BINS=16, BLOCK=16))
@triton.jit
def counts_added(x, bins, N, BINS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    o = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + row * N + o, mask=o < N, other=0)
    counts = tl.histogram(v & (BINS - 1), BINS, mask=o < N)
    tl.atomic_add(bins + row * BINS + tl.arange(0, BINS), counts, sem="relaxed")


@case("INV", "counts of a block by tl.histogram, rows of bins with a stride of their own",
      dict(x=C, bins=C, N=I, sb=I), dict(x="rows:50", bins="out:20", N="50", sb="20"), "M 4", dict(BINS=16, BLOCK=16))
@triton.jit
def counts_added_by_stride(x, bins, N, sb, BINS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    o = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + row * N + o, mask=o < N, other=0)
    counts = tl.histogram(v & (BINS - 1), BINS, mask=o < N)
    tl.atomic_add(bins + row * sb + tl.arange(0, BINS), counts, sem="relaxed")


@case("INV", "one program a row: counts by tl.histogram and a plain store", ROW, IN, "M", dict(BINS=16, BLOCK=64))
@triton.jit
def counts_stored(x, bins, N, BINS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    o = tl.arange(0, BLOCK)
    v = tl.load(x + row * N + o, mask=o < N, other=0)
    tl.store(bins + row * BINS + tl.arange(0, BINS), tl.histogram(v & (BINS - 1), BINS, mask=o < N))


@case("INV", "a tile of rows, the number of rows masked", dict(x=C, bins=C, M=I, N=I),
      dict(x="rows:50", bins="out:16", M="batch", N="50"), "M/4 4", dict(BINS=16, BLOCK=16, ROWS=4), batch="M")
@triton.jit
def tile_of_rows(x, bins, M, N, BINS: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    o = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[None, :]
    here = (row < M) & (o < N)
    v = tl.load(x + row * N + o, mask=here, other=0)
    tl.atomic_add(bins + row * BINS + v, 1, mask=here & (v >= 0) & (v < BINS), sem="relaxed")


@case("INV", "integer weights are added, not ones", dict(x=C, w=C, bins=C, N=I),
      dict(x="rows:50", w="rows:50", bins="out:16", N="50"), "M 4", dict(BINS=16, BLOCK=16))
@triton.jit
def weights_added(x, w, bins, N, BINS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    o = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + row * N + o, mask=o < N, other=0)
    n = tl.load(w + row * N + o, mask=o < N, other=0)
    tl.atomic_add(bins + row * BINS + (v & (BINS - 1)), n, mask=o < N, sem="relaxed")


@case("INV", "the last number of each kind: an integer maximum by bin", ROW, IN, "M 4", dict(BINS=16, BLOCK=16))
@triton.jit
def last_of_each_kind(x, bins, N, BINS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    o = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + row * N + o, mask=o < N, other=0)
    tl.atomic_max(bins + row * BINS + (v & (BINS - 1)), o, mask=o < N, sem="relaxed")


@case("INV", "two atomics on the bins of a row: ones from the left and from the right half", ROW, IN, "M", dict(BINS=16, BLOCK=32))
@triton.jit
def two_halves(x, bins, N, BINS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    o = tl.arange(0, BLOCK)
    v = tl.load(x + row * N + o, mask=o < N, other=0)
    tl.atomic_add(bins + row * BINS + (v & (BINS - 1)), 1, mask=o < N, sem="relaxed")
    w = tl.load(x + row * N + BLOCK + o, mask=o + BLOCK < N, other=0)
    tl.atomic_add(bins + row * BINS + (w & (BINS - 1)), 1, mask=o + BLOCK < N, sem="relaxed")


@case("INV", "bins limited by nothing: a number too large would be another row's bin, which is a condition on the data",
      dict(x=C, bins=C, N=I, sb=I), dict(x="rows:50", bins="out:1000", N="50", sb="1000"), "M", dict(BLOCK=64))
@triton.jit
def bins_not_limited(x, bins, N, sb, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    o = tl.arange(0, BLOCK)
    v = tl.load(x + row * N + o, mask=o < N, other=0)
    tl.atomic_add(bins + row * sb + v, 1, mask=o < N, sem="relaxed")


# ------------------------------------------------------------------ counts that are not
@case("NOT", "one set of bins for all rows", dict(x=C, bins=C, M=I, N=I), dict(x="rows:50", bins="out:16", M="batch", N="50"),
      "M", dict(BINS=16, BLOCK=64), batch="M")
@triton.jit
def bins_of_the_batch(x, bins, M, N, BINS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    o = tl.arange(0, BLOCK)
    v = tl.load(x + row * N + o, mask=o < N, other=0)
    tl.atomic_add(bins + (v & (BINS - 1)), 1, mask=(o < N) & (row < M), sem="relaxed")


@case("NOT", "two rows share a set of bins", dict(x=C, bins=C, M=I, N=I), dict(x="rows:50", bins="out:16", M="batch", N="50"),
      "M", dict(BINS=16, BLOCK=64), batch="M")
@triton.jit
def bins_of_two_rows(x, bins, M, N, BINS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    o = tl.arange(0, BLOCK)
    v = tl.load(x + row * N + o, mask=(o < N) & (row < M), other=0)
    tl.atomic_add(bins + (row // 2) * BINS + (v & (BINS - 1)), 1, mask=(o < N) & (row < M), sem="relaxed")


@case("NOT", "float weights are added in the order of arrival", dict(x=C, w=P, bins=P, N=I),
      dict(x="rows:50", w="rows:50", bins="out:16", N="50"), "M 4", dict(BINS=16, BLOCK=16))
@triton.jit
def float_weights(x, w, bins, N, BINS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    o = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + row * N + o, mask=o < N, other=0)
    n = tl.load(w + row * N + o, mask=o < N, other=0.0)
    tl.atomic_add(bins + row * BINS + (v & (BINS - 1)), n, mask=o < N, sem="relaxed")


@case("NOT", "counts the row and the one after it", dict(x=C, bins=C, M=I, N=I), dict(x="rows:50", bins="out:16", M="batch", N="50"),
      "M", dict(BINS=16, BLOCK=128), batch="M")
@triton.jit
def counts_next_row_too(x, bins, M, N, BINS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    o = tl.arange(0, BLOCK)
    here = (o < 2 * N) & (row * N + o < M * N)
    v = tl.load(x + row * N + o, mask=here, other=0)
    tl.atomic_add(bins + row * BINS + (v & (BINS - 1)), 1, mask=here, sem="relaxed")


@case("NOT", "a number too large is counted in the next row's bins", ROW, dict(x="rows:50", bins="out:16", N="50"), "M",
      dict(BINS=16, BLOCK=64))
@triton.jit
def bin_beyond_the_row(x, bins, N, BINS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    o = tl.arange(0, BLOCK)
    v = tl.load(x + row * N + o, mask=o < N, other=0)
    tl.atomic_add(bins + row * BINS + (v & (2 * BINS - 1)), 1, mask=o < N, sem="relaxed")


@case("NOT", "counts a tile of rows together: rows of the tile have a stride of their own", dict(x=C, bins=C, D=I),
      dict(x="rows:8", bins="out:2", D="8"), "M/8", dict(BINS=16, ROWS=8, BLOCK=8))
@triton.jit
def counts_of_a_tile(x, bins, D, BINS: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    tile = tl.program_id(0)
    row = tile * ROWS + tl.arange(0, ROWS)[:, None]
    o = tl.arange(0, BLOCK)[None, :]
    v = tl.load(x + row * D + o, mask=o < D, other=0)
    tl.atomic_add(bins + tile * BINS + (v & (BINS - 1)), 1, mask=o < D, sem="relaxed")


@case("NOT", "counts flat blocks of a constant size: nothing says that a block is a row", dict(x=C, bins=C, n=I),
      dict(x="rows:8", bins="out:2", n="flat:8"), "M*8/64", dict(BINS=16, BLOCK=64), batch="n")
@triton.jit
def counts_of_a_flat_block(x, bins, n, BINS: tl.constexpr, BLOCK: tl.constexpr):
    block = tl.program_id(0)
    o = block * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + o, mask=o < n, other=0)
    tl.atomic_add(bins + block * BINS + (v & (BINS - 1)), 1, mask=o < n, sem="relaxed")


@case("NOT", "how many there are so far: the result of the atomic", dict(x=C, bins=C, y=C, N=I),
      dict(x="rows:50", bins="scratch:4096", y="out:50", N="50"), "M 4", dict(BINS=16, BLOCK=16))
@triton.jit
def places_by_arrival(x, bins, y, N, BINS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    o = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + row * N + o, mask=o < N, other=0)
    place = tl.atomic_add(bins + row * BINS + (v & (BINS - 1)), 1, mask=o < N, sem="relaxed")
    tl.store(y + row * N + o, place, mask=o < N)


@case("NOT", "the number of programs that count is the grid's: each adds one more", ROW, dict(x="rows:50", bins="out:16", N="50"),
      "M vary:4:5", dict(BINS=16, BLOCK=16))
@triton.jit
def one_more_each_program(x, bins, N, BINS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    o = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + row * N + o, mask=o < N, other=0)
    counts = tl.histogram(v & (BINS - 1), BINS, mask=o < N)
    tl.atomic_add(bins + row * BINS + tl.arange(0, BINS), counts + 1, sem="relaxed")


@case("NOT", "a second atomic on the same bins counts the next row", dict(x=C, bins=C, M=I, N=I),
      dict(x="rows:50", bins="out:16", M="batch", N="50"), "M", dict(BINS=16, BLOCK=64), batch="M")
@triton.jit
def second_counts_next_row(x, bins, M, N, BINS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    o = tl.arange(0, BLOCK)
    v = tl.load(x + row * N + o, mask=o < N, other=0)
    tl.atomic_add(bins + row * BINS + (v & (BINS - 1)), 1, mask=o < N, sem="relaxed")
    w = tl.load(x + (row + 1) * N + o, mask=o < N, other=0)
    tl.atomic_add(bins + row * BINS + (w & (BINS - 1)), 1, mask=o < N, sem="relaxed")


@case("NOT", "a second atomic on the same bins takes the digits of a bin's number the other way round", dict(x=C, bins=C, N=I),
      dict(x="rows:50", bins="out:16", N="50"), "M", dict(BINS=16, BLOCK=64))
@triton.jit
def second_counts_by_bin(x, bins, N, BINS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    o = tl.arange(0, BLOCK)
    v = tl.load(x + row * N + o, mask=o < N, other=0) & (BINS - 1)
    here = (o < N) & (row < BINS)
    tl.atomic_add(bins + row * BINS + v, 1, mask=here, sem="relaxed")
    tl.atomic_add(bins + v * BINS + row, 1, mask=here, sem="relaxed")


@case("NOT", "one float atomic by each of two sites, which different programs bring to one cell", dict(x=P, y=P),
      dict(x="rows:64", y="inout:1"), "M", dict(N=64))
@triton.jit
def floats_from_two_sites(x, y, N: tl.constexpr):
    row = tl.program_id(0)
    o = tl.arange(0, N)
    tl.atomic_add(y + row, tl.sum(tl.load(x + row * N + o), 0), sem="relaxed")
    tl.atomic_add(y + row + 1, tl.max(tl.load(x + (row + 1) * N + o), 0), sem="relaxed")


@case("NOT", "counts added to a row of bins, and to a column of bins", dict(x=C, bins=C, N=I), dict(x="rows:50", bins="out:16", N="50"), "M",
      dict(BINS=16, BLOCK=64))
@triton.jit
def rows_and_columns(x, bins, N, BINS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    o = tl.arange(0, BLOCK)
    v = tl.load(x + row * N + o, mask=o < N, other=0)
    counts = tl.histogram(v & (BINS - 1), BINS, mask=o < N)
    b = tl.arange(0, BINS)
    tl.atomic_add(bins + row * BINS + b, counts, sem="relaxed")
    tl.atomic_add(bins + b * BINS + row, counts, mask=(b < BINS) & (row < BINS), sem="relaxed")


@case("NOT", "tiles of rows overlap: all rows but the first four are counted twice", dict(x=C, bins=C, M=I, N=I),
      dict(x="rows:50", bins="out:16", M="batch", N="50"), "M/4 4", dict(BINS=16, BLOCK=16, ROWS=4), batch="M")
@triton.jit
def tiles_overlap(x, bins, M, N, BINS: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, 2 * ROWS)[:, None]
    o = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[None, :]
    here = (row < M) & (o < N)
    v = tl.load(x + row * N + o, mask=here, other=0)
    tl.atomic_add(bins + row * BINS + (v & (BINS - 1)), 1, mask=here, sem="relaxed")

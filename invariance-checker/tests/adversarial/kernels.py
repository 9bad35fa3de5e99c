"""Small kernels that a naive checker gets wrong, in both directions.

Each @case says what the kernel is (INV: the bits of a row depend on that row and on what all launches share; NOT: they do
not; IDX: they depend on the row's number as well; HID: on what the interpreter does not have) and how to launch it, so that the label itself can be tested:

  rows:L     one row of L elements for each item of the batch, row-major
  cols:L     the same, transposed: element (row, c) at c * M + row
  out:L      output rows, compared; outT:L transposed; inout:L input and output at once
  shared:L   the same in every launch
  varbuf:L   contents that differ from launch to launch (batch-wide data)
  rowint:A:B one integer in A..B for each item; part of its logical input
  perm       a permutation of the items: item i lies in row perm[i]
  scratch:L  zeros, not compared
  batch      the number of items; flat:L the number of items times L
  vary:A:B   an integer that differs from launch to launch
  a number   itself
Grid axes: a number, `M`, `M/4` (rounded up), `M*64/128`, `vary:A:B`.

`python3 make.py` in this folder writes the TTIR.
"""
import triton
import triton.language as tl

CASES = []
P, I = "*fp32", "i32"


def case(verdict, why, sig, launch, grid, ce=None, batch="M"):
    def deco(fn):
        CASES.append(dict(fn=fn, verdict=verdict, why=why, sig=sig, launch=launch, grid=grid, ce=ce or {}, batch=batch))
        return fn
    return deco


XY = dict(x=P, y=P, M=I)
ROWS = dict(x="rows:64", y="out:64", M="batch")
N64 = dict(N=64)


# ------------------------------------------------------------------ which row is read
@case("NOT", "reads the neighbour's row", XY, dict(x="rows:64", y="out:64", M="batch"), "M", N64)
@triton.jit
def reads_next_row(x, y, M, N: tl.constexpr):
    r = tl.program_id(0)
    o = tl.arange(0, N)
    tl.store(y + r * N + o, tl.load(x + (r + 1) * N + o, mask=(r + 1 < M) & (o < N), other=0.0))


@case("NOT", "reads the mirrored row M-1-r", XY, ROWS, "M", N64)
@triton.jit
def reads_mirrored_row(x, y, M, N: tl.constexpr):
    r = tl.program_id(0)
    o = tl.arange(0, N)
    tl.store(y + r * N + o, tl.load(x + (M - 1 - r) * N + o))


@case("NOT", "reads row r ^ 1, clamped", XY, ROWS, "M", N64)
@triton.jit
def reads_partner_row(x, y, M, N: tl.constexpr):
    r = tl.program_id(0)
    o = tl.arange(0, N)
    p = tl.minimum(r ^ 1, M - 1)
    tl.store(y + r * N + o, tl.load(x + r * N + o) + tl.load(x + p * N + o))


@case("NOT", "a sliding window over transposed rows takes in the next rows", XY,
      dict(x="cols:64", y="out:64", M="batch"), "M", N64)
@triton.jit
def window_over_transposed_rows(x, y, M, N: tl.constexpr):
    r = tl.program_id(0)
    o = tl.arange(0, N)
    j = tl.arange(0, 4)
    v = tl.load(x + o[:, None] * M + r + j[None, :], mask=r + j[None, :] < M, other=0.0)
    tl.store(y + r * N + o, tl.sum(v, 1))


@case("INV", "the same window without the neighbours: one transposed row", XY,
      dict(x="cols:64", y="out:64", M="batch"), "M", N64)
@triton.jit
def transposed_row(x, y, M, N: tl.constexpr):
    r = tl.program_id(0)
    o = tl.arange(0, N)
    tl.store(y + r * N + o, tl.load(x + o * M + r) * 2.0)


@case("NOT", "the base is moved by a function of M", XY, dict(x="rows:64", y="out:64", M="batch"), "M", N64)
@triton.jit
def base_moved_by_batch(x, y, M, N: tl.constexpr):
    r = tl.program_id(0)
    o = tl.arange(0, N)
    tl.store(y + r * N + o, tl.load(x + M % 2 + r * N + o))


@case("NOT", "columns are rotated by M", XY, ROWS, "M", N64)
@triton.jit
def column_rotation(x, y, M, N: tl.constexpr):
    r = tl.program_id(0)
    o = tl.arange(0, N)
    v = tl.load(x + r * N + (o + M) % N)
    tl.store(y + r * N + o, v)


@case("NOT", "one flat index split by M after a shift that wraps past the last row", XY,
      dict(x="cols:64", y="outT:64", M="batch"), "M*64/128", dict(N=64, B=128))
@triton.jit
def flat_index_wraps(x, y, M, N: tl.constexpr, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    f = i + 1
    v = tl.load(x + (f // M) * M + f % M, mask=f < M * N, other=0.0)
    tl.store(y + i, v, mask=i < M * N)


@case("INV", "a flat index split by M and put together again", XY,
      dict(x="cols:64", y="outT:64", M="batch"), "M*64/128", dict(N=64, B=128))
@triton.jit
def flat_index_split(x, y, M, N: tl.constexpr, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    v = tl.load(x + (i // M) * M + i % M, mask=i < M * N, other=0.0)
    tl.store(y + i, v + 1.0, mask=i < M * N)


@case("NOT", "an argmax over rows selects the row that is stored", dict(x=P, key=P, y=P, M=I),
      dict(x="rows:64", key="rows:1", y="out:64", M="batch"), "M", dict(N=64, R=64))
@triton.jit
def argmax_selects_row(x, key, y, M, N: tl.constexpr, R: tl.constexpr):
    r = tl.program_id(0)
    o = tl.arange(0, N)
    rows = tl.arange(0, R)
    best = tl.argmax(tl.load(key + rows, mask=rows < M, other=float("-inf")), 0)
    tl.store(y + r * N + o, tl.load(x + best * N + o))


@case("NOT", "reads row perm[p], stores row perm[p/2]", dict(x=P, perm="*i32", y=P, M=I),
      dict(x="rows:64", perm="perm", y="out:64", M="batch"), "M", N64)
@triton.jit
def permuted_against_half(x, perm, y, M, N: tl.constexpr):
    p = tl.program_id(0)
    o = tl.arange(0, N)
    src = tl.load(perm + p)
    dst = tl.load(perm + p // 2)
    tl.store(y + dst * N + o, tl.load(x + src * N + o))


@case("INV", "reads and stores row perm[p]", dict(x=P, perm="*i32", y=P, M=I),
      dict(x="rows:64", perm="perm", y="out:64", M="batch"), "M", N64)
@triton.jit
def permuted_rows(x, perm, y, M, N: tl.constexpr):
    row = tl.load(perm + tl.program_id(0))
    o = tl.arange(0, N)
    tl.store(y + row * N + o, tl.load(x + row * N + o) * 3.0)


@case("INV", "rows past the end wrap to row r % M and are never stored", XY, ROWS, "M/4", dict(N=64, BM=4))
@triton.jit
def rows_modulo(x, y, M, N: tl.constexpr, BM: tl.constexpr):
    r = tl.program_id(0) * BM + tl.arange(0, BM)
    o = tl.arange(0, N)
    v = tl.load(x + (r % M)[:, None] * N + o[None, :])
    tl.store(y + r[:, None] * N + o[None, :], v * tl.sum(v, 1)[:, None], mask=(r < M)[:, None])


@case("NOT", "a Gram matrix: every output mixes all rows", dict(x=P, y=P, M=I),
      dict(x="rows:16", y="out:16", M="batch"), "1", dict(B=16))
@triton.jit
def gram(x, y, M, B: tl.constexpr):
    o = tl.arange(0, B)
    v = tl.load(x + o[:, None] * B + o[None, :], mask=(o < M)[:, None], other=0.0)
    g = tl.dot(v, tl.trans(v), input_precision="ieee")
    tl.store(y + o[:, None] * B + o[None, :], g, mask=(o < M)[:, None])


@case("NOT", "gathers along the rows of a tile by an index from the data", dict(x=P, idx="*i32", y=P, M=I),
      dict(x="rows:64", idx="rowint:0:3", y="out:64", M="batch"), "M/4", dict(N=64, BM=4))
@triton.jit
def gathers_rows_of_tile(x, idx, y, M, N: tl.constexpr, BM: tl.constexpr):
    r = tl.program_id(0) * BM + tl.arange(0, BM)
    o = tl.arange(0, N)
    v = tl.load(x + r[:, None] * N + o[None, :], mask=(r < M)[:, None], other=0.0)
    k = tl.load(idx + r, mask=r < M, other=0)
    g = tl.gather(v, tl.broadcast_to(k[:, None], (BM, N)), 0)
    tl.store(y + r[:, None] * N + o[None, :], g, mask=(r < M)[:, None])


# ------------------------------------------------------------------ reductions that leave the row
@case("NOT", "a sum over axis 0 of a tile of rows", XY, ROWS, "M/4", dict(N=64, BM=4))
@triton.jit
def sum_over_tile_rows(x, y, M, N: tl.constexpr, BM: tl.constexpr):
    r = tl.program_id(0) * BM + tl.arange(0, BM)
    o = tl.arange(0, N)
    v = tl.load(x + r[:, None] * N + o[None, :], mask=(r < M)[:, None], other=0.0)
    tl.store(y + r[:, None] * N + o[None, :], v + tl.sum(v, 0)[None, :], mask=(r < M)[:, None])


@case("NOT", "a running sum down the rows of a tile", XY, ROWS, "M/4", dict(N=64, BM=4))
@triton.jit
def scan_over_tile_rows(x, y, M, N: tl.constexpr, BM: tl.constexpr):
    r = tl.program_id(0) * BM + tl.arange(0, BM)
    o = tl.arange(0, N)
    v = tl.load(x + r[:, None] * N + o[None, :], mask=(r < M)[:, None], other=0.0)
    tl.store(y + r[:, None] * N + o[None, :], tl.cumsum(v, 0), mask=(r < M)[:, None])


@case("INV", "a running sum along each row of a tile", XY, ROWS, "M/4", dict(N=64, BM=4))
@triton.jit
def scan_along_tile_rows(x, y, M, N: tl.constexpr, BM: tl.constexpr):
    r = tl.program_id(0) * BM + tl.arange(0, BM)
    o = tl.arange(0, N)
    v = tl.load(x + r[:, None] * N + o[None, :], mask=(r < M)[:, None], other=0.0)
    tl.store(y + r[:, None] * N + o[None, :], tl.cumsum(v, 1), mask=(r < M)[:, None])


@case("NOT", "softmax with the maximum of the whole tile: right in exact arithmetic, other bits", XY, ROWS, "M/4",
      dict(N=64, BM=4))
@triton.jit
def softmax_with_tile_maximum(x, y, M, N: tl.constexpr, BM: tl.constexpr):
    r = tl.program_id(0) * BM + tl.arange(0, BM)
    o = tl.arange(0, N)
    v = tl.load(x + r[:, None] * N + o[None, :], mask=(r < M)[:, None], other=0.0)
    e = tl.exp(v - tl.max(tl.max(v, 1), 0))
    tl.store(y + r[:, None] * N + o[None, :], e / tl.sum(e, 1)[:, None], mask=(r < M)[:, None])


@case("NOT", "one quantisation scale for a tile of rows", XY, ROWS, "M/4", dict(N=64, BM=4))
@triton.jit
def scale_of_tile(x, y, M, N: tl.constexpr, BM: tl.constexpr):
    r = tl.program_id(0) * BM + tl.arange(0, BM)
    o = tl.arange(0, N)
    v = tl.load(x + r[:, None] * N + o[None, :], mask=(r < M)[:, None], other=0.0)
    s = tl.max(tl.max(tl.abs(v), 1), 0) / 448.0
    tl.store(y + r[:, None] * N + o[None, :], (v / s).to(tl.float8e4nv).to(tl.float32) * s, mask=(r < M)[:, None])


@case("INV", "one quantisation scale for each row", XY, ROWS, "M/4", dict(N=64, BM=4))
@triton.jit
def scale_of_row(x, y, M, N: tl.constexpr, BM: tl.constexpr):
    r = tl.program_id(0) * BM + tl.arange(0, BM)
    o = tl.arange(0, N)
    v = tl.load(x + r[:, None] * N + o[None, :], mask=(r < M)[:, None], other=0.0)
    s = (tl.max(tl.abs(v), 1) / 448.0)[:, None]
    tl.store(y + r[:, None] * N + o[None, :], (v / s).to(tl.float8e4nv).to(tl.float32) * s, mask=(r < M)[:, None])


@case("NOT", "a condition over the whole block of rows switches the formula", XY, ROWS, "M/4", dict(N=64, BM=4))
@triton.jit
def block_wide_condition(x, y, M, N: tl.constexpr, BM: tl.constexpr):
    r = tl.program_id(0) * BM + tl.arange(0, BM)
    o = tl.arange(0, N)
    v = tl.load(x + r[:, None] * N + o[None, :], mask=(r < M)[:, None], other=0.0)
    if tl.max(tl.max(v, 1), 0) > 2000.0:
        v = v * 0.1 * 10.0
    tl.store(y + r[:, None] * N + o[None, :], v, mask=(r < M)[:, None])


@case("NOT", "reduces a flat block that holds two rows", XY, ROWS, "M/2", dict(N=64, B=128))
@triton.jit
def flat_block_of_two_rows(x, y, M, N: tl.constexpr, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    v = tl.load(x + i, mask=i < M * N, other=0.0)
    tl.store(y + i, v / tl.sum(v * v, 0), mask=i < M * N)


@case("INV", "a flat block of two rows, reshaped to rows before it is reduced", XY, ROWS, "M/2", dict(N=64, B=128))
@triton.jit
def flat_block_reshaped(x, y, M, N: tl.constexpr, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    v = tl.reshape(tl.load(x + i, mask=i < M * N, other=0.0), (B // N, N))
    w = v / tl.sum(v * v, 1)[:, None]
    tl.store(y + i, tl.reshape(w, (B,)), mask=i < M * N)


# ------------------------------------------------------------------ undefined and padded lanes
@case("NOT", "undefined lanes (no other) are summed", dict(x=P, y=P, N=I, M=I),
      dict(x="rows:50", y="out:1", N="50", M="batch"), "M", dict(B=64))
@triton.jit
def undefined_lanes_summed(x, y, N, M, B: tl.constexpr):
    r = tl.program_id(0)
    o = tl.arange(0, B)
    tl.store(y + r, tl.sum(tl.load(x + r * N + o, mask=o < N), 0))


@case("INV", "undefined lanes are selected away before the sum", dict(x=P, y=P, N=I, M=I),
      dict(x="rows:50", y="out:1", N="50", M="batch"), "M", dict(B=64))
@triton.jit
def undefined_lanes_selected_away(x, y, N, M, B: tl.constexpr):
    r = tl.program_id(0)
    o = tl.arange(0, B)
    v = tl.load(x + r * N + o, mask=o < N)
    tl.store(y + r, tl.sum(tl.where(o < N, v, 0.0), 0))


@case("NOT", "padding lanes hold M", dict(x=P, y=P, N=I, M=I),
      dict(x="rows:50", y="out:1", N="50", M="batch"), "M", dict(B=64))
@triton.jit
def padding_is_batch_size(x, y, N, M, B: tl.constexpr):
    r = tl.program_id(0)
    o = tl.arange(0, B)
    v = tl.load(x + r * N + o, mask=o < N, other=0.0)
    tl.store(y + r, tl.sum(tl.where(o < N, v, M.to(tl.float32)), 0))


@case("NOT", "padding lanes are loaded from the next row", dict(x=P, y=P, N=I, M=I),
      dict(x="rows:50", y="out:1", N="50", M="batch"), "M", dict(B=64))
@triton.jit
def padding_is_next_row(x, y, N, M, B: tl.constexpr):
    r = tl.program_id(0)
    o = tl.arange(0, B)
    n = tl.load(x + (r + 1) * N + o, mask=(r + 1 < M) & (o < N), other=0.0)
    tl.store(y + r, tl.sum(tl.load(x + r * N + o, mask=o < N, other=n), 0) + tl.sum(tl.where(o < N, 0.0, 1.0) * tl.sum(n, 0), 0))


@case("NOT", "the column mask is one too wide: the first element of the next row is summed", dict(x=P, y=P, N=I, M=I),
      dict(x="rows:50", y="out:1", N="50", M="batch"), "M", dict(B=64))
@triton.jit
def mask_one_too_wide(x, y, N, M, B: tl.constexpr):
    r = tl.program_id(0)
    o = tl.arange(0, B)
    tl.store(y + r, tl.sum(tl.load(x + r * N + o, mask=(o <= N) & (r * N + o < M * N), other=0.0), 0))


# ------------------------------------------------------------------ loops whose shape comes from the batch
@case("NOT", "a split count read through a pointer", dict(x=P, ns="*i32", y=P, M=I),
      dict(x="rows:64", ns="varbuf:1", y="out:1", M="batch"), "M", dict(N=64, B=64), batch="M,*ns")
@triton.jit
def split_count_through_pointer(x, ns, y, M, N: tl.constexpr, B: tl.constexpr):
    r = tl.program_id(0)
    o = tl.arange(0, B)
    n = tl.load(ns)
    width = tl.cdiv(N, n)
    acc = 0.0
    for s in range(0, n):
        k = s * width + o
        acc += tl.sum(tl.load(x + r * N + k, mask=(o < width) & (k < N), other=0.0), 0)
    tl.store(y + r, acc)


@case("NOT", "the chunk of the reduction is a runtime argument", dict(x=P, y=P, chunk=I),
      dict(x="rows:64", y="out:1", chunk="vary:8:16"), "M", dict(N=64, B=16), batch="chunk")
@triton.jit
def runtime_chunk_of_sum(x, y, chunk, N: tl.constexpr, B: tl.constexpr):
    r = tl.program_id(0)
    o = tl.arange(0, B)
    acc = 0.0
    for s in range(0, N, chunk):
        acc += tl.sum(tl.load(x + r * N + s + o, mask=(o < chunk) & (s + o < N), other=0.0), 0)
    tl.store(y + r, acc)


@case("INV", "the chunk of an elementwise copy is a runtime argument", dict(x=P, y=P, chunk=I),
      dict(x="rows:64", y="out:64", chunk="vary:8:16"), "M", dict(N=64, B=16), batch="chunk")
@triton.jit
def runtime_chunk_of_copy(x, y, chunk, N: tl.constexpr, B: tl.constexpr):
    r = tl.program_id(0)
    o = tl.arange(0, B)
    for s in range(0, N, chunk):
        k = s + o
        tl.store(y + r * N + k, tl.load(x + r * N + k, mask=(o < chunk) & (k < N), other=0.0) * 2.0, mask=(o < chunk) & (k < N))


@case("NOT", "every element of a chunk takes the chunk's first: where a chunk starts is a matter of the runtime argument",
      dict(x=P, y=P, chunk=I), dict(x="rows:64", y="out:64", chunk="vary:8:16"), "M", dict(N=64, B=16), batch="chunk")
@triton.jit
def chunk_head_repeated(x, y, chunk, N: tl.constexpr, B: tl.constexpr):
    r = tl.program_id(0)
    o = tl.arange(0, B)
    for s in range(0, N, chunk):
        head = tl.load(x + r * N + s)
        tl.store(y + r * N + s + o, tl.zeros((B,), tl.float32) + head, mask=(o < chunk) & (s + o < N))


@case("NOT", "the number of chunks is the next power of two of M, found by a while loop", XY,
      dict(x="rows:64", y="out:1", M="batch"), "M", dict(N=64, B=64))
@triton.jit
def chunks_from_power_of_two(x, y, M, N: tl.constexpr, B: tl.constexpr):
    r = tl.program_id(0)
    o = tl.arange(0, B)
    p = 1
    while p < M:
        p = p * 2
    n = tl.minimum(p, 8)
    width = N // n
    acc = 0.0
    for s in range(0, n):
        acc += tl.sum(tl.load(x + r * N + s * width + o, mask=o < width, other=0.0), 0)
    tl.store(y + r, acc)


@case("NOT", "the loop starts at a tile that depends on the program", XY,
      dict(x="rows:64", y="out:1", M="batch"), "M", dict(N=64, B=16))
@triton.jit
def rotated_loop_start(x, y, M, N: tl.constexpr, B: tl.constexpr):
    r = tl.program_id(0)
    o = tl.arange(0, B)
    acc = 0.0
    for s in range(0, N // B):
        t = (s + r) % (N // B)
        acc += tl.sum(tl.load(x + r * N + t * B + o), 0)
    tl.store(y + r, acc)


@case("INV", "the bound is the batch's longest sequence, every tile is masked by the row's own length",
      dict(x=P, lens="*i32", y=P, maxlen=I), dict(x="rows:64", lens="rowint:1:64", y="out:1", maxlen="vary:64:96"), "M",
      dict(N=64, B=16), batch="maxlen")
@triton.jit
def longest_bound_masked(x, lens, y, maxlen, N: tl.constexpr, B: tl.constexpr):
    r = tl.program_id(0)
    o = tl.arange(0, B)
    n = tl.load(lens + r)
    acc = tl.zeros((B,), tl.float32)
    for s in range(0, maxlen, B):
        acc += tl.load(x + r * N + s + o, mask=s + o < n, other=0.0)
    tl.store(y + r, tl.sum(acc, 0))


@case("NOT", "the same loop with a decay: masked tiles still change the state",
      dict(x=P, lens="*i32", y=P, maxlen=I), dict(x="rows:64", lens="rowint:1:64", y="out:1", maxlen="vary:64:96"), "M",
      dict(N=64, B=16), batch="maxlen")
@triton.jit
def longest_bound_decayed(x, lens, y, maxlen, N: tl.constexpr, B: tl.constexpr):
    r = tl.program_id(0)
    o = tl.arange(0, B)
    n = tl.load(lens + r)
    acc = tl.zeros((B,), tl.float32)
    for s in range(0, maxlen, B):
        acc = acc * 0.9 + tl.load(x + r * N + s + o, mask=s + o < n, other=0.0)
    tl.store(y + r, tl.sum(acc, 0))


@case("NOT", "the mean divides by the batch's longest sequence", dict(x=P, lens="*i32", y=P, maxlen=I),
      dict(x="rows:64", lens="rowint:1:64", y="out:1", maxlen="vary:64:96"), "M", dict(N=64), batch="maxlen")
@triton.jit
def mean_over_longest(x, lens, y, maxlen, N: tl.constexpr):
    r = tl.program_id(0)
    o = tl.arange(0, N)
    v = tl.load(x + r * N + o, mask=o < tl.load(lens + r), other=0.0)
    tl.store(y + r, tl.sum(v, 0) / maxlen)


@case("NOT", "the length of the next sequence", dict(x=P, lens="*i32", y=P, M=I),
      dict(x="rows:64", lens="rowint:1:64", y="out:1", M="batch"), "M", dict(N=64))
@triton.jit
def length_of_next_sequence(x, lens, y, M, N: tl.constexpr):
    r = tl.program_id(0)
    o = tl.arange(0, N)
    n = tl.load(lens + tl.minimum(r + 1, M - 1))
    tl.store(y + r, tl.sum(tl.load(x + r * N + o, mask=o < n, other=0.0), 0))


@case("NOT", "the table entry of the next sequence", dict(x=P, table="*i32", y=P, M=I),
      dict(x="shared:512", table="rowint:0:7", y="out:64", M="batch"), "M", dict(N=64))
@triton.jit
def table_of_next_sequence(x, table, y, M, N: tl.constexpr):
    r = tl.program_id(0)
    o = tl.arange(0, N)
    page = tl.load(table + tl.minimum(r + 1, M - 1))
    tl.store(y + r * N + o, tl.load(x + page * N + o))


@case("INV", "the table entry of the row's own sequence", dict(x=P, table="*i32", y=P, M=I),
      dict(x="shared:512", table="rowint:0:7", y="out:64", M="batch"), "M", dict(N=64))
@triton.jit
def table_of_own_sequence(x, table, y, M, N: tl.constexpr):
    r = tl.program_id(0)
    o = tl.arange(0, N)
    page = tl.load(table + r)
    tl.store(y + r * N + o, tl.load(x + page * N + o))


# ------------------------------------------------------------------ attention over a tile of queries
QKV = dict(q=P, k=P, v=P, y=P, n=I)


@case("NOT", "block-causal bound without a mask: a query sees keys up to its block's last position",
      dict(q=P, k=P, v=P, y=P, base=I), dict(q="rows:16", k="shared:1024", v="shared:1024", y="out:16", base="vary:0:3"),
      "1", dict(D=16, BQ=16), batch="base")
@triton.jit
def block_causal_without_mask(q, k, v, y, base, D: tl.constexpr, BQ: tl.constexpr):
    r = tl.arange(0, BQ)
    d = tl.arange(0, D)
    qs = tl.load(q + tl.minimum(r, 2)[:, None] * D + d[None, :])
    acc = tl.zeros((BQ, D), tl.float32)
    for t in range(0, base + 3, 1):
        kt = tl.load(k + t * D + d)
        vt = tl.load(v + t * D + d)
        s = tl.sum(qs * kt[None, :], 1)
        acc += s[:, None] * vt[None, :]
    tl.store(y + r[:, None] * D + d[None, :], acc, mask=(r < 3)[:, None])


@case("INV", "a causal row by its own position, keys in tiles, bound by the block's last position, masked",
      dict(q=P, k=P, v=P, pos="*i32", y=P, last=I),
      dict(q="rows:16", k="shared:1024", v="shared:1024", pos="rowint:0:40", y="out:16", last="vary:40:56"), "M",
      dict(D=16, T=16), batch="last")
@triton.jit
def block_causal_with_mask(q, k, v, pos, y, last, D: tl.constexpr, T: tl.constexpr):
    r = tl.program_id(0)
    d = tl.arange(0, D)
    t = tl.arange(0, T)
    p = tl.load(pos + r)
    qs = tl.load(q + r * D + d)
    m = -float("inf")
    l = 0.0
    acc = tl.zeros((D,), tl.float32)
    for s in range(0, last + 1, T):
        seen = s + t <= p
        kt = tl.load(k + (s + t)[:, None] * D + d[None, :], mask=seen[:, None], other=0.0)
        vt = tl.load(v + (s + t)[:, None] * D + d[None, :], mask=seen[:, None], other=0.0)
        z = tl.where(seen, tl.sum(kt * qs[None, :], 1), -float("inf"))
        mn = tl.maximum(m, tl.max(z, 0))
        e = tl.exp2(z - mn)
        a = tl.exp2(m - mn)
        l = l * a + tl.sum(e, 0)
        acc = acc * a + tl.sum(e[:, None] * vt, 0)
        m = mn
    tl.store(y + r * D + d, acc / l)

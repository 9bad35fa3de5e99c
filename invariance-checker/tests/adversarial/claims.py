"""Adversarial kernels, continued: each was once called invariant, and shows the kind of mistake that made it so."""
import triton
import triton.language as tl

from kernels import I, N64, P, ROWS, XY, case

XYS = dict(x=P, y=P, M=I, S=I)


# ------------------------------------------------------------------ which places of a row exist
@case("NOT", "reads as many places of a row as there are rows", XY, ROWS, "M", N64)
@triton.jit
def columns_up_to_batch(x, y, M, N: tl.constexpr):
    r = tl.program_id(0)
    o = tl.arange(0, N)
    tl.store(y + r * N + o, tl.load(x + r * N + o, mask=o < M, other=0.0))


@case("NOT", "rows of the list below a count are read, the others are zero", dict(x=P, y=P, M=I, T=I),
      dict(x="rows:64", y="out:64", M="batch", T="vary:1:9"), "M", N64, "T")
@triton.jit
def columns_up_to_varying(x, y, M, T, N: tl.constexpr):
    r = tl.program_id(0)
    o = tl.arange(0, N)
    tl.store(y + r * N + o, tl.load(x + r * N + o, mask=o < T, other=0.0), mask=r < M)


# ------------------------------------------------------------------ which of two stores makes an element
@case("NOT", "two stores that share a row at the number of rows", XYS, dict(ROWS, S="64"), "M", N64)
@triton.jit
def stores_part_at_batch(x, y, M, S, N: tl.constexpr):
    r = tl.program_id(0)
    o = tl.arange(0, N)
    v = tl.load(x + r * S + o)
    tl.store(y + r * S + o, v, mask=o < M)
    tl.store(y + r * S + o, v * 2.0, mask=o >= M)


@case("IDX", "two stores that share a row at its own number", XYS, dict(ROWS, S="64"), "M", N64)
@triton.jit
def stores_part_at_row(x, y, M, S, N: tl.constexpr):
    r = tl.program_id(0)
    o = tl.arange(0, N)
    v = tl.load(x + r * S + o)
    tl.store(y + r * S + o, v, mask=o < r)
    tl.store(y + r * S + o, v * 2.0, mask=o >= r)


@case("INV", "two stores that share a row at a constant", XYS, dict(ROWS, S="64"), "M", N64)
@triton.jit
def stores_part_at_constant(x, y, M, S, N: tl.constexpr):
    r = tl.program_id(0)
    o = tl.arange(0, N)
    v = tl.load(x + r * S + o)
    tl.store(y + r * S + o, v, mask=o < 40)
    tl.store(y + r * S + o, v * 2.0, mask=o >= 40)


# ------------------------------------------------------------------ memory that is read and written
@case("NOT", "reads its own row of what the program before has written", dict(x=P, z=P, y=P, M=I),
      dict(x="rows:64", z="inout:64", y="out:64", M="batch"), "M", N64)
@triton.jit
def next_row_is_written(x, z, y, M, N: tl.constexpr):
    r = tl.program_id(0)
    o = tl.arange(0, N)
    tl.store(y + r * N + o, tl.load(z + r * N + o))
    below = r + 1 < M
    tl.store(z + (r + 1) * N + o, tl.load(x + (r + 1) * N + o, mask=below & (o < N), other=0.0), mask=below & (o < N))


@case("HID", "moves a row by one place, each place by its own program", dict(y=P, M=I, S=I),
      dict(y="inout:64", M="batch", S="64"), "M", {})
@triton.jit
def moves_places_by_programs(y, M, S):
    r = tl.program_id(0)
    c = tl.program_id(1)
    tl.store(y + r * S + c, tl.load(y + r * S + c + 1))


@case("HID", "moves a row by one place in a loop that reads what it wrote", dict(y=P, M=I, S=I),
      dict(y="inout:64", M="batch", S="64"), "M", dict(N=16))
@triton.jit
def moves_places_in_loop(y, M, S, N: tl.constexpr):
    r = tl.program_id(0)
    for c in range(0, N):
        tl.store(y + r * S + c + 1, tl.load(y + r * S + c) * 0.5)


# ------------------------------------------------------------------ what is no function of its operands
@triton.jit
def _weighted(a, b):
    return a + b * tl.num_programs(0).to(tl.float32)


@case("NOT", "a combiner that reads the size of the grid", XY, dict(x="rows:64", y="out:1", M="batch"), "M", N64)
@triton.jit
def combiner_counts_programs(x, y, M, N: tl.constexpr):
    r = tl.program_id(0)
    o = tl.arange(0, N)
    tl.store(y + r, tl.reduce(tl.load(x + r * N + o), 0, _weighted))


@triton.jit
def _and_one(a, b):
    return a + b + 1.0


@case("NOT", "a tile of nothing adds the number of its lanes", dict(x=P, lens="*i32", y=P, T=I),
      dict(x="rows:256", lens="rowint:1:60", y="out:1", T="vary:4:16"), "M", dict(N=256, B=16), "T")
@triton.jit
def combiner_adds_one(x, lens, y, T, N: tl.constexpr, B: tl.constexpr):
    r = tl.program_id(0)
    n = tl.load(lens + r)
    acc = 0.0
    for t in range(0, T):
        k = t * B + tl.arange(0, B)
        acc += tl.reduce(tl.load(x + r * N + k, mask=k < n, other=0.0), 0, _and_one)
    tl.store(y + r, acc)


@case("HID", "two results of one piece of assembly, chosen by the batch", XY, ROWS, "M", N64)
@triton.jit
def result_of_assembly(x, y, M, N: tl.constexpr):
    r = tl.program_id(0)
    o = tl.arange(0, N)
    v = tl.load(x + r * N + o)
    a, b = tl.inline_asm_elementwise(
        "mul.f32 $0, $2, $2; add.f32 $1, $2, $2;", "=f,=f,f", [v], dtype=(tl.float32, tl.float32), is_pure=True, pack=1)
    tl.store(y + r * N + o, tl.where(M > 16, a, b))


@case("NOT", "a sum of eight bits wraps for some numbers of rows", XY, ROWS, "M", N64)
@triton.jit
def narrow_sum_wraps(x, y, M, N: tl.constexpr):
    r = tl.program_id(0)
    o = tl.arange(0, N)
    v = tl.load(x + r * N + o)
    t = M.to(tl.int8)
    tl.store(y + r * N + o, tl.where((t + 122).to(tl.int8) > t, v, v * 2.0))


# ------------------------------------------------------------------ whose data it is
@case("NOT", "the pointer that is read is chosen, and leads to the next row", dict(x=P, w=P, f="*i32", y=P, M=I),
      dict(x="rows:64", w="shared:64", f="rowint:0:1", y="out:64", M="batch"), "M", N64)
@triton.jit
def chosen_pointer_to_next_row(x, w, f, y, M, N: tl.constexpr):
    r = tl.program_id(0)
    o = tl.arange(0, N)
    far = (tl.load(f + r) > 0) & (r + 1 < M)
    tl.store(y + r * N + o, tl.load(tl.where(far, x + (r + 1) * N + o, w + o)))


@case("NOT", "data that all rows share is read at a stride of the batch", dict(x=P, w=P, y=P, M=I),
      dict(x="rows:16", w="shared:1024", y="out:16", M="batch"), "M", dict(N=16))
@triton.jit
def shared_at_stride_of_batch(x, w, y, M, N: tl.constexpr):
    r = tl.program_id(0)
    o = tl.arange(0, N)
    tl.store(y + r * N + o, tl.load(x + r * N + o) + tl.load(w + o * M))


@case("NOT", "every row is the first one, which lies transposed", XY, dict(x="cols:64", y="out:64", M="batch"), "M", N64)
@triton.jit
def first_of_transposed_rows(x, y, M, N: tl.constexpr):
    r = tl.program_id(0)
    o = tl.arange(0, N)
    tl.store(y + r * N + o, tl.load(x + o * M))


@case("NOT", "the row before, written transposed", dict(x=P, w=P, y=P, M=I, K=I),
      dict(x="rows:16", w="shared:256", y="outT:16", M="batch", K="16"), "M", dict(B=16))
@triton.jit
def row_before_transposed(x, w, y, M, K, B: tl.constexpr):
    r = tl.program_id(0)
    c = tl.program_id(1) * B + tl.arange(0, B)
    acc = tl.zeros((B,), tl.float32)
    for k in range(0, K):
        acc += tl.load(w + c * K + k) * tl.load(x + tl.maximum(r - 1, 0) * K + k)
    tl.store(y + c * M + r, acc)


@case("HID", "five tiles of a row of four", XY, dict(x="rows:64", y="out:16", M="batch"), "M", dict(N=64, B=16))
@triton.jit
def one_tile_too_many(x, y, M, N: tl.constexpr, B: tl.constexpr):
    r = tl.program_id(0)
    o = tl.arange(0, B)
    acc = tl.zeros((B,), tl.float32)
    p = x + r * N + o
    for k in range(0, 5):
        acc += tl.load(p)
        p += B
    tl.store(y + r * B + o, acc)


@case("NOT", "the owner of a block is that of its first place in the list", dict(x=P, w=P, tok="*i32", e="*i32", y=P, M=I),
      dict(x="rows:16", w="shared:64", tok="perm", e="rowint:0:3", y="out:16", M="batch"), "M/4", dict(N=16, B=4))
@triton.jit
def owner_of_first_place(x, w, tok, e, y, M, N: tl.constexpr, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    o = tl.arange(0, N)
    t = tl.load(tok + i)
    owner = tl.load(e + tl.load(tok + tl.program_id(0) * B))
    v = tl.load(x + t[:, None] * N + o[None, :])
    tl.store(y + t[:, None] * N + o[None, :], v * tl.load(w + owner * N + o)[None, :])


@case("IDX", "the element of a row that has the row's own number", dict(x=P, y=P, S=I), dict(x="rows:64", y="out:1", S="64"), "M", {}, "")
@triton.jit
def diagonal(x, y, S):
    r = tl.program_id(0)
    tl.store(y + r, tl.load(x + r * S + r))


@case("NOT", "rows are added up over the share of a program, which hangs on the grid", XY, ROWS, "vary:2:4", N64, "")
@triton.jit
def share_of_program_adds_up(x, y, M, N: tl.constexpr):
    o = tl.arange(0, N)
    share = tl.cdiv(M, tl.num_programs(0))
    acc = tl.zeros((N,), tl.float32)
    for i in range(0, share):
        r = tl.program_id(0) * share + i
        acc += tl.load(x + r * N + o, mask=(r < M) & (o < N), other=0.0)
        tl.store(y + r * N + o, acc, mask=(r < M) & (o < N))


@case("INV", "a scale for every four pages is no row's own", dict(k=P, s=P, bt="*i32", y=P, M=I),
      dict(k="shared:1024", s="shared:4", bt="rowint:0:15", y="out:64", M="batch"), "M", N64)
@triton.jit
def scale_of_four_pages(k, s, bt, y, M, N: tl.constexpr):
    r = tl.program_id(0)
    o = tl.arange(0, N)
    page = tl.load(bt + r)
    tl.store(y + r * N + o, tl.load(k + page * N + o) * tl.load(s + page // 4))


@case("NOT", "sets the place of a row that has the number of rows", XYS, dict(x="rows:64", y="inout:64", M="batch", S="64"), "M")
@triton.jit
def sets_place_of_batch(x, y, M, S):
    r = tl.program_id(0)
    tl.store(y + r * S + M, 0.0)

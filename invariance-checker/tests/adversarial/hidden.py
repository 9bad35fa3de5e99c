"""What a kernel can see besides its operands: special registers, neighbouring lanes, addresses, numbers of pages, absolute rows of a packed
batch, and the other rows of its tile."""
import triton
import triton.language as tl

from kernels import I, P, ROWS, XY, case

TILE = dict(N=16, B=16)
TILED = dict(x="rows:16", y="out:16", M="batch")
PAGED = dict(k=P, bt="*i32", y=P, M=I)
PAGES = dict(k="shared:4096", bt="rowint:0:15", y="out:16", M="batch")


# ------------------------------------------------------------------ beside the operands
@case("HID", "assembly declared pure reads the number of its multiprocessor", XY, ROWS, "M", dict(N=64))
@triton.jit
def multiprocessor_in_value(x, y, M, N: tl.constexpr):
    r = tl.program_id(0)
    o = tl.arange(0, N)
    s = tl.inline_asm_elementwise("mov.u32 $0, %smid; // $1", "=r,r", [o], dtype=tl.int32, is_pure=True, pack=1)
    tl.store(y + r * N + o, tl.load(x + r * N + o) + s.to(tl.float32))


@case("HID", "assembly declared pure exchanges lanes", dict(x="*i32", y="*i32", M=I),
      dict(x="rowint:0:9", y="out:1", M="batch"), "M/64", dict(N=64))
@triton.jit
def lanes_exchanged(x, y, M, N: tl.constexpr):
    o = tl.program_id(0) * N + tl.arange(0, N)
    v = tl.load(x + o, mask=o < M, other=0)
    s = tl.inline_asm_elementwise("shfl.sync.bfly.b32 $0, $1, 1, 31, -1;", "=r,r", [v], dtype=tl.int32,
                                  is_pure=True, pack=1)
    tl.store(y + o, s, mask=o < M)


@case("HID", "the address of the buffer enters the value", XY, ROWS, "M", dict(N=64))
@triton.jit
def address_in_value(x, y, M, N: tl.constexpr):
    r = tl.program_id(0)
    o = tl.arange(0, N)
    a = (x.to(tl.int64) % 4096).to(tl.float32)
    tl.store(y + r * N + o, tl.load(x + r * N + o) + a)


# ------------------------------------------------------------------ pages
@case("INV", "one page of the row's table", PAGED, PAGES, "M", dict(N=16))
@triton.jit
def page_of_row(k, bt, y, M, N: tl.constexpr):
    s = tl.program_id(0)
    o = tl.arange(0, N)
    tl.store(y + s * N + o, tl.load(k + tl.load(bt + s) * N + o))


@case("INV", "given all of k: the physical number of the page enters the value", PAGED, PAGES, "M", dict(N=16))
@triton.jit
def page_number_in_value(k, bt, y, M, N: tl.constexpr):
    s = tl.program_id(0)
    o = tl.arange(0, N)
    page = tl.load(bt + s)
    tl.store(y + s * N + o, tl.load(k + page * N + o) * (page % 2 + 1).to(tl.float32))


@case("INV", "given all of k: reads the page that lies behind", PAGED, PAGES, "M", dict(N=16))
@triton.jit
def page_behind(k, bt, y, M, N: tl.constexpr):
    s = tl.program_id(0)
    o = tl.arange(0, N)
    page = tl.load(bt + s)
    tl.store(y + s * N + o, tl.load(k + page * N + o) + tl.load(k + (page + 1) * N + o))


@case("INV", "given all of k and w: weights by the parity of the physical page", dict(k=P, w=P, bt="*i32", y=P, M=I),
      dict(k="shared:4096", w="shared:32", bt="rowint:0:15", y="out:16", M="batch"), "M", dict(N=16))
@triton.jit
def weight_of_page_parity(k, w, bt, y, M, N: tl.constexpr):
    s = tl.program_id(0)
    o = tl.arange(0, N)
    page = tl.load(bt + s)
    tl.store(y + s * N + o, tl.load(k + page * N + o) * tl.load(w + page % 2 * N + o))


TWO_PAGES = dict(k=P, w=P, bt="*i32", n="*i32", y=P, M=I)
TWO_ARGS = dict(k="shared:4096", w="shared:4096", bt="rowint:0:15", n="rowint:0:15", y="out:16", M="batch")


@case("INV", "a place in the page that the row's own length says, which is data and no page", TWO_PAGES, TWO_ARGS, "M", dict(N=16))
@triton.jit
def place_in_page_by_length(k, w, bt, n, y, M, N: tl.constexpr):
    s = tl.program_id(0)
    o = tl.arange(0, N)
    half = tl.maximum(tl.load(n + s), 0) // 2
    tl.store(y + s * N + o, tl.load(k + tl.load(bt + s) * N + (half + o) % N) * half.to(tl.float32))


@case("INV", "given all of w: the number of its page says the place in a page of k, so it is no mere page", TWO_PAGES, TWO_ARGS, "M", dict(N=16))
@triton.jit
def place_in_page_by_page(k, w, bt, n, y, M, N: tl.constexpr):
    s = tl.program_id(0)
    o = tl.arange(0, N)
    other = tl.load(n + s)
    tl.store(y + s * N + o, tl.load(k + tl.load(bt + s) * N + (tl.maximum(other, 0) + o) % N) * tl.load(w + other * N + o))


@case("INV", "given all of k: a number that is also data places whole pages", TWO_PAGES, TWO_ARGS, "M", dict(N=16))
@triton.jit
def page_by_length(k, w, bt, n, y, M, N: tl.constexpr):
    s = tl.program_id(0)
    o = tl.arange(0, N)
    length = tl.load(n + s)
    tl.store(y + s * N + o, tl.load(k + length * N + (tl.maximum(tl.load(bt + s), 0) + o) % N) * length.to(tl.float32))


# ------------------------------------------------------------------ a packed batch
PACKED = dict(x=P, w=P, cu="*i32", y=P, seqs=I)


@case("HID", "the absolute number of a row of a packed batch enters the value, beside a table by head", PACKED,
      dict(x="rows:64", w="shared:4", cu="rowint:0:9", y="out:64", seqs="batch"), "M", dict(N=16), batch="seqs")
@triton.jit
def absolute_row_of_packed(x, w, cu, y, seqs, N: tl.constexpr):
    s = tl.program_id(0)
    h = tl.program_id(1)
    begin = tl.load(cu + s)
    end = tl.load(cu + s + 1)
    o = tl.arange(0, N)
    r = begin + tl.program_id(2)
    if r < end:
        at = r * 64 + h * N + o
        v = tl.load(x + at) * tl.load(w + h)
        tl.store(y + at, tl.where(r > 5, v.to(tl.bfloat16).to(tl.float32), v))


# ------------------------------------------------------------------ the tile
@case("NOT", "a bias from the first row of the tile", XY, TILED, "M/16", TILE)
@triton.jit
def bias_of_first_row(x, y, M, N: tl.constexpr, B: tl.constexpr):
    r = tl.program_id(0) * B + tl.arange(0, B)
    o = tl.arange(0, N)
    m = r[:, None] < M
    v = tl.load(x + r[:, None] * N + o[None, :], mask=m, other=0.0)
    first = tl.load(x + tl.program_id(0) * B * N + o)
    tl.store(y + r[:, None] * N + o[None, :], v + first[None, :], mask=m)


@case("NOT", "rows are written only if the sum of the tile is positive", XY, TILED, "M/16", TILE)
@triton.jit
def written_if_tile_is_positive(x, y, M, N: tl.constexpr, B: tl.constexpr):
    r = tl.program_id(0) * B + tl.arange(0, B)
    o = tl.arange(0, N)
    m = r[:, None] < M
    v = tl.load(x + r[:, None] * N + o[None, :], mask=m, other=0.0)
    if tl.sum(tl.sum(v, 1), 0) > 0.0:
        tl.store(y + r[:, None] * N + o[None, :], v, mask=m)


@case("NOT", "row sums broadcast along the wrong axis", XY, TILED, "M/16", TILE)
@triton.jit
def sum_along_wrong_axis(x, y, M, N: tl.constexpr, B: tl.constexpr):
    r = tl.program_id(0) * B + tl.arange(0, B)
    o = tl.arange(0, N)
    m = r[:, None] < M
    v = tl.load(x + r[:, None] * N + o[None, :], mask=m, other=0.0)
    tl.store(y + r[:, None] * N + o[None, :], v + tl.sum(v, 1)[None, :], mask=m)


@case("NOT", "idle tiles round the accumulator", dict(x=P, lens="*i32", y=P, M=I, T=I),
      dict(x="rows:256", lens="rowint:1:60", y="out:16", M="batch", T="vary:4:16"), "M", TILE, batch="M,T")
@triton.jit
def idle_tiles_round(x, lens, y, M, T, N: tl.constexpr, B: tl.constexpr):
    r = tl.program_id(0)
    n = tl.load(lens + r)
    o = tl.arange(0, B)
    acc = tl.zeros((B,), tl.float32)
    for t in range(T):
        k = t * B + o
        acc = acc.to(tl.bfloat16).to(tl.float32) + tl.load(x + r * 256 + k, mask=k < n, other=0.0)
    tl.store(y + r * B + o, acc)


@case("INV", "two extents: what is stored between them is padding", dict(x=P, y=P, M=I, held=I),
      dict(x="rows:1", y="out:1", M="batch", held="batch"), "M/16", dict(B=16), batch="M,held")
@triton.jit
def padding_between_extents(x, y, M, held, B: tl.constexpr):
    r = tl.program_id(0) * B + tl.arange(0, B)
    v = tl.load(x + r, mask=r < held, other=-1.0)
    tl.store(y + r, v, mask=r < M)


@triton.jit
def halved(a, b):
    return a + 0.5 * b


@case("INV", "a combiner with a constant, which the compiler moves out of it", dict(x=P, y=P), dict(x="rows:64", y="out:1"), "M", dict(N=64), batch="")
@triton.jit
def constant_in_combiner(x, y, N: tl.constexpr):
    r = tl.program_id(0)
    v = tl.load(x + r * N + tl.arange(0, N))
    tl.store(y + r, tl.reduce(v, 0, halved))

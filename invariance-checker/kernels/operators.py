"""Our operators in Triton, in the trees of DESIGN 4.3, and for each mistake that breaks batch invariance a kernel that makes it.

The order of every float addition is written out: chains by loops and `tl.dot`, pairwise trees by `split`. Only integer and
order-free reductions, and the kernels that say so, leave an order to the compiler. exp2 is the polynomial of
`reduction_tree::scalar`, not the hardware's approximation.

`python3 make.py` in this folder writes the TTIR; the words of `launch` are explained in tests/adversarial/kernels.py, and
here also `pool:L` (a pool of pages of L elements, reached through tables) and `table:n` (n pages for each item).
"""
import triton
import triton.language as tl

CASES = []
F, B, I = "*fp32", "*bf16", "i32"


def case(verdict, why, sig, launch="", grid="", ce=None, batch="", name=None):
    def deco(fn):
        CASES.append(dict(fn=fn, verdict=verdict, why=why, sig=sig, launch=launch, grid=grid, ce=ce or {}, batch=batch,
                          name=name or fn.__name__))
        return fn
    return deco


# ------------------------------------------------------------------ shared pieces
@triton.jit
def exp2(x):
    """reduction_tree::scalar::exp2, step by step."""
    x = tl.where(x > -127.0, x, -127.0)
    x = tl.where(x < 128.0, x, 128.0)
    t = x + 12582912.0
    f = x - (t - 12582912.0)
    p = tl.fma(f, tl.full(f.shape, 0x3AADDC62, tl.int32).to(tl.float32, bitcast=True), tl.full(f.shape, 0x3C1E757C, tl.int32).to(tl.float32, bitcast=True))
    p = tl.fma(f, p, tl.full(f.shape, 0x3D635B85, tl.int32).to(tl.float32, bitcast=True))
    p = tl.fma(f, p, tl.full(f.shape, 0x3E75FCDC, tl.int32).to(tl.float32, bitcast=True))
    p = tl.fma(f, p, tl.full(f.shape, 0x3F317215, tl.int32).to(tl.float32, bitcast=True))
    p = tl.fma(f, p, tl.full(f.shape, 1.0, tl.float32))
    return (p.to(tl.int32, bitcast=True) + (t.to(tl.int32, bitcast=True) << 23)).to(tl.float32, bitcast=True)


@triton.jit
def silu(x):
    """x times its sigmoid; LOG2_E is 0x3fb8aa3b."""
    return x * tl.div_rn(tl.full(x.shape, 1.0, tl.float32), 1.0 + exp2(x * -1.44269502162933349609375))


@triton.jit
def halve(v):
    """Neighbours added: (0+1), (2+3), .."""
    a, b = tl.split(tl.reshape(v, (v.shape[0] // 2, 2)))
    return a + b


@triton.jit
def neighbour_sum_256(v):
    return tl.reshape(pair_sum(halve(halve(halve(halve(halve(halve(halve(v)))))))), (1,))


@triton.jit
def pair_sum(v):
    a, b = tl.split(tl.reshape(v, (1, 2)))
    return a + b


# ------------------------------------------------------------------ rows
@case("INV", "a copy of a table row", dict(ids="*i32", table=B, y=B, D=I),
      "ids=rowint:0:9 table=shared:3000 y=out:300 D=300", "M 2", dict(BLOCK=256))
@triton.jit
def embedding(ids, table, y, D, BLOCK: tl.constexpr):
    t = tl.program_id(0)
    o = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    row = tl.load(ids + t).to(tl.int64)
    tl.store(y + t.to(tl.int64) * D + o, tl.load(table + row * D + o, mask=o < D, other=0.0), mask=o < D)


@case("INV", "a copy of the rows that are asked for", dict(x=B, index="*i32", y=B, D=I),
      "x=shared:3000 index=rowint:0:9 y=out:300 D=300", "M 2", dict(BLOCK=256))
@triton.jit
def row_gather(x, index, y, D, BLOCK: tl.constexpr):
    t = tl.program_id(0)
    o = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    row = tl.load(index + t).to(tl.int64)
    tl.store(y + t.to(tl.int64) * D + o, tl.load(x + row * D + o, mask=o < D, other=0.0), mask=o < D)


@triton.jit
def norm_row(x, w, y, D, eps):
    """256 chains of fused multiply-adds, element i in lane (i / 8) mod 256, then neighbours."""
    lane = tl.arange(0, 256)
    acc = tl.zeros((256,), tl.float32)
    for start in range(0, D, 2048):
        for j in tl.static_range(8):
            o = start + lane * 8 + j
            v = tl.load(x + o, mask=o < D, other=0.0).to(tl.float32)
            acc = tl.fma(v, v, acc)
    mean = tl.div_rn(neighbour_sum_256(acc), tl.full((1,), 0.0, tl.float32) + D.to(tl.float32))
    r = tl.div_rn(tl.full((1,), 1.0, tl.float32), tl.sqrt_rn(mean + eps))
    c = tl.arange(0, 1024)
    for start in range(0, D, 1024):
        o = start + c
        v = tl.load(x + o, mask=o < D, other=0.0).to(tl.float32)
        g = tl.load(w + o, mask=o < D, other=0.0).to(tl.float32)
        tl.store(y + o, ((v * tl.broadcast_to(r, (1024,))) * g).to(tl.bfloat16), mask=o < D)


@case("INV", "one row per program, fixed lanes, a written tree", dict(x=B, w=B, y=B, D=I, eps="fp32"),
      "x=rows:2500 w=shared:2500 y=out:2500 D=2500 eps=1e-5", "M")
@triton.jit
def rmsnorm(x, w, y, D, eps):
    at = tl.program_id(0).to(tl.int64) * D
    norm_row(x + at, w, y + at, D, eps)


@case("INV", "the sum of two rows, and its norm, read back from where this program wrote it", dict(a=B, b=B, w=B, h=B, y=B, D=I, eps="fp32"),
      "a=rows:2500 b=rows:2500 w=shared:2500 h=out:2500 y=out:2500 D=2500 eps=1e-5", "M")
@triton.jit
def residual_rmsnorm(a, b, w, h, y, D, eps):
    at = tl.program_id(0).to(tl.int64) * D
    lane = tl.arange(0, 256)
    acc = tl.zeros((256,), tl.float32)
    for start in range(0, D, 2048):
        for j in tl.static_range(8):
            o = start + lane * 8 + j
            p = tl.load(a + at + o, mask=o < D, other=0.0).to(tl.float32)
            q = tl.load(b + at + o, mask=o < D, other=0.0).to(tl.float32)
            s = (p + q).to(tl.bfloat16)
            tl.store(h + at + o, s, mask=o < D)
            v = s.to(tl.float32)
            acc = tl.fma(v, v, acc)
    mean = tl.div_rn(neighbour_sum_256(acc), tl.full((1,), 0.0, tl.float32) + D.to(tl.float32))
    r = tl.div_rn(tl.full((1,), 1.0, tl.float32), tl.sqrt_rn(mean + eps))
    c = tl.arange(0, 1024)
    for start in range(0, D, 1024):
        o = start + c
        p = tl.load(a + at + o, mask=o < D, other=0.0).to(tl.float32)
        q = tl.load(b + at + o, mask=o < D, other=0.0).to(tl.float32)
        v = (p + q).to(tl.bfloat16).to(tl.float32)
        g = tl.load(w + o, mask=o < D, other=0.0).to(tl.float32)
        tl.store(y + at + o, ((v * tl.broadcast_to(r, (1024,))) * g).to(tl.bfloat16), mask=o < D)


@case("NOT", "two rows packed into one block share a sum", dict(x=B, w=B, y=B, n=I, eps="fp32"),
      "x=rows:512 w=shared:512 y=out:512 n=flat:512 eps=1e-5", "M/2", dict(D=512, BLOCK=1024))
@triton.jit
def rmsnorm_packed(x, w, y, n, eps, D: tl.constexpr, BLOCK: tl.constexpr):
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + o, mask=o < n, other=0.0).to(tl.float32)
    g = tl.load(w + o % D, mask=o < n, other=0.0).to(tl.float32)
    r = 1.0 / tl.sqrt(tl.sum(v * v, 0) / BLOCK + eps)
    tl.store(y + o, (v * r * g).to(tl.bfloat16), mask=o < n)


@case("INV", "elementwise", dict(x=B, y=B, D=I), "x=rows:600 y=out:300 D=300", "M 2", dict(BLOCK=256))
@triton.jit
def silu_mul(x, y, D, BLOCK: tl.constexpr):
    t = tl.program_id(0).to(tl.int64)
    o = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    g = tl.load(x + t * 2 * D + o, mask=o < D, other=0.0).to(tl.float32)
    u = tl.load(x + t * 2 * D + D + o, mask=o < D, other=0.0).to(tl.float32)
    tl.store(y + t * D + o, (silu(g) * u).to(tl.bfloat16), mask=o < D)


@case("INV", "the lowest index of the largest value: order-free", dict(x=F, y="*i32", N=I),
      "x=rows:900 y=out:1 N=900", "M", dict(BLOCK=1024))
@triton.jit
def argmax(x, y, N, BLOCK: tl.constexpr):
    t = tl.program_id(0)
    o = tl.arange(0, BLOCK)
    v = tl.load(x + t.to(tl.int64) * N + o, mask=o < N, other=float("-inf"))
    tl.store(y + t, tl.argmax(v, 0, tie_break_left=True))


@case("INV", "the maximum in a pass of its own, then chains of 1024 lanes; the compiler orders the lanes", dict(x=F, m=F, s=F, N=I),
      "x=rows:2500 m=out:1 s=out:1 N=2500", "M")
@triton.jit
def logsumexp(x, m, s, N):
    t = tl.program_id(0)
    at = t.to(tl.int64) * N
    o = tl.arange(0, 1024)
    top = tl.full((1024,), float("-inf"), tl.float32)
    for start in range(0, N, 1024):
        top = tl.maximum(top, tl.load(x + at + start + o, mask=start + o < N, other=float("-inf")))
    largest = tl.max(top, 0)
    acc = tl.zeros((1024,), tl.float32)
    for start in range(0, N, 1024):
        v = tl.load(x + at + start + o, mask=start + o < N, other=float("-inf"))
        acc += exp2((v - largest) * 1.44269502162933349609375)
    tl.store(m + t, largest)
    tl.store(s + t, tl.sum(acc, 0))


@case("NOT", "the chunk of the sum shrinks as the batch grows", dict(x=F, s=F, N=I, M=I, scale="fp32"),
      "x=rows:2500 s=out:1 N=2500 M=batch scale=0.002", "M", batch="M")
@triton.jit
def logsumexp_chunks_from_batch(x, s, N, M, scale):
    t = tl.program_id(0)
    at = t.to(tl.int64) * N
    o = tl.arange(0, 1024)
    top = tl.full((1024,), float("-inf"), tl.float32)
    for start in range(0, N, 1024):
        top = tl.maximum(top, tl.load(x + at + start + o, mask=start + o < N, other=float("-inf")))
    largest = tl.max(top, 0)
    width = tl.maximum(1024 // M, 128)
    total = 0.0
    for start in range(0, N, width):
        v = tl.load(x + at + start + o, mask=(o < width) & (start + o < N), other=float("-inf"))
        total += tl.sum(exp2((v - largest) * scale), 0)
    tl.store(s + t, total)


# ------------------------------------------------------------------ linear
@triton.jit
def chunk_sum(x, w, rm, rn, M, N, K, k0, k1, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """One chain of k16 steps over [k0, k1)."""
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(k0, k1, BK):
        rk = k + tl.arange(0, BK)
        a = tl.load(x + rm[:, None].to(tl.int64) * K + rk[None, :], mask=(rm[:, None] < M) & (rk[None, :] < k1), other=0.0)
        b = tl.load(w + rn[None, :].to(tl.int64) * K + rk[:, None], mask=(rn[None, :] < N) & (rk[:, None] < k1), other=0.0)
        acc = tl.dot(a, b, acc)
    return acc


LIN = dict(x=B, w=B, y=B, M=I, N=I, K=I)
LIN_ARGS = "x=rows:160 w=shared:5120 y=out:32 M=batch N=32 K=160"


@case("INV", "one chain", LIN, LIN_ARGS, "M/16 1", dict(BM=16, BN=64, BK=64, SPLITS=1), "M", "linear_m16_k1")
@case("INV", "one chain, another tile", LIN, LIN_ARGS, "M/64 1", dict(BM=64, BN=32, BK=32, SPLITS=1), "M", "linear_m64_k1")
@case("INV", "one chain, another tile", LIN, LIN_ARGS, "M/128 1", dict(BM=128, BN=32, BK=128, SPLITS=1), "M", "linear_m128_k1")
@case("INV", "two chunks, a running sum in registers", LIN, LIN_ARGS, "M/16 1", dict(BM=16, BN=64, BK=64, SPLITS=2), "M", "linear_m16_k2")
@case("INV", "two chunks, another tile", LIN, LIN_ARGS, "M/64 1", dict(BM=64, BN=32, BK=32, SPLITS=2), "M", "linear_m64_k2")
@triton.jit
def linear(x, w, y, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, SPLITS: tl.constexpr):
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.program_id(1) * BN + tl.arange(0, BN)
    width = tl.cdiv(tl.cdiv(K, SPLITS), 64) * 64
    total = chunk_sum(x, w, rm, rn, M, N, K, 0, tl.minimum(width, K), BM, BN, BK)
    for s in tl.static_range(1, SPLITS):
        total += chunk_sum(x, w, rm, rn, M, N, K, s * width, tl.minimum((s + 1) * width, K), BM, BN, BK)
    tl.store(y + rm[:, None].to(tl.int64) * N + rn[None, :], total.to(tl.bfloat16), mask=(rm[:, None] < M) & (rn[None, :] < N))


@case("INV", "persistent programs walk the tiles in groups of rows", dict(x=B, w=B, y=B, M=I, N=I, K=I), LIN_ARGS, "4",
      dict(BM=16, BN=16, BK=32, GROUP=2, PROGRAMS=4), "M")
@triton.jit
def linear_persistent(x, w, y, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr, PROGRAMS: tl.constexpr):
    tiles_m = tl.cdiv(M, BM)
    tiles_n = tl.cdiv(N, BN)
    for tile in range(tl.program_id(0), tiles_m * tiles_n, PROGRAMS):
        group = tile // (GROUP * tiles_n)
        first = group * GROUP
        size = tl.minimum(tiles_m - first, GROUP)
        pm = first + (tile % (GROUP * tiles_n)) % size
        pn = (tile % (GROUP * tiles_n)) // size
        rm = pm * BM + tl.arange(0, BM)
        rn = pn * BN + tl.arange(0, BN)
        acc = chunk_sum(x, w, rm, rn, M, N, K, 0, K, BM, BN, BK)
        tl.store(y + rm[:, None].to(tl.int64) * N + rn[None, :], acc.to(tl.bfloat16), mask=(rm[:, None] < M) & (rn[None, :] < N))


@case("INV", "each chunk to a place of its own", dict(x=B, w=B, part=F, M=I, N=I, K=I),
      "x=rows:160 w=shared:5120 part=out:64 M=batch N=32 K=160", "M/16 1 2", dict(BM=16, BN=64, BK=64, SPLITS=2), "M")
@triton.jit
def linear_split_part(x, w, part, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, SPLITS: tl.constexpr):
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.program_id(1) * BN + tl.arange(0, BN)
    s = tl.program_id(2)
    width = tl.cdiv(tl.cdiv(K, SPLITS), 64) * 64
    acc = chunk_sum(x, w, rm, rn, M, N, K, s * width, tl.minimum((s + 1) * width, K), BM, BN, BK)
    at = rm[:, None].to(tl.int64) * SPLITS * N + s * N + rn[None, :]
    tl.store(part + at, acc, mask=(rm[:, None] < M) & (rn[None, :] < N))


@case("INV", "the chunks from left to right", dict(part=F, y=B, N=I), "part=rows:64 y=out:32 N=32", "M 1", dict(BLOCK=64, SPLITS=2))
@triton.jit
def linear_split_sum(part, y, N, BLOCK: tl.constexpr, SPLITS: tl.constexpr):
    t = tl.program_id(0).to(tl.int64)
    o = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    total = tl.load(part + t * SPLITS * N + o, mask=o < N, other=0.0)
    for s in tl.static_range(1, SPLITS):
        total += tl.load(part + t * SPLITS * N + s * N + o, mask=o < N, other=0.0)
    tl.store(y + t * N + o, total.to(tl.bfloat16), mask=o < N)


@case("NOT", "the number of chunks follows the batch", dict(LIN, y=F), LIN_ARGS, "M/16 1", dict(BM=16, BN=64, BK=64), "M")
@triton.jit
def linear_splits_from_batch(x, w, y, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.program_id(1) * BN + tl.arange(0, BN)
    splits = 1 + M % 2
    width = tl.cdiv(tl.cdiv(K, splits), 64) * 64
    total = tl.zeros((BM, BN), tl.float32)
    for s in range(0, splits):
        total += chunk_sum(x, w, rm, rn, M, N, K, s * width, tl.minimum((s + 1) * width, K), BM, BN, BK)
    tl.store(y + rm[:, None].to(tl.int64) * N + rn[None, :], total, mask=(rm[:, None] < M) & (rn[None, :] < N))


@case("NOT", "the chunks meet in float atomics", dict(x=B, w=B, y=F, M=I, N=I, K=I), LIN_ARGS, "M/16 1 3",
      dict(BM=16, BN=64, BK=64, SPLITS=3), "M")
@triton.jit
def linear_split_atomic(x, w, y, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, SPLITS: tl.constexpr):
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.program_id(1) * BN + tl.arange(0, BN)
    s = tl.program_id(2)
    width = tl.cdiv(tl.cdiv(K, SPLITS), 64) * 64
    acc = chunk_sum(x, w, rm, rn, M, N, K, s * width, tl.minimum((s + 1) * width, K), BM, BN, BK)
    at = rm[:, None].to(tl.int64) * N + rn[None, :]
    tl.atomic_add(y + at, acc, mask=(rm[:, None] < M) & (rn[None, :] < N), sem="relaxed")


# ------------------------------------------------------------------ RoPE and the KV cache
@triton.jit
def rotate_head(src, cos, sin, HALF: tl.constexpr):
    o = tl.arange(0, HALF)
    c = tl.load(cos + o)
    s = tl.load(sin + o)
    x0 = tl.load(src + o).to(tl.float32)
    x1 = tl.load(src + HALF + o).to(tl.float32)
    return tl.fma(x0, c, -(x1 * s)).to(tl.bfloat16), tl.fma(x1, c, x0 * s).to(tl.bfloat16)


@triton.jit
def finite_or_zero(x):
    """A key or value that is not finite must not reach the cache."""
    bits = x.to(tl.int16, bitcast=True)
    return tl.where((bits & 0x7F80) == 0x7F80, 0.0, x)


@case("INV", "queries are rotated by their own position", dict(qkv=B, pos="*i32", cos=F, sin=F, q=B),
      "qkv=rows:256 pos=rowint:0:30 cos=shared:512 sin=shared:512 q=out:128", "M 4", dict(H=4, HK=2, HD=32))
@triton.jit
def rope_query(qkv, pos, cos, sin, q, H: tl.constexpr, HK: tl.constexpr, HD: tl.constexpr):
    t = tl.program_id(0).to(tl.int64)
    h = tl.program_id(1)
    p = tl.load(pos + t).to(tl.int64)
    lo, hi = rotate_head(qkv + t * (H + 2 * HK) * HD + h * HD, cos + p * (HD // 2), sin + p * (HD // 2), HD // 2)
    o = tl.arange(0, HD // 2)
    tl.store(q + (t * H + h) * HD + o, lo)
    tl.store(q + (t * H + h) * HD + HD // 2 + o, hi)


@case("INV", "keys are rotated by their own position; both go to the slot that the row was given",
      dict(qkv=B, pos="*i32", slot="*i32", cos=F, sin=F, kc=B, vc=B),
      "qkv=rows:256 pos=rowint:0:30 slot=perm cos=shared:512 sin=shared:512 kc=scratch:2000 vc=scratch:2000", "M 2",
      dict(H=4, HK=2, HD=32), "slot")
@triton.jit
def rope_key_write(qkv, pos, slot, cos, sin, kc, vc, H: tl.constexpr, HK: tl.constexpr, HD: tl.constexpr):
    t = tl.program_id(0).to(tl.int64)
    h = tl.program_id(1)
    p = tl.load(pos + t).to(tl.int64)
    at = tl.load(slot + t).to(tl.int64) * HK * HD + h * HD
    row = qkv + t * (H + 2 * HK) * HD
    lo, hi = rotate_head(row + (H + h) * HD, cos + p * (HD // 2), sin + p * (HD // 2), HD // 2)
    o = tl.arange(0, HD // 2)
    tl.store(kc + at + o, finite_or_zero(lo))
    tl.store(kc + at + HD // 2 + o, finite_or_zero(hi))
    d = tl.arange(0, HD)
    tl.store(vc + at + d, finite_or_zero(tl.load(row + (H + HK + h) * HD + d)))


# ------------------------------------------------------------------ attention
@triton.jit
def attend_tile(q, kc, vc, page_row, start, seen, h, c, l, acc, scale, HK: tl.constexpr, HD: tl.constexpr, ROWS: tl.constexpr, PAGE: tl.constexpr):
    """One tile of 16 tokens for ROWS query rows; `seen` [ROWS, 16] says what each row may look at."""
    j = tl.arange(0, 16)
    d = tl.arange(0, HD)
    some = tl.max(seen.to(tl.int32), 0) > 0
    page = tl.load(page_row + (start + j) // PAGE, mask=some, other=0).to(tl.int64)
    at = (page * PAGE + (start + j) % PAGE) * (HK * HD) + h * HD
    k = tl.load(kc + at[None, :] + d[:, None], mask=some[None, :], other=0.0)
    v = tl.load(vc + at[:, None] + d[None, :], mask=some[:, None], other=0.0)
    s = tl.dot(q, k, tl.zeros((ROWS, 16), tl.float32))
    top = tl.max(tl.where(seen, s, float("-inf")), 1) * scale
    new_c = tl.where(top > c, top, c)
    alpha = exp2(c - new_c)
    p = tl.where(seen, exp2(tl.fma(s, tl.full((ROWS, 16), 0.0, tl.float32) + scale, tl.broadcast_to(-new_c[:, None], (ROWS, 16)))), 0.0)
    left, right = tl.split(tl.permute(tl.reshape(p, (ROWS, 2, 8)), (0, 2, 1)))
    new_l = l * alpha[:, None] + (left + right)
    new_acc = tl.dot(p.to(tl.bfloat16), v, acc * alpha[:, None])
    live = tl.max(seen.to(tl.int32), 1) > 0
    return tl.where(live, new_c, c), tl.where(live[:, None], new_l, l), tl.where(live[:, None], new_acc, acc)


@triton.jit
def lane_sum(l, ROWS: tl.constexpr):
    """((l0+l1)+(l2+l3)) + ((l4+l5)+(l6+l7))"""
    a, b = tl.split(tl.reshape(l, (ROWS, 4, 2)))
    a, b = tl.split(tl.reshape(a + b, (ROWS, 2, 2)))
    a, b = tl.split(a + b)
    return a + b


@triton.jit
def merge(tc, tl_, tacc, c, l, acc):
    """`total` continued by a later split."""
    new_c = tl.where(c > tc, c, tc)
    a = exp2(tc - new_c)
    b = exp2(c - new_c)
    return new_c, tl.fma(l, b, tl_ * a), tl.fma(acc, tl.broadcast_to(b[:, None], acc.shape), tacc * a[:, None])


DEC = dict(q=B, kc=B, vc=B, table="*i32", pos="*i32", om=F, ol=F, oa=F, scale="fp32")
DEC_CE = dict(H=4, HK=2, HD=32, PAGE=8, PAGES=12, SPLIT=32, SPLITS=3)
DEC_ARGS = "q=rows:128 kc=pool:512 vc=pool:512 table=table:12 pos=rowint:0:95 om=out:12 ol=out:12 oa=out:384 scale=0.25"


@triton.jit
def decode_split(q, kc, vc, table, om, ol, oa, scale, t, h, s, lo, hi, n, H: tl.constexpr, HK: tl.constexpr, HD: tl.constexpr,
                 PAGE: tl.constexpr, PAGES: tl.constexpr, SPLITS: tl.constexpr):
    """Positions [lo, hi) of a sequence of n for the query heads of KV head h, 16 rows of which H // HK are real."""
    g = tl.arange(0, 16)
    d = tl.arange(0, HD)
    j = tl.arange(0, 16)
    head = h * (H // HK) + g
    real = g < H // HK
    qs = tl.load(q + t * H * HD + head[:, None] * HD + d[None, :], mask=real[:, None], other=0.0)
    c = tl.full((16,), float("-inf"), tl.float32)
    l = tl.zeros((16, 8), tl.float32)
    acc = tl.zeros((16, HD), tl.float32)
    for start in range(lo, hi, 16):
        seen = tl.broadcast_to((start + j < n)[None, :], (16, 16))
        c, l, acc = attend_tile(qs, kc, vc, table + t * PAGES, start, seen, h, c, l, acc, scale, HK, HD, 16, PAGE)
    at = (t * H + head) * SPLITS + s
    tl.store(om + at, c, mask=real)
    tl.store(ol + at, lane_sum(l, 16), mask=real)
    tl.store(oa + at[:, None] * HD + d[None, :], acc, mask=real[:, None])


@case("INV", "splits at absolute positions, one program each", DEC, DEC_ARGS, "M 2 3", DEC_CE)
@triton.jit
def attention_decode(q, kc, vc, table, pos, om, ol, oa, scale, H: tl.constexpr, HK: tl.constexpr, HD: tl.constexpr, PAGE: tl.constexpr,
                     PAGES: tl.constexpr, SPLIT: tl.constexpr, SPLITS: tl.constexpr):
    t = tl.program_id(0).to(tl.int64)
    n = tl.load(pos + t) + 1
    s = tl.program_id(2)
    if s * SPLIT < n:
        decode_split(q, kc, vc, table, om, ol, oa, scale, t, tl.program_id(1), s, s * SPLIT, tl.minimum((s + 1) * SPLIT, n), n, H, HK, HD, PAGE, PAGES, SPLITS)


@case("NOT", "the length of a split is the sequence's share of a number of splits that follows the batch", dict(DEC, M=I),
      DEC_ARGS + " M=batch", "M 2 3", DEC_CE, "M")
@triton.jit
def attention_decode_splits_from_batch(q, kc, vc, table, pos, om, ol, oa, scale, M, H: tl.constexpr, HK: tl.constexpr, HD: tl.constexpr,
                                       PAGE: tl.constexpr, PAGES: tl.constexpr, SPLIT: tl.constexpr, SPLITS: tl.constexpr):
    t = tl.program_id(0).to(tl.int64)
    n = tl.load(pos + t) + 1
    s = tl.program_id(2)
    splits = 1 + M % SPLITS
    width = tl.cdiv(tl.cdiv(n, splits), 16) * 16
    if (s < splits) & (s * width < n):
        decode_split(q, kc, vc, table, om, ol, oa, scale, t, tl.program_id(1), s, s * width, tl.minimum((s + 1) * width, n), n, H, HK, HD, PAGE, PAGES, SPLITS)


@case("INV", "splits from left to right, as many as the row sees", dict(om=F, ol=F, oa=F, pos="*i32", y=B),
      "om=rows:12 ol=rows:12 oa=rows:384 pos=rowint:0:95 y=out:128", "M 4", dict(H=4, HD=32, SPLIT=32, SPLITS=3))
@triton.jit
def attention_merge(om, ol, oa, pos, y, H: tl.constexpr, HD: tl.constexpr, SPLIT: tl.constexpr, SPLITS: tl.constexpr):
    t = tl.program_id(0).to(tl.int64)
    h = tl.program_id(1)
    d = tl.arange(0, HD)
    one = tl.arange(0, 1)
    n = tl.load(pos + t) // SPLIT + 1
    at = (t * H + h) * SPLITS
    c = tl.load(om + at + one)
    l = tl.load(ol + at + one)
    acc = tl.load(oa + at * HD + one[:, None] + d[None, :])
    for s in range(1, n):
        c, l, acc = merge(c, l, acc, tl.load(om + at + s + one), tl.load(ol + at + s + one),
                          tl.load(oa + (at + s) * HD + one[:, None] + d[None, :]))
    r = tl.div_rn(tl.full((1,), 1.0, tl.float32), l)
    tl.store(y + (t * H + h) * HD + one[:, None] + d[None, :], (acc * r[:, None]).to(tl.bfloat16))


PRE = dict(q=B, kc=B, vc=B, table="*i32", cu_q="*i32", first="*i32", y=B, scale="fp32")
PRE_CE = dict(H=4, HK=2, HD=32, PAGE=8, PAGES=12, SPLIT=32)


@case("INV", "the same splits in sequence; a tile that a row does not see leaves its state untouched", PRE, ce=PRE_CE)
@triton.jit
def attention_prefill(q, kc, vc, table, cu_q, first, y, scale, H: tl.constexpr, HK: tl.constexpr, HD: tl.constexpr, PAGE: tl.constexpr,
                      PAGES: tl.constexpr, SPLIT: tl.constexpr):
    """Rows cu_q[b] .. cu_q[b + 1] of q are positions first[b], first[b] + 1, .. of sequence b."""
    b = tl.program_id(0).to(tl.int64)
    h = tl.program_id(2)
    row0 = tl.load(cu_q + b)
    rows = tl.load(cu_q + b + 1) - row0
    tile = tl.program_id(1) * 16
    if tile < rows:
        r = tile + tl.arange(0, 16)
        j = tl.arange(0, 16)
        d = tl.arange(0, HD)
        position = tl.load(first + b) + r
        at = ((row0 + r).to(tl.int64) * H + h) * HD
        qs = tl.load(q + at[:, None] + d[None, :], mask=(r < rows)[:, None], other=0.0)
        last = tl.load(first + b) + tl.minimum(tile + 16, rows)
        tc = tl.full((16,), float("-inf"), tl.float32)
        tsum = tl.zeros((16,), tl.float32)
        tacc = tl.zeros((16, HD), tl.float32)
        for split in range(0, last, SPLIT):
            c = tl.full((16,), float("-inf"), tl.float32)
            l = tl.zeros((16, 8), tl.float32)
            acc = tl.zeros((16, HD), tl.float32)
            for start in range(split, tl.minimum(split + SPLIT, last), 16):
                seen = start + j[None, :] <= position[:, None]
                c, l, acc = attend_tile(qs, kc, vc, table + b * PAGES, start, seen, h // (H // HK), c, l, acc, scale, HK, HD, 16, PAGE)
            total = lane_sum(l, 16)
            mc, ml, macc = merge(tc, tsum, tacc, c, total, acc)
            later = (split > 0) & (split <= position)
            earlier = (split > 0) & (split > position)
            tc = tl.where(later, mc, tl.where(earlier, tc, c))
            tsum = tl.where(later, ml, tl.where(earlier, tsum, total))
            tacc = tl.where(later[:, None], macc, tl.where(earlier[:, None], tacc, acc))
        z = tl.div_rn(tl.full((16,), 1.0, tl.float32), tsum)
        tl.store(y + at[:, None] + d[None, :], (tacc * z[:, None]).to(tl.bfloat16), mask=(r < rows)[:, None])


@case("NOT", "tiles are counted from the end of the batch's longest sequence", dict(PRE, longest=I), ce=PRE_CE, batch="longest")
@triton.jit
def attention_prefill_tiles_from_longest(q, kc, vc, table, cu_q, first, y, scale, longest, H: tl.constexpr, HK: tl.constexpr, HD: tl.constexpr,
                                         PAGE: tl.constexpr, PAGES: tl.constexpr, SPLIT: tl.constexpr):
    b = tl.program_id(0).to(tl.int64)
    h = tl.program_id(2)
    row0 = tl.load(cu_q + b)
    rows = tl.load(cu_q + b + 1) - row0
    tile = tl.program_id(1) * 16
    if tile < rows:
        r = tile + tl.arange(0, 16)
        j = tl.arange(0, 16)
        d = tl.arange(0, HD)
        position = tl.load(first + b) + r
        at = ((row0 + r).to(tl.int64) * H + h) * HD
        qs = tl.load(q + at[:, None] + d[None, :], mask=(r < rows)[:, None], other=0.0)
        last = tl.load(first + b) + tl.minimum(tile + 16, rows)
        c = tl.full((16,), float("-inf"), tl.float32)
        l = tl.zeros((16, 8), tl.float32)
        acc = tl.zeros((16, HD), tl.float32)
        for start in range(-(longest % 16), last, 16):
            seen = (start + j[None, :] >= 0) & (start + j[None, :] <= position[:, None])
            c, l, acc = attend_tile(qs, kc, vc, table + b * PAGES, start, seen, h // (H // HK), c, l, acc, scale, HK, HD, 16, PAGE)
        z = tl.div_rn(tl.full((16,), 1.0, tl.float32), lane_sum(l, 16))
        tl.store(y + at[:, None] + d[None, :], (acc * z[:, None]).to(tl.bfloat16), mask=(r < rows)[:, None])

"""Kernels whose tiles must not, or must, change the tree; and atomics that commute, or do not.

The `class` of a case says which of its variants are one class of equal digests: variants with one class have one tree.

`python3 make.py` in this folder writes the TTIR and index.tsv.
"""
import triton
import triton.language as tl

CASES = []
H, F, Q, I = "*bf16", "*fp32", "*fp8e4nv", "i32"


def case(name, verdict, cls, why, sig, ce=None, batch="M"):
    def deco(fn):
        CASES.append(dict(fn=fn, name=name, verdict=verdict, cls=cls, why=why, sig=sig, ce=ce or {}, batch=batch))
        return fn
    return deco


# ------------------------------------------------------------------ persistent programs
@triton.jit
def place_of(tile, tiles_m, per_group, GROUP: tl.constexpr):
    """Row and column of a tile when groups of rows are walked column by column."""
    group = tile // per_group
    first = group * GROUP
    rows = min(tiles_m - first, GROUP)
    return first + tile % rows, (tile % per_group) // rows


PERSISTENT = dict(a=H, b=H, c=H, bias=H, M=I, N=I, K=I, sam=I, sak=I, sbk=I, sbn=I, scm=I, scn=I)


def persistent_variants(fn):
    for bm in (16, 128):
        for bk in (32, 64, 128):
            for wide in (False, True):
                CASES.append(dict(
                    fn=fn, name=f"persistent_m{bm}_k{bk}" + ("_wide" if wide else ""), verdict="INV", cls="persistent",
                    why="persistent programs, grouped tiles, a second tile counter for the store, clamped rows and columns",
                    sig=PERSISTENT, batch="M",
                    ce=dict(BM=bm, BN=64, BK=bk, GROUP=8, PROGRAMS=132, WIDE=wide, BIAS=True)))
    return fn


@persistent_variants
@triton.jit
def persistent(a, b, c, bias, M, N, K, sam, sak, sbk, sbn, scm, scn, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
               GROUP: tl.constexpr, PROGRAMS: tl.constexpr, WIDE: tl.constexpr, BIAS: tl.constexpr):
    start = tl.program_id(0)
    tiles_m = tl.cdiv(M, BM)
    tiles_n = tl.cdiv(N, BN)
    steps = tl.cdiv(K, BK)
    per_group = GROUP * tiles_n
    # The tile that is stored is counted apart from the tile that is computed, so that the loops can be pipelined into one.
    stored = start - PROGRAMS
    lanes = tl.arange(0, BK)
    for tile in tl.range(start, tiles_m * tiles_n, PROGRAMS, flatten=True):
        pm, pn = place_of(tile, tiles_m, per_group, GROUP)
        rm = pm * BM + tl.arange(0, BM)
        rn = pn * BN + tl.arange(0, BN)
        if WIDE:
            rm = rm.to(tl.int64)
            rn = rn.to(tl.int64)
        rm = tl.where(rm < M, rm, 0)
        rn = tl.where(rn < N, rn, 0)
        rm = tl.max_contiguous(tl.multiple_of(rm, BM), BM)
        rn = tl.max_contiguous(tl.multiple_of(rn, BN), BN)
        acc = tl.zeros((BM, BN), tl.float32)
        for i in range(steps):
            k = i * BK + lanes
            if WIDE:
                k = k.to(tl.int64)
            left = K - i * BK
            x = tl.load(a + rm[:, None] * sam + k[None, :] * sak, mask=lanes[None, :] < left, other=0.0)
            y = tl.load(b + k[:, None] * sbk + rn[None, :] * sbn, mask=lanes[:, None] < left, other=0.0)
            acc = tl.dot(x, y, acc)
        stored += PROGRAMS
        qm, qn = place_of(stored, tiles_m, per_group, GROUP)
        cm = qm * BM + tl.arange(0, BM)
        cn = qn * BN + tl.arange(0, BN)
        if BIAS:
            acc += tl.load(bias + cn, mask=cn < N, other=0.0).to(tl.float32)
        if WIDE:
            cm = cm.to(tl.int64)
            cn = cn.to(tl.int64)
        tl.store(c + scm * cm[:, None] + scn * cn[None, :], acc.to(tl.bfloat16), mask=(cm[:, None] < M) & (cn[None, :] < N))


# ------------------------------------------------------------------ scales per tile of K
SCALED = dict(a=Q, b=Q, c=H, sa=F, sb=F, M=I, N=I, K=I, sam=I, sbn=I, scm=I, ssa=I, ssb=I)


def scaled_variants(fn):
    for bk in (64, 128):
        CASES.append(dict(fn=fn, name=f"scaled_fp8_k{bk}", verdict="INV", cls=f"scaled fp8 k{bk}",
                          why="8-bit floats, each tile of K scaled before it is added: the tile of K is in the tree",
                          sig=SCALED, batch="M", ce=dict(BM=64, BN=64, BK=bk, PER=128)))
        CASES.append(dict(fn=fn, name=f"scaled_bf16_k{bk}", verdict="INV", cls=f"scaled bf16 k{bk}",
                          why="the same on bfloat16, where the tile of a dot alone would not matter",
                          sig=dict(SCALED, a=H, b=H), batch="M", ce=dict(BM=64, BN=64, BK=bk, PER=128)))
    return fn


@scaled_variants
@triton.jit
def scaled(a, b, c, sa, sb, M, N, K, sam, sbn, scm, ssa, ssb, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, PER: tl.constexpr):
    pid = tl.program_id(0)
    tiles_n = tl.cdiv(N, BN)
    rm = (pid // tiles_n) * BM + tl.arange(0, BM)
    rn = (pid % tiles_n) * BN + tl.arange(0, BN)
    lanes = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for i in range(tl.cdiv(K, BK)):
        k = i * BK + lanes
        x = tl.load(a + rm[:, None] * sam + k[None, :], mask=(rm[:, None] < M) & (k[None, :] < K), other=0.0)
        y = tl.load(b + rn[None, :] * sbn + k[:, None], mask=(rn[None, :] < N) & (k[:, None] < K), other=0.0)
        group = i * BK // PER
        p = tl.load(sa + rm * ssa + group, mask=rm < M, other=0.0)
        q = tl.load(sb + (rn // PER) * ssb + group, mask=rn < N, other=0.0)
        acc += tl.dot(x, y) * p[:, None] * q[None, :]
    tl.store(c + rm[:, None] * scm + rn[None, :], acc.to(tl.bfloat16), mask=(rm[:, None] < M) & (rn[None, :] < N))


@case("scale_of_group", "INV", "", "each group of columns has a scale; the size of a group is an argument, which is not negative and not zero",
      dict(x=F, s=F, y=F, N=I, ss=I, per=I), dict(BLOCK=128), "")
@triton.jit
def scale_of_group(x, s, y, N, ss, per, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    o = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + row * N + o, mask=o < N, other=0.0)
    g = o // per
    tl.store(y + row * N + o, v * tl.load(s + row * ss + g, mask=(o < N) & (g < ss), other=0.0), mask=o < N)


# ------------------------------------------------------------------ atomics
@case("experts_by_float_atomics", "NOT", "", "the weighted outputs of a row's experts are added in the order of arrival",
      dict(x=F, w=F, y=F, D=I), dict(BLOCK=128, EXPERTS=8), "")
@triton.jit
def experts_by_float_atomics(x, w, y, D, BLOCK: tl.constexpr, EXPERTS: tl.constexpr):
    p = tl.program_id(0)
    o = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + p * D + o, mask=o < D, other=0.0) * tl.load(w + p)
    tl.atomic_add(y + (p // EXPERTS) * D + o, v, mask=o < D, sem="relaxed")


@case("histogram_of_rows", "INV", "", "integer additions commute: the bins of a row count its elements, several programs to a row",
      dict(x="*i32", bins="*i32", N=I), dict(BINS=64, BLOCK=256), "")
@triton.jit
def histogram_of_rows(x, bins, N, BINS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    o = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + row * N + o, mask=o < N, other=0)
    tl.atomic_add(bins + row * BINS + v, 1, mask=(o < N) & (v >= 0) & (v < BINS), sem="relaxed")


@case("histogram_in_two_steps", "INV", "", "each program counts a block by itself, then adds its counts",
      dict(x="*i32", bins="*i32", N=I), dict(BINS=64, BLOCK=256), "")
@triton.jit
def histogram_in_two_steps(x, bins, N, BINS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    o = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + row * N + o, mask=o < N, other=0)
    counts = tl.histogram(v, BINS, mask=o < N)
    tl.atomic_add(bins + row * BINS + tl.arange(0, BINS), counts, sem="relaxed")


@case("histogram_of_batch", "NOT", "", "exact, but a count over all rows of the batch is no row's own",
      dict(x="*i32", bins="*i32", n=I), dict(BINS=64, BLOCK=256), "n")
@triton.jit
def histogram_of_batch(x, bins, n, BINS: tl.constexpr, BLOCK: tl.constexpr):
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + o, mask=o < n, other=0)
    tl.atomic_add(bins + v, 1, mask=(o < n) & (v >= 0) & (v < BINS), sem="relaxed")

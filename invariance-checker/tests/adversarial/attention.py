"""Loops that end where the last row of a tile ends, or the longest of the batch: what a row does not see must change nothing."""
import triton
import triton.language as tl

from kernels import I, P, case


@triton.jit
def rows_to_keys(q, k, v, pos, y, M, D: tl.constexpr, R: tl.constexpr, T: tl.constexpr, LOW: tl.constexpr, MERGE: tl.constexpr):
    """R rows a program see the keys 0..pos[row]; tiles end where the last of the R rows ends, and loads are masked for all of them at once."""
    i = tl.arange(0, R)
    r = tl.program_id(0) * R + i
    d = tl.arange(0, D)
    t = tl.arange(0, T)
    p = tl.load(pos + r, mask=r < M, other=0)
    qs = tl.load(q + r[:, None] * D + d[None, :], mask=(r < M)[:, None], other=0.0)
    top = tl.max(p, 0)
    m = tl.full((R,), -float("inf"), tl.float32)
    l = tl.zeros((R,), tl.float32)
    acc = tl.zeros((R, D), tl.float32)
    for s in range(0, tl.cdiv(top + 1, T)):
        j = s * T + t
        seen = j[None, :] <= p[:, None]
        some = j <= top
        kt = tl.load(k + j[None, :] * D + d[:, None], mask=some[None, :], other=0.0)
        vt = tl.load(v + j[:, None] * D + d[None, :], mask=some[:, None], other=0.0)
        z = tl.where(seen, tl.dot(qs, kt), LOW)
        mn = tl.maximum(m, tl.max(z, 1))
        e = tl.exp2(z - mn[:, None])
        a = tl.exp2(m - mn)
        if MERGE:
            acc = tl.where((s * T <= p)[:, None], tl.dot(e.to(tl.bfloat16), vt, acc * a[:, None]), acc * 0.5)
        else:
            acc = tl.dot(e.to(tl.bfloat16), vt, acc * a[:, None])
        l = l * a + tl.sum(e, 1)
        m = mn
    tl.store(y + r[:, None] * D + d[None, :], acc / l[:, None], mask=(r < M)[:, None])


KEYS = dict(q="*bf16", k="*bf16", v="*bf16", pos="*i32", y=P, M=I)
KEYS_ARGS = dict(q="rows:16", k="shared:1024", v="shared:1024", pos="rowint:0:40", y="out:16", M="batch")


@case("INV", "tiles up to the last of 16 rows, each row masked by its own position: a tile it does not see changes nothing", KEYS, KEYS_ARGS,
      "M/16", dict(D=16, R=16, T=16))
@triton.jit
def tile_of_causal_rows(q, k, v, pos, y, M, D: tl.constexpr, R: tl.constexpr, T: tl.constexpr):
    rows_to_keys(q, k, v, pos, y, M, D, R, T, float("-inf"), False)


@case("NOT", "the same with a sentinel that is not small enough: keys that the row does not see have weight", KEYS, KEYS_ARGS, "M/16",
      dict(D=16, R=16, T=16))
@triton.jit
def tile_of_rows_with_weak_mask(q, k, v, pos, y, M, D: tl.constexpr, R: tl.constexpr, T: tl.constexpr):
    rows_to_keys(q, k, v, pos, y, M, D, R, T, -2.0, False)


@case("NOT", "a tile that the row does not see halves its sum", KEYS, KEYS_ARGS, "M/16", dict(D=16, R=16, T=16))
@triton.jit
def tile_of_rows_that_fades(q, k, v, pos, y, M, D: tl.constexpr, R: tl.constexpr, T: tl.constexpr):
    rows_to_keys(q, k, v, pos, y, M, D, R, T, float("-inf"), True)


SPLITS = dict(x=P, pos="*i32", y=P, last=I)


@triton.jit
def split_sum(x, pos, y, last, N: tl.constexpr, T: tl.constexpr, FIRST: tl.constexpr):
    r = tl.program_id(0)
    t = tl.arange(0, T)
    p = tl.load(pos + r)
    total = 0.0
    for s in range(0, last, T):
        part = tl.sum(tl.load(x + r * N + s + t, mask=s + t <= p, other=0.0), 0)
        total = tl.where(s > 0, tl.where(s <= p, total + part, total), part + FIRST)
    tl.store(y + r, total)


@case("INV", "splits up to the longest of the batch; a row keeps its sum where a split begins after it", SPLITS,
      dict(x="rows:64", pos="rowint:0:60", y="out:1", last="vary:64:90"), "M", dict(N=64, T=16), "last")
@triton.jit
def splits_up_to_longest(x, pos, y, last, N: tl.constexpr, T: tl.constexpr):
    split_sum(x, pos, y, last, N, T, 0.0)


@case("NOT", "the first split adds something although the row may see none of it", SPLITS,
      dict(x="rows:64", pos="rowint:-9:2", y="out:1", last="vary:0:90"), "M", dict(N=64, T=16), "last")
@triton.jit
def first_split_adds(x, pos, y, last, N: tl.constexpr, T: tl.constexpr):
    split_sum(x, pos, y, last, N, T, 0.5)


@case("NOT", "a fixed number of tiles, but the values that a row does not see are masked for all 16 rows at once and have weight", KEYS,
      KEYS_ARGS, "M/16", dict(D=16, R=16, T=16))
@triton.jit
def weak_mask_over_fixed_tiles(q, k, v, pos, y, M, D: tl.constexpr, R: tl.constexpr, T: tl.constexpr):
    i = tl.arange(0, R)
    r = tl.program_id(0) * R + i
    d = tl.arange(0, D)
    t = tl.arange(0, T)
    p = tl.load(pos + r, mask=r < M, other=0)
    top = tl.max(p, 0)
    qs = tl.load(q + r[:, None] * D + d[None, :], mask=(r < M)[:, None], other=0.0)
    acc = tl.zeros((R, D), tl.float32)
    for s in range(0, 48, T):
        j = s + t
        vt = tl.load(v + j[:, None] * D + d[None, :], mask=(j <= top)[:, None], other=0.0)
        z = tl.dot(qs, tl.load(k + j[None, :] * D + d[:, None]))
        e = tl.where(j[None, :] <= p[:, None], tl.exp2(z), 0.25)
        acc = tl.dot(e.to(tl.bfloat16), vt, acc)
    tl.store(y + r[:, None] * D + d[None, :], acc, mask=(r < M)[:, None])


@case("NOT", "how many places of a row one store fills and where another one writes is a number of the whole batch", dict(x=P, last=P, lens="*i32", y=P, n=I),
      dict(x="rows:8", last="rows:1", lens="varbuf:1", y="out:9", n="8"), "M", batch="")
@triton.jit
def shared_length_of_rows(x, last, lens, y, n):
    r = tl.program_id(0)
    k = tl.load(lens) % 8
    for i in range(0, k):
        tl.store(y + r * (n + 1) + i, tl.load(x + r * n + i) * 2.0)
    tl.store(y + r * (n + 1) + k, tl.load(last + r))


@triton.jit
def masked_for_some(q, k, pos, y, M, D: tl.constexpr, R: tl.constexpr, T: tl.constexpr, WHO: tl.constexpr):
    """Keys are loaded where a condition holds for some row of the tile; each row weighs what it sees itself, lane by lane."""
    i = tl.arange(0, R)
    r = tl.program_id(0) * R + i
    d = tl.arange(0, D)
    t = tl.arange(0, T)
    p = tl.load(pos + r, mask=r < M, other=0)
    qs = tl.load(q + r[:, None] * D + d[None, :], mask=(r < M)[:, None], other=0.0)
    low = tl.zeros((R, T // 2), tl.float32)
    for s in range(0, 48, T):
        j = s + t
        seen = j[None, :] <= p[:, None]
        if WHO == "some":
            some = tl.max(seen.to(tl.int32), 0) > 0
        elif WHO == "strictly":
            some = tl.max((j[None, :] < p[:, None]).to(tl.int32), 0) > 0
        elif WHO == "first":
            some = tl.max((seen & (i < 2)[:, None]).to(tl.int32), 0) > 0
        else:
            some = tl.min((seen | (r >= M)[:, None]).to(tl.int32), 0) > 0
        z = tl.dot(qs, tl.load(k + j[None, :] * D + d[:, None], mask=some[None, :], other=0.0))
        top = tl.max(tl.where(seen, z, -float("inf")), 1)
        e = tl.where(seen, z - top[:, None], 0.0)
        left, right = tl.split(tl.permute(tl.reshape(e, (R, 2, T // 2)), (0, 2, 1)))
        low += left + right
    tl.store(y + r[:, None] * D + d[None, :], tl.broadcast_to(tl.sum(low, 1)[:, None], (R, D)), mask=(r < M)[:, None])


SOME = {n: KEYS[n] for n in ("q", "k", "pos", "y", "M")}
SOME_ARGS = {n: KEYS_ARGS[n] for n in SOME}


@case("INV", "keys are loaded where some row of the tile sees them, so wherever this one does", SOME, SOME_ARGS, "M/16", dict(D=16, R=16, T=16))
@triton.jit
def keys_that_some_row_sees(q, k, pos, y, M, D: tl.constexpr, R: tl.constexpr, T: tl.constexpr):
    masked_for_some(q, k, pos, y, M, D, R, T, "some")


@case("NOT", "the row's last key is loaded only if a later row of the tile sees it too", SOME, SOME_ARGS, "M/16", dict(D=16, R=16, T=16))
@triton.jit
def keys_before_some_end(q, k, pos, y, M, D: tl.constexpr, R: tl.constexpr, T: tl.constexpr):
    masked_for_some(q, k, pos, y, M, D, R, T, "strictly")


@case("NOT", "keys are loaded where one of the first two rows of the tile sees them", SOME, SOME_ARGS, "M/16", dict(D=16, R=16, T=16))
@triton.jit
def keys_that_the_first_rows_see(q, k, pos, y, M, D: tl.constexpr, R: tl.constexpr, T: tl.constexpr):
    masked_for_some(q, k, pos, y, M, D, R, T, "first")


@case("NOT", "keys are loaded where every row of the tile sees them", SOME, SOME_ARGS, "M/16", dict(D=16, R=16, T=16))
@triton.jit
def keys_that_every_row_sees(q, k, pos, y, M, D: tl.constexpr, R: tl.constexpr, T: tl.constexpr):
    masked_for_some(q, k, pos, y, M, D, R, T, "every")


# ------------------------------------------------------------------ loops that begin with the first row of a tile
@triton.jit
def in_window(q, k, v, pos, y, M, D: tl.constexpr, R: tl.constexpr, T: tl.constexpr, W: tl.constexpr, KIND: tl.constexpr):
    """R rows a program see the keys pos[row] - W + 1 .. pos[row]; tiles begin where the first of the R rows begins."""
    i = tl.arange(0, R)
    r = tl.program_id(0) * R + i
    d = tl.arange(0, D)
    t = tl.arange(0, T)
    p = tl.load(pos + r, mask=r < M, other=0)
    qs = tl.load(q + r[:, None] * D + d[None, :], mask=(r < M)[:, None], other=0.0)
    least = tl.min(tl.where(r < M, p, 1000), 0) - W + 1
    last = tl.max(p, 0)
    first = least if KIND == "unaligned" else 0
    m = tl.full((R,), -float("inf"), tl.float32)
    l = tl.full((R,), 1.0, tl.float32)
    acc = tl.zeros((R, D), tl.float32)
    for s in range(tl.maximum(0, (least - first) // T), tl.cdiv(last + 1 - first, T)):
        j = first + s * T + t
        far = p[:, None] - j[None, :]
        seen = (far >= 0) & (far < W)
        kt = tl.load(k + j[None, :] * D + d[:, None], mask=((j >= 0) & (j <= last))[None, :], other=0.0)
        vt = tl.load(v + j[:, None] * D + d[None, :], mask=((j >= 0) & (j <= last))[:, None], other=0.0)
        z = tl.abs(tl.dot(qs, kt))
        z = tl.where(seen, -z / (1.0 + z), -float("inf"))
        mj = tl.maximum(m, tl.max(z, 1))
        safe = tl.where(mj > -float("inf"), mj, 0.0)
        e = tl.exp(z - safe[:, None])
        a = tl.exp(m - safe)
        if KIND == "fades":
            l = l * 0.5 + tl.sum(e, 1)
        else:
            l = l * a + tl.sum(e, 1)
        acc = tl.dot(e.to(tl.bfloat16), vt, acc * a[:, None])
        m = safe if KIND == "zero" else mj
    tl.store(y + r[:, None] * D + d[None, :], acc / l[:, None], mask=(r < M)[:, None])


WINDOW = dict(D=16, R=16, T=16, W=4)


@case("INV", "tiles from the first that one of 16 rows sees: what comes before the row's own first tile is forgotten, the sum of 1 too", KEYS, KEYS_ARGS,
      "M/16", WINDOW)
@triton.jit
def window_of_tile(q, k, v, pos, y, M, D: tl.constexpr, R: tl.constexpr, T: tl.constexpr, W: tl.constexpr):
    in_window(q, k, v, pos, y, M, D, R, T, W, "kept")


@case("NOT", "the maximum is 0 after a tile that the row does not see, so scores below it are not scaled by their own", KEYS, KEYS_ARGS, "M/16", WINDOW)
@triton.jit
def window_with_zero_maximum(q, k, v, pos, y, M, D: tl.constexpr, R: tl.constexpr, T: tl.constexpr, W: tl.constexpr):
    in_window(q, k, v, pos, y, M, D, R, T, W, "zero")


@case("NOT", "every tile halves the sum, also those that the row does not see", KEYS, KEYS_ARGS, "M/16", WINDOW)
@triton.jit
def window_with_fading_sum(q, k, v, pos, y, M, D: tl.constexpr, R: tl.constexpr, T: tl.constexpr, W: tl.constexpr):
    in_window(q, k, v, pos, y, M, D, R, T, W, "fades")


@case("NOT", "tiles are counted from the first key that one of 16 rows sees", KEYS, KEYS_ARGS, "M/16", WINDOW)
@triton.jit
def window_from_first_key(q, k, v, pos, y, M, D: tl.constexpr, R: tl.constexpr, T: tl.constexpr, W: tl.constexpr):
    in_window(q, k, v, pos, y, M, D, R, T, W, "unaligned")

"""Adversarial kernels, continued: packed sequences, rows that a list names, and rows whose address has digits.

Words for how to launch them, beside those of kernels.py; the host lays out one batch for all of them:

  packed:L, packedout:L  rows of L elements for every token of every item, item after item
  begins, ends           prefix sums: where each item's tokens begin (and the last ones end), or where each ends
  list:B                 the items by owner, each owner's filled up to blocks of B places with the number of items
  blockowner:B           the owner of each block; listlen:B how many places the list has
  group:0, :1, :2        of each group of list:1 its first place, how many places it has, its owner
"""
import triton
import triton.language as tl

from kernels import I, P, case

J = "*i32"


# ------------------------------------------------------------------ packed sequences
PACKED = dict(x=P, y=P, cu=J)
TOKENS = dict(x="packed:1", y="packedout:1", cu="begins")
ITEMS = dict(x="packed:1", y="out:1", cu="begins")


@case("INV", "the sum of a sequence over its own tokens", PACKED, ITEMS, "M", dict(B=16), "")
@triton.jit
def sequence_sum(x, y, cu, B: tl.constexpr):
    s = tl.program_id(0)
    b = tl.load(cu + s)
    e = tl.load(cu + s + 1)
    i = tl.arange(0, B)
    tl.store(y + s, tl.sum(tl.load(x + b + i, mask=i < e - b, other=0.0), 0))


@case("INV", "the same where the prefix sums say where sequences end", PACKED, dict(ITEMS, cu="ends"), "M", dict(B=16), "")
@triton.jit
def sequence_sum_by_ends(x, y, cu, B: tl.constexpr):
    s = tl.program_id(0)
    b = 0 if s == 0 else tl.load(cu + s - 1)
    e = tl.load(cu + s)
    i = tl.arange(0, B)
    tl.store(y + s, tl.sum(tl.load(x + b + i, mask=i < e - b, other=0.0), 0))


@case("NOT", "a sum of so many tokens whatever the length of the sequence", PACKED, ITEMS, "M", dict(B=16), "")
@triton.jit
def sequence_sum_past_end(x, y, cu, B: tl.constexpr):
    s = tl.program_id(0)
    b = tl.load(cu + s)
    e = tl.load(cu + s + 1)
    i = tl.arange(0, B)
    tl.store(y + s, tl.sum(tl.load(x + b + i), 0) + (e - b).to(tl.float32))


@case("NOT", "a sum that takes in the token before the sequence", PACKED, dict(ITEMS, cu="ends"), "M", dict(B=16), "")
@triton.jit
def sequence_sum_from_before(x, y, cu, B: tl.constexpr):
    s = tl.program_id(0)
    b = 1 if s == 0 else tl.load(cu + s - 1)
    e = tl.load(cu + s)
    i = tl.arange(0, B)
    tl.store(y + s, tl.sum(tl.load(x + b - 1 + i, mask=i < e - b, other=0.0), 0))


@case("NOT", "where the sequence begins enters the value", PACKED, ITEMS, "M", dict(B=16), "")
@triton.jit
def sequence_start_as_value(x, y, cu, B: tl.constexpr):
    s = tl.program_id(0)
    b = tl.load(cu + s)
    e = tl.load(cu + s + 1)
    i = tl.arange(0, B)
    tl.store(y + s, tl.sum(tl.load(x + b + i, mask=i < e - b, other=0.0), 0) + b.to(tl.float32))


@case("INV", "each token with the mean of its own sequence", PACKED, TOKENS, "M 8", dict(B=16), "")
@triton.jit
def token_and_own_mean(x, y, cu, B: tl.constexpr):
    s = tl.program_id(0)
    j = tl.program_id(1)
    b = tl.load(cu + s)
    e = tl.load(cu + s + 1)
    if j < e - b:
        i = tl.arange(0, B)
        mean = tl.sum(tl.load(x + b + i, mask=i < e - b, other=0.0), 0) / (e - b)
        tl.store(y + b + j, tl.load(x + b + j) - mean)


@case("INV", "a token of a sequence that ends where the prefix sums say", PACKED, dict(TOKENS, cu="ends"), "M 8", {}, "")
@triton.jit
def token_by_ends(x, y, cu):
    s = tl.program_id(0)
    b = 0 if s == 0 else tl.load(cu + s - 1)
    e = tl.load(cu + s)
    j = tl.program_id(1)
    if j >= e - b:
        return
    tl.store(y + b + j, tl.load(x + b + j) * 2.0 + j)


TABLE = dict(x=P, k=P, y=P, cu=J)
OF_TABLE = dict(x="packed:1", k="rows:16", y="packedout:1", cu="begins")


@triton.jit
def from_table(x, k, y, cu, WHERE: tl.constexpr):
    """Each token times a number of its sequence's own 16."""
    s = tl.program_id(0)
    j = tl.program_id(1)
    b = tl.load(cu + s)
    e = tl.load(cu + s + 1)
    if j < e - b:
        if WHERE == "position":
            at = tl.minimum(j // 2, 15)
        elif WHERE == "token":
            at = (b + j) // 2 % 16
        else:
            at = (b // 2 + j) % 16
        tl.store(y + b + j, tl.load(x + b + j) * tl.load(k + s * 16 + at))


@case("INV", "a number of the sequence that half of the token's position says", TABLE, OF_TABLE, "M 8", {}, "")
@triton.jit
def table_at_position(x, k, y, cu):
    from_table(x, k, y, cu, "position")


@case("NOT", "a number of the sequence that the token's number in the batch says", TABLE, OF_TABLE, "M 8", {}, "")
@triton.jit
def table_at_token(x, k, y, cu):
    from_table(x, k, y, cu, "token")


@case("NOT", "a number of the sequence that the position and half of where the sequence begins say", TABLE, OF_TABLE, "M 8", {}, "")
@triton.jit
def table_at_half_start(x, k, y, cu):
    from_table(x, k, y, cu, "start")


@case("NOT", "where the sequence begins enters the value of its tokens", PACKED, TOKENS, "M 8", {}, "")
@triton.jit
def token_and_start(x, y, cu):
    s = tl.program_id(0)
    j = tl.program_id(1)
    b = tl.load(cu + s)
    if j < tl.load(cu + s + 1) - b:
        tl.store(y + b + j, tl.load(x + b + j) + b.to(tl.float32))


@case("NOT", "where the sequence ends enters the value of its tokens", PACKED, TOKENS, "M 8", {}, "")
@triton.jit
def token_and_end(x, y, cu):
    s = tl.program_id(0)
    j = tl.program_id(1)
    b = tl.load(cu + s)
    e = tl.load(cu + s + 1)
    if j < e - b:
        tl.store(y + b + j, tl.load(x + b + j) + e.to(tl.float32))


@case("NOT", "the token that has the sequence's number is added to its sum", PACKED, ITEMS, "M", dict(B=16), "")
@triton.jit
def sequence_number_as_token(x, y, cu, B: tl.constexpr):
    s = tl.program_id(0)
    b = tl.load(cu + s)
    i = tl.arange(0, B)
    v = tl.load(x + b + i, mask=i < tl.load(cu + s + 1) - b, other=0.0)
    tl.store(y + s, tl.sum(v, 0) + tl.load(x + s))


@case("NOT", "the token that has the sequence's number is added to its tokens", PACKED, TOKENS, "M 8", {}, "")
@triton.jit
def token_and_sequence_number(x, y, cu):
    s = tl.program_id(0)
    j = tl.program_id(1)
    b = tl.load(cu + s)
    if j < tl.load(cu + s + 1) - b:
        tl.store(y + b + j, tl.load(x + b + j) + tl.load(x + s))


KEYS = dict(x=P, k=P, y=P, cu=J)
WITH_KEYS = dict(x="packed:1", k="packed:1", y="packedout:1", cu="begins")


@case("NOT", "keys past the end of the token's sequence", KEYS, WITH_KEYS, "M 8", dict(B=16), "")
@triton.jit
def keys_past_end(x, k, y, cu, B: tl.constexpr):
    s = tl.program_id(0)
    j = tl.program_id(1)
    b = tl.load(cu + s)
    if j < tl.load(cu + s + 1) - b:
        i = tl.arange(0, B)
        tl.store(y + b + j, tl.load(x + b + j) + tl.sum(tl.load(k + b + i), 0))


@case("NOT", "the key before the token's sequence", KEYS, dict(WITH_KEYS, k="packed:1"), "M 8", {}, "")
@triton.jit
def key_before_start(x, k, y, cu):
    s = tl.program_id(0)
    j = tl.program_id(1)
    b = tl.load(cu + s)
    if j < tl.load(cu + s + 1) - b:
        tl.store(y + b + j, tl.load(x + b + j) + tl.load(k + b - 1, mask=b > 0, other=0.0))


@case("NOT", "the key at the last multiple of four before the sequence", KEYS, WITH_KEYS, "M 8", {}, "")
@triton.jit
def key_at_aligned_start(x, k, y, cu):
    s = tl.program_id(0)
    j = tl.program_id(1)
    b = tl.load(cu + s)
    if j < tl.load(cu + s + 1) - b:
        tl.store(y + b + j, tl.load(x + b + j) + tl.load(k + b // 4 * 4))


# ------------------------------------------------------------------ rows that a list names
BLOCKS = dict(x=P, w=P, y=P, rows=J, expert=J, places=J, n=I)
BY_BLOCK = dict(x="rows:16", w="shared:48", y="out:16", rows="list:4", expert="blockowner:4", places="listlen:4", n="batch")
N16 = dict(N=16, B=4)


@case("INV", "a block's expert is the expert of all its rows: a promise of the host", BLOCKS, BY_BLOCK, "12", N16, "n")
@triton.jit
def expert_of_block(x, w, y, rows, expert, places, n, N: tl.constexpr, B: tl.constexpr):
    q = tl.program_id(0)
    if q * B >= tl.load(places):
        return
    t = tl.load(rows + q * B + tl.arange(0, B))
    o = tl.arange(0, N)
    live = (t < n)[:, None]
    g = tl.load(w + tl.load(expert + q) * N + o)
    tl.store(y + t[:, None] * N + o[None, :], tl.load(x + t[:, None] * N + o[None, :], mask=live, other=0.0) * g[None, :], mask=live)


@case("NOT", "a number that a block's rows share is multiplied into them", dict(x=P, w=P, y=P, rows=J, places=J, n=I),
      dict(x="rows:16", w="varbuf:16", y="out:16", rows="list:4", places="listlen:4", n="batch"), "12", N16, "n")
@triton.jit
def scale_of_block(x, w, y, rows, places, n, N: tl.constexpr, B: tl.constexpr):
    q = tl.program_id(0)
    if q * B >= tl.load(places):
        return
    t = tl.load(rows + q * B + tl.arange(0, B))
    o = tl.arange(0, N)
    live = (t < n)[:, None]
    v = tl.load(x + t[:, None] * N + o[None, :], mask=live, other=0.0) * tl.load(w + q)
    tl.store(y + t[:, None] * N + o[None, :], v, mask=live)


@case("NOT", "the place of a row in its block chooses what is added", dict(x=P, w=P, y=P, rows=J, places=J, n=I),
      dict(x="rows:16", w="shared:4", y="out:16", rows="list:4", places="listlen:4", n="batch"), "12", N16, "n")
@triton.jit
def bias_of_place(x, w, y, rows, places, n, N: tl.constexpr, B: tl.constexpr):
    q = tl.program_id(0)
    i = tl.arange(0, B)
    if q * B >= tl.load(places):
        return
    t = tl.load(rows + q * B + i)
    o = tl.arange(0, N)
    live = (t < n)[:, None]
    v = tl.load(x + t[:, None] * N + o[None, :], mask=live, other=0.0) + tl.load(w + i)[:, None]
    tl.store(y + t[:, None] * N + o[None, :], v, mask=live)


@case("NOT", "the expert of the block before", BLOCKS, BY_BLOCK, "12", N16, "n")
@triton.jit
def expert_of_block_before(x, w, y, rows, expert, places, n, N: tl.constexpr, B: tl.constexpr):
    q = tl.program_id(0)
    if q * B >= tl.load(places):
        return
    t = tl.load(rows + q * B + tl.arange(0, B))
    o = tl.arange(0, N)
    live = (t < n)[:, None]
    g = tl.load(w + tl.load(expert + tl.maximum(q - 1, 0)) * N + o)
    tl.store(y + t[:, None] * N + o[None, :], tl.load(x + t[:, None] * N + o[None, :], mask=live, other=0.0) * g[None, :], mask=live)


GROUPS = dict(x=P, w=P, y=P, rows=J, start=J, size=J, owner=J)
BY_GROUP = dict(x="rows:16", w="shared:48", y="inout:16", rows="list:1", start="group:0", size="group:1", owner="group:2")


@case("INV", "rows are added to in place, group by group, with the weights of the group's owner", GROUPS, BY_GROUP, "3 3", N16, "")
@triton.jit
def group_of_list(x, w, y, rows, start, size, owner, N: tl.constexpr, B: tl.constexpr):
    g = tl.program_id(1)
    count = tl.load(size + g)
    i = tl.program_id(0) * B + tl.arange(0, B)
    live = i < count
    t = tl.load(rows + tl.load(start + g) + i, mask=live, other=0)
    o = tl.arange(0, N)
    at = t[:, None] * N + o[None, :]
    v = tl.load(x + at, mask=live[:, None], other=0.0) * tl.load(w + tl.load(owner + g) * N + o)[None, :]
    tl.store(y + at, tl.load(y + at, mask=live[:, None], other=0.0) + v, mask=live[:, None])


@case("NOT", "rows are divided by how many rows their group has", GROUPS, BY_GROUP, "3 3", N16, "")
@triton.jit
def size_of_group(x, w, y, rows, start, size, owner, N: tl.constexpr, B: tl.constexpr):
    g = tl.program_id(1)
    count = tl.load(size + g)
    i = tl.program_id(0) * B + tl.arange(0, B)
    live = i < count
    t = tl.load(rows + tl.load(start + g) + i, mask=live, other=0)
    o = tl.arange(0, N)
    at = t[:, None] * N + o[None, :]
    v = tl.load(x + at, mask=live[:, None], other=0.0) * tl.load(w + tl.load(owner + g) * N + o)[None, :]
    tl.store(y + at, tl.load(y + at, mask=live[:, None], other=0.0) + v / count, mask=live[:, None])


@case("NOT", "the place of a row in its group is added", GROUPS, BY_GROUP, "3 3", N16, "")
@triton.jit
def place_in_group(x, w, y, rows, start, size, owner, N: tl.constexpr, B: tl.constexpr):
    g = tl.program_id(1)
    count = tl.load(size + g)
    i = tl.program_id(0) * B + tl.arange(0, B)
    live = i < count
    t = tl.load(rows + tl.load(start + g) + i, mask=live, other=0)
    o = tl.arange(0, N)
    at = t[:, None] * N + o[None, :]
    v = tl.load(x + at, mask=live[:, None], other=0.0) * tl.load(w + tl.load(owner + g) * N + o)[None, :]
    tl.store(y + at, tl.load(y + at, mask=live[:, None], other=0.0) + v + i[:, None], mask=live[:, None])


SLOTS = dict(x=P, y=P, rows=J, N=I)


@case("INV", "rows are stored by page and place in the page", SLOTS, dict(x="rows:16", y="out:16", rows="list:1", N="16"), "M", {}, "")
@triton.jit
def slot_by_page(x, y, rows, N):
    t = tl.load(rows + tl.program_id(0))
    o = tl.arange(0, 16)
    tl.store(y + t // 4 * (4 * N) + t % 4 * N + o, tl.load(x + t * 16 + o) * 2.0)


@case("NOT", "two rows share the place where they are stored", SLOTS, dict(x="rows:16", y="out:16", rows="list:1", N="16"), "M", {}, "")
@triton.jit
def slot_of_two(x, y, rows, N):
    t = tl.load(rows + tl.program_id(0))
    o = tl.arange(0, 16)
    tl.store(y + t // 2 * N + o, tl.load(x + t * 16 + o) * 2.0)


# ------------------------------------------------------------------ addresses with digits
@case("INV", "a tile's index is stored by head and place in the head", dict(x=P, y=P, sy=I, sh=I),
      dict(x="rows:64", y="out:64", sy="64", sh="8"), "M 2", dict(B=32), "")
@triton.jit
def digits_of_tile(x, y, sy, sh, B: tl.constexpr):
    r = tl.program_id(0)
    i = tl.program_id(1) * B + tl.arange(0, B)
    tl.store(y + r * sy + i // 8 * sh + i % 8, tl.load(x + r * 64 + i) + 1.0)


@case("NOT", "the tile before is added where an index is stored by head and place in the head", dict(x=P, y=P, M=I, sy=I, sh=I),
      dict(x="rows:64", y="out:64", M="batch", sy="64", sh="8"), "M 2", dict(B=32))
@triton.jit
def digits_and_rows_beyond(x, y, M, sy, sh, B: tl.constexpr):
    r = tl.program_id(0)
    i = tl.program_id(1) * B + tl.arange(0, B)
    v = tl.load(x + r * 64 + i) + tl.load(x + r * 64 + i + B, mask=r * 64 + i + B < M * 64, other=0.0)
    tl.store(y + r * sy + i // 8 * sh + i % 8, v)


@case("INV", "a sum over the middle one of three dimensions; one program finds the outer two by division",
      dict(x=P, y=P, N=I, K=I, s0=I, s1=I, s2=I, t0=I, t1=I),
      dict(x="rows:32", y="out:8", N="4", K="8", s0="32", s1="8", s2="1", t0="8", t1="1"), "M*8", {}, "")
@triton.jit
def sum_over_the_middle(x, y, N, K, s0, s1, s2, t0, t1):
    p = tl.program_id(0)
    acc = 0.0
    for i in range(0, N):
        acc += tl.load(x + p // K * s0 + i * s1 + p % K * s2)
    tl.store(y + p // K * t0 + p % K * t1, acc)


@case("INV", "rows of n + 1 places: a row's elements, and a last one with a store of its own", dict(x=P, last=P, lens=J, y=P, n=I),
      dict(x="rows:8", last="rows:1", lens="rowint:1:7", y="out:9", n="8"), "M", {}, "")
@triton.jit
def rows_of_one_more(x, last, lens, y, n):
    r = tl.program_id(0)
    k = tl.load(lens + r)
    for i in range(0, k):
        tl.store(y + r * (n + 1) + i, tl.load(x + r * n + i) * 2.0)
    tl.store(y + r * (n + 1) + k, tl.load(last + r))


@case("NOT", "rows of n + 1 places whose last element is the next row's", dict(x=P, last=P, lens=J, y=P, n=I),
      dict(x="rows:8", last="rows:1", lens="rowint:1:7", y="out:9", n="8"), "M", {}, "")
@triton.jit
def rows_of_one_more_misread(x, last, lens, y, n):
    r = tl.program_id(0)
    k = tl.load(lens + r)
    for i in range(0, k):
        tl.store(y + r * (n + 1) + i, tl.load(x + r * n + i) * 2.0)
    tl.store(y + r * (n + 1) + k, tl.load(last + r + 1))


@case("NOT", "the number of the next row where rows have one", dict(x=P, rstd=P, y=P, n=I, s=I),
      dict(x="rows:64", rstd="rows:1", y="out:64", n="64", s="1"), "M", dict(N=64), "")
@triton.jit
def number_of_next_row(x, rstd, y, n, s, N: tl.constexpr):
    r = tl.program_id(0)
    o = tl.arange(0, N)
    v = tl.load(x + r * n + o, mask=o < n, other=0.0) * tl.load(rstd + r * s + 1)
    tl.store(y + r * n + o, v, mask=o < n)


@case("INV", "one number of a row, however far apart they lie", dict(x=P, rstd=P, y=P, n=I, s=I),
      dict(x="rows:64", rstd="rows:1", y="out:64", n="64", s="1"), "M", dict(N=64), "")
@triton.jit
def number_of_row(x, rstd, y, n, s, N: tl.constexpr):
    r = tl.program_id(0)
    o = tl.arange(0, N)
    v = tl.load(x + r * n + o, mask=o < n, other=0.0) * tl.load(rstd + r * s)
    tl.store(y + r * n + o, v, mask=o < n)


# ------------------------------------------------------------------ what shows nothing: no host makes such launches
@case("INV", "the length of a row is read by the inner of two coordinates", dict(x=P, lens=J, y=P, M=I),
      dict(x="cols:32", lens="rowint:1:8", y="outT:4", M="batch"), "4 M", dict(B=8), "")
@triton.jit
def length_by_inner_coordinate(x, lens, y, M, B: tl.constexpr):
    h = tl.program_id(0)
    b = tl.program_id(1)
    if b < M:
        i = tl.arange(0, B)
        v = tl.load(x + (h * B + i) * M + b, mask=i < tl.load(lens + b), other=0.0)
        tl.store(y + h * M + b, tl.sum(v, 0))


@case("INV", "rows as long as the grid is wide, read behind a shift that is always zero", dict(x=P, y=P), dict(x="rows:4", y="out:4"),
      "M 4", {}, "")
@triton.jit
def rows_by_programs(x, y):
    at = tl.program_id(0) * tl.num_programs(1) + tl.program_id(1)
    tl.store(y + at, tl.load(x + at + at // (at + 1)) * 2.0)


@case("INV", "rows that two lists place are stored there, by page and place in the page", dict(x=P, y=P, rows=J, more=J, N=I),
      dict(x="rows:16", y="out:16", rows="list:1", more="scratch:32", N="16"), "M", {}, "")
@triton.jit
def stored_where_two_lists_say(x, y, rows, more, N):
    t = tl.load(rows + tl.program_id(0)) + tl.load(more + tl.program_id(0))
    o = tl.arange(0, 16)
    tl.store(y + t // 4 * (4 * N) + t % 4 * N + o, tl.load(x + t * 16 + o) * 2.0)


@case("INV", "rows that two lists place are added to in place, with a term that is always zero", dict(x=P, y=P, rows=J, more=J, M=I),
      dict(x="rows:16", y="inout:16", rows="list:1", more="scratch:32", M="batch"), "M", dict(N=16), "")
@triton.jit
def added_where_two_lists_say(x, y, rows, more, M, N: tl.constexpr):
    r = tl.program_id(0)
    if r < M:
        at = (tl.load(rows + r) + tl.load(more + r)) * N + tl.arange(0, N)
        tl.store(y + at, tl.load(y + at) + tl.load(x + at) + (M // (M + 1)))


FORBIDDEN = dict(y=P, place=J, count=J, M=I, s=I)
FORBID = dict(y="inout:64", place="rowint:0:7", count="rowint:0:4", M="batch", s="64")


@case("INV", "sets places of the row that a number of the row names, as many as another number of the row says", FORBIDDEN, FORBID, "M 4")
@triton.jit
def forbidden_places(y, place, count, M, s):
    r = tl.program_id(0)
    j = tl.program_id(1)
    p = tl.load(place + r)
    if j < tl.load(count + r):
        tl.store(y + r * s + p + 8 * j, -float("inf"))


@case("NOT", "as many as a number of the next row says", FORBIDDEN, FORBID, "M 4")
@triton.jit
def forbidden_places_of_next_row(y, place, count, M, s):
    r = tl.program_id(0)
    j = tl.program_id(1)
    p = tl.load(place + r)
    if j < tl.load(count + r + 1, mask=r + 1 < M, other=0):
        tl.store(y + r * s + p + 8 * j, -float("inf"))


@case("NOT", "the same where the stride of a row is a constant", FORBIDDEN, FORBID, "M 4")
@triton.jit
def forbidden_places_of_next_short_row(y, place, count, M, s):
    r = tl.program_id(0)
    j = tl.program_id(1)
    p = tl.load(place + r)
    if j < tl.load(count + r + 1, mask=r + 1 < M, other=0):
        tl.store(y + r * 64 + p + 8 * j, -float("inf"))


@case("HID", "a list of places for each row, of which the batch says how many count", FORBIDDEN, FORBID, "M 4")
@triton.jit
def forbidden_places_of_batch(y, place, count, M, s):
    r = tl.program_id(0)
    j = tl.program_id(1)
    p = tl.load(place + r * 8 + j)
    if j < M - 3:
        tl.store(y + r * s + p, -float("inf"))


@case("NOT", "the places that a number of the next row names", FORBIDDEN, FORBID, "M 4")
@triton.jit
def places_of_next_row(y, place, count, M, s):
    r = tl.program_id(0)
    j = tl.program_id(1)
    p = tl.load(place + r + 1, mask=r + 1 < M, other=0)
    tl.store(y + r * s + p + 8 * j, -float("inf"))


@case("NOT", "the same where the stride of a row is a constant", FORBIDDEN, FORBID, "M 4")
@triton.jit
def places_of_next_short_row(y, place, count, M, s):
    r = tl.program_id(0)
    j = tl.program_id(1)
    p = tl.load(place + r + 1, mask=r + 1 < M, other=0)
    tl.store(y + r * 64 + p + 8 * j, -float("inf"))

"""Signatures and constants of kernels, guessed from how their source uses each argument."""

import ast
import re

import triton.language as tl
from triton.runtime.jit import JITFunction

from compiled import unwrap
from stubs import Stub


def callee_names(tree):
    s = set()
    for n in ast.walk(tree):
        if isinstance(n, ast.Call):
            f = n.func
            s.add(f.id if isinstance(f, ast.Name) else f.attr if isinstance(f, ast.Attribute) else "")
    return s


FLOATISH = re.compile(
    r"(^|_)(eps|epsilon|scale|sm_scale|softcap|logit_cap|soft_cap|alpha|beta|dropout|drop_p|p_dropout|lr|temperature|temp|gamma_f|limit|smoothing|label_smoothing|weight_decay|clamp\w*|inv_\w+|theta|scaling|rcp_ln2|ln2|logits_soft_cap|xai_temp\w*|tau|momentum|threshold|fp8_max|fp8_min|max_val|min_val|qk_scale|slope|factor|offset_f)$",
    re.I,
)


def guess_sig(j, depth=0):
    HINT = {}
    src = ast.parse(j.src)
    fn = next(n for n in ast.walk(src) if isinstance(n, ast.FunctionDef))
    ptr, base = set(), {}
    names = set(j.arg_names)

    # alias / propagation: a name is a pointer if it sits (through + chains) inside tl.load/store/atomic first argument
    def leaves(e, acc):
        if isinstance(e, ast.Name):
            acc.add(e.id)
        elif isinstance(e, ast.BinOp) and isinstance(e.op, (ast.Add, ast.Sub)):
            leaves(e.left, acc)
            leaves(e.right, acc) if isinstance(e.op, ast.Add) else None
        elif (
            isinstance(e, ast.Call) and isinstance(e.func, ast.Attribute) and e.func.attr in ("multiple_of", "to", "max_contiguous", "cast")
        ):
            if e.args and not isinstance(e.func.value, ast.Name):
                leaves(e.args[0], acc)
            elif e.args:
                leaves(e.args[0], acc)
            leaves(e.func.value, acc)
        elif isinstance(e, ast.IfExp):
            leaves(e.body, acc)
            leaves(e.orelse, acc)
        return acc

    assigns = []
    cand = []
    for n in ast.walk(fn):
        if isinstance(n, ast.Assign) and len(n.targets) == 1:
            t = n.targets[0]
            if isinstance(t, ast.Name):
                assigns.append((t.id, n.value))
            elif isinstance(t, ast.Tuple) and isinstance(n.value, ast.Tuple):
                for a, b in zip(t.elts, n.value.elts):
                    if isinstance(a, ast.Name):
                        assigns.append((a.id, b))
        if isinstance(n, ast.AugAssign) and isinstance(n.target, ast.Name):
            assigns.append((n.target.id, ast.BinOp(ast.Name(n.target.id), ast.Add(), n.value)))
        if isinstance(n, ast.Call):
            f = n.func
            a = f.attr if isinstance(f, ast.Attribute) else f.id if isinstance(f, ast.Name) else ""
            if a in ("load", "store", "make_block_ptr", "make_tensor_descriptor", "_experimental_make_tensor_descriptor") or a.startswith(
                "atomic_"
            ):
                arg = n.args[0] if n.args else next((k.value for k in n.keywords if k.arg in ("base", "pointer")), None)
                if arg is not None:
                    cand.append(arg)
        if isinstance(n, ast.Attribute) and n.attr == "dtype" and isinstance(n.value, ast.Name) and n.value.id in names:
            pass
        if (
            isinstance(n, ast.Attribute)
            and n.attr == "element_ty"
            and isinstance(n.value, ast.Attribute)
            and isinstance(n.value.value, ast.Name)
        ):
            ptr.add(n.value.value.id)
    S = set()
    for c in cand:
        leaves(c, S)
    # a name handed to a helper @triton.jit function in a pointer position is a pointer too
    if depth < 4:
        g = getattr(j.fn, "__globals__", {})
        for n in ast.walk(fn):
            if isinstance(n, ast.Call) and isinstance(n.func, ast.Name) and n.func.id in g and hasattr(g[n.func.id], "fn"):
                h, _, _ = unwrap(g[n.func.id])
                if not isinstance(h, JITFunction) or h is j:
                    continue
                try:
                    hs = guess_sig(h, depth + 1)
                except Exception:
                    continue
                for a, pn in list(zip(n.args, h.arg_names)) + [(k.value, k.arg) for k in n.keywords]:
                    if hs.get(pn, "").startswith("*"):
                        l = leaves(a, set())
                        S |= l
                        for x in l:
                            HINT[x] = hs[pn]
    for _ in range(6):
        for t, v in assigns:
            if t in S:
                leaves(v, S)
    arith = set()  # names used as numbers: compared, multiplied, divided, in range()/cdiv()/min()
    for n in ast.walk(fn):
        ops = []
        if isinstance(n, ast.Compare):
            ops = [n.left] + n.comparators if not any(isinstance(o, (ast.Is, ast.IsNot)) for o in n.ops) else []
        elif isinstance(n, ast.BinOp) and isinstance(n.op, (ast.Mult, ast.FloorDiv, ast.Mod, ast.Div)):
            ops = [n.left, n.right]
        elif isinstance(n, ast.Call) and (
            getattr(n.func, "id", "") in ("range", "min", "max", "cdiv_fn")
            or getattr(n.func, "attr", "") in ("cdiv", "range", "minimum", "maximum", "arange")
        ):
            ops = list(n.args)
        for o in ops:
            if isinstance(o, ast.Name):
                arith.add(o.id)
    ann = {p.name: p for p in j.params}
    sig = {}
    intname = re.compile(
        r"(stride|offs|pid|idx|index|num|size|len|start|end|^n_|^M$|^N$|^K$|^T$|^B$|^H$|^D$|_id$|row|col|dim|block|head|seq|off$|^pos|step|count)",
        re.I,
    )
    for p in j.params:
        if p.is_constexpr:
            continue
        n = p.name
        if re.search(r"stride", n, re.I):
            sig[n] = "i32"
        elif (
            n in ptr
            or re.search(r"ptr", n, re.I)
            or (n in S and n not in arith)
            or (
                n in S
                and not re.search(
                    r"^(stride|offs)|(_stride|_offset|_off|_start|_idx|_id|_len|_size|stride_\w+)$|^(M|N|K|T|B|H|D|BT|NT|V)$|^stride", n
                )
            )
        ):
            low = n.lower()
            if re.search(
                r"(ids|idx|ind|indices|index|table|loc|lens|len|offsets|cu_|slot|indptr|num_|count|start|_map|mapping|pos|page|req_|label|target|mask_int|lengths|seqlens|topk)",
                low,
            ) and not re.search(r"(mid_o|logit|weight)", low):
                sig[n] = "*i32"
            elif re.search(r"scale|mean|rstd|lse|acc|fp32|log|gamma|loss|norm_", low):
                sig[n] = "*fp32"
            else:
                sig[n] = "*bf16"
        elif FLOATISH.search(n):
            sig[n] = "fp32"
        else:
            sig[n] = "i32"
    return sig


def guess_const(name, default, alt=0):
    if default is not None and not isinstance(default, Stub) and default is not __import__("inspect")._empty:
        return default
    n = name.upper()
    if re.search(r"DTYPE|_TYPE$|^TY$", n):
        return tl.float32 if "ACC" in n or "COMP" in n else tl.bfloat16
    if re.search(
        r"^(USE|HAS|IS|ENABLE|DO|WITH|APPLY|SHOULD|STORE|LOAD|RETURN|SAVE|OUTPUT|FUSE|ALLOW|REVERSE|CAUSAL|TRANS)|CAUSAL|VARLEN|_FLAG$|EVEN_|MASKED|INTERLEAVED|ENABLED|QUANT|SKIP|PACKED|TRANSPOSE",
        n,
    ):
        return bool(alt)
    if re.search(r"BLOCK|TILE|^B[A-Z]{1,2}$|CHUNK|^BLK", n):
        return [64, 32, 128][alt % 3]
    if re.search(r"GROUP_SIZE|GROUP_M|GROUP", n):
        return [8, 128, 1][alt % 3]
    if re.search(r"HEAD_(SIZE|DIM)|HEADDIM|^D$|^DK$|^DV$|^K$|^V$|DMODEL|DIM|ROTARY|^HD$|LORA_RANK", n):
        return [128, 64, 256][alt % 3]
    if re.search(r"STAGE", n):
        return 2
    if re.search(r"WARP", n):
        return 4
    if re.search(r"HEADS|^H$|^HQ$|^HV$", n):
        return 8
    if re.search(r"SPLIT", n):
        return 4
    if re.search(r"NUM_SM", n):
        return 132
    if re.search(r"EPS", n):
        return 1e-6
    if re.search(r"PRECISION", n):
        return "ieee"
    if re.search(r"ACT", n):
        return "silu"
    if re.search(r"^(N|M|T|S|L)$|SIZE|COLS|LEN|STRIDE|TOPK|^NUM|PAD|POW2", n):
        return [64, 128, 16][alt % 3]
    return [16, 1, False][alt % 3]

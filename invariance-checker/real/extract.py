#!/usr/bin/env python3
"""Compiles Triton kernels of third-party packages to TTIR without a GPU and without torch.

    REAL_KERNELS=WORK python extract.py curated OUT          # the kernels of specs.jsonl, and OUT/index.tsv
    REAL_KERNELS=WORK python extract.py bulk    OUT [PKG..]  # every kernel of the packages, with guessed signatures

The sources lie in WORK/src (get_sources.sh). What comes out is other people's code: OUT is a folder outside of the repository.
A module that is neither the standard library, Triton nor one of those packages is replaced by a stub that hands out stubs; a
module of a package that fails half-way keeps what it had defined.
"""

import json, os, sys, ast, re, types, importlib, importlib.abc, importlib.machinery, importlib.util, pathlib, traceback, builtins, warnings, signal

os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")
os.environ.setdefault("VLLM_BATCH_INVARIANT", "1")
warnings.filterwarnings("ignore")
HERE = pathlib.Path(__file__).resolve().parent
SRC = pathlib.Path(os.environ["REAL_KERNELS"]).resolve() / "src"
sys.path[:0] = [str(HERE), str(HERE.parent / "tests" / "corpus")]
import triton, triton.language as tl
from triton.runtime.jit import JITFunction
from triton.backends.compiler import GPUTarget
from ttir_dump import make_source, to_ir, generic

# package name -> (dir under src, import root, version)
PKG = {}
for d in sorted(SRC.iterdir()):
    if not d.is_dir():
        continue
    meta = sorted(d.glob("*.dist-info/METADATA")) or sorted(d.glob("*/PKG-INFO"))
    ver = re.search(r"^Version: (.*)$", meta[0].read_text(errors="replace"), re.M).group(1) if meta else "?"
    root = d if list(d.glob("*.dist-info")) else next((x for x in d.iterdir() if x.is_dir()), d)
    PKG[d.name] = (root, ver)
    sys.path.append(str(root))


# ---------------------------------------------------------------- stubs
class Stub:
    def __init__(self, name="stub"):
        object.__setattr__(self, "_n", name)

    def __getattr__(self, k):
        if k.startswith("__") and k.endswith("__"):
            raise AttributeError(k)
        v = Stub(self._n + "." + k)
        object.__setattr__(self, k, v)
        return v

    def __call__(self, *a, **k):
        # act as a transparent decorator when given a single function/class
        if len(a) == 1 and not k and (isinstance(a[0], (types.FunctionType, type, JITFunction)) or hasattr(a[0], "fn")):
            if isinstance(a[0], types.FunctionType):
                for w in ("register_autograd", "register_fake", "register_kernel", "register_vmap", "register"):
                    setattr(a[0], w, Stub(w))
            return a[0]
        return Stub(self._n + "()")

    def __mro_entries__(self, bases):
        return (StubBase,)

    def __getitem__(self, k):
        return Stub(self._n + "[]")

    def __setitem__(self, k, v):
        pass

    def __iter__(self):
        return iter(())

    def __contains__(self, k):
        return False

    def __len__(self):
        return 0

    def __bool__(self):
        return False

    def __int__(self):
        return 0

    def __index__(self):
        return 0

    def __float__(self):
        return 0.0

    def __enter__(self):
        return self

    def __exit__(self, *a):
        return False

    def __hash__(self):
        return hash(self._n)

    def __eq__(self, o):
        return isinstance(o, Stub) and o._n == self._n

    def __lt__(self, o):
        return False

    __le__ = __gt__ = __ge__ = __lt__

    def _op(self, *a):
        return Stub(self._n + "_")

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = __floordiv__ = __rfloordiv__ = _op
    __or__ = __ror__ = __and__ = __rand__ = __mod__ = __pow__ = __rpow__ = __neg__ = __invert__ = __lshift__ = __rshift__ = __matmul__ = _op

    def __repr__(self):
        return f"<{self._n}>"


class StubBase:
    def __init_subclass__(cls, **k):
        pass

    def __class_getitem__(cls, k):
        return cls


class StubModule(types.ModuleType):
    def __getattr__(self, k):
        if k.startswith("__") and k.endswith("__"):
            raise AttributeError(k)
        if self.__name__ == "torch" and k in ("npu", "musa", "mlu", "hpu"):
            raise AttributeError(k)
        top = self.__name__.split(".")[0]
        if top in LOCAL and getattr(self, "__path__", None):
            base = LOCAL[top].joinpath(*self.__name__.split("."), k)
            if (base / "__init__.py").exists() or base.with_suffix(".py").exists():
                return importlib.import_module(self.__name__ + "." + k)
        v = Stub(self.__name__ + "." + k)
        setattr(self, k, v)
        return v


VERS = {"torch": "2.15.0", "numpy": "2.0.0", "transformers": "5.0.0"}
LOCAL = {}
for n, (root, v) in PKG.items():
    for p in root.iterdir():
        if p.is_dir() and not p.name.endswith(("-info", ".data")) and any(p.rglob("*.py")):
            LOCAL[p.name] = root
        elif p.suffix == ".py":
            LOCAL[p.stem] = root
LOCAL.pop("test", None)
LOCAL.pop("tests", None)
LOCAL.pop("setup", None)
LOCAL.pop("examples", None)
LOCAL.pop("torch", None)
REAL_TOP = set(sys.stdlib_module_names) | {
    "triton",
    "ttir_dump",
        "corpus",
    "pip",
    "setuptools",
    "pkg_resources",
    "_distutils_hack",
    "__main__",
    "packaging",
    "typing_extensions",
}
SKIP_EXEC = {
    "vllm",
    "sglang",
    "unsloth",
    "unsloth_zoo",
    "xformers",
    "torchao",
    "lmdeploy",
    "fla",
    "liger_kernel",
    "flag_gems",
    "gemlite",
    "conch",
    "lightllm",
    "quack",
    "adasplash",
    "sageattention",
    "flashinfer",
    "mamba_ssm",
    "sglang.srt",
    "vllm.model_executor.layers",
    "lmdeploy.pytorch",
}


class StubLoader(importlib.abc.Loader):
    def create_module(self, spec):
        m = StubModule(spec.name)
        m.__path__ = []
        m.__version__ = VERS.get(spec.name, "99.0")
        return m

    def exec_module(self, m):
        pass


class SoftLoader(importlib.machinery.SourceFileLoader):
    def exec_module(self, module):
        # NB: use class swap so that missing names become stubs
        module.__class__ = StubModule
        if module.__name__ in SKIP_EXEC:
            module.__version__ = "99.0"
            return
        try:
            super().exec_module(module)
            module.__class__ = types.ModuleType  # triton accepts only plain modules as kernel globals
        except BaseException as e:
            if isinstance(e, (KeyboardInterrupt, TimeoutError)):
                raise
            module.__load_error__ = e
            if os.environ.get("X_TRACE"):
                traceback.print_exc()


DENY = {
    "torch_npu",
    "torch_xla",
    "torch_mlu",
    "torch_musa",
    "habana_frameworks",
    "intel_extension_for_pytorch",
    "cutlass",
    "torch_gcu",
    "torch_mlir",
    "tilelang",
    "aiter",
}


class VTU(importlib.abc.Loader):
    """vllm.triton_utils decides HAS_TRITON from the active driver; hand it the real triton"""

    def create_module(self, spec):
        import triton.language.extra.libdevice as tldevice
        from triton.experimental import gluon
        from triton.experimental.gluon import language as gl

        m = StubModule(spec.name)
        m.__path__ = [str(LOCAL["vllm"] / "vllm" / "triton_utils")]
        m.__dict__.update(
            HAS_TRITON=True,
            triton=triton,
            tl=tl,
            tldevice=tldevice,
            gluon=gluon,
            gl=gl,
            aggregate=getattr(tl.core, "_aggregate", None),
            LOG2E=1.4426950408889634,
            LOGE2=0.6931471805599453,
            use_tensor_descriptor=lambda *a, **k: False,
        )
        return m

    def exec_module(self, m):
        pass


class Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        top = name.split(".")[0]
        if top in REAL_TOP or top in DENY:
            return None
        if name == "vllm.triton_utils":
            return importlib.machinery.ModuleSpec(name, VTU(), is_package=True)
        if top in LOCAL:
            base = LOCAL[top].joinpath(*name.split("."))
            if (base / "__init__.py").exists():
                return importlib.util.spec_from_file_location(
                    name, base / "__init__.py", loader=SoftLoader(name, str(base / "__init__.py")), submodule_search_locations=[str(base)]
                )
            if base.with_suffix(".py").exists():
                return importlib.util.spec_from_file_location(
                    name, base.with_suffix(".py"), loader=SoftLoader(name, str(base.with_suffix(".py")))
                )
            if base.is_dir():
                s = importlib.machinery.ModuleSpec(name, StubLoader(), is_package=True)
                s.submodule_search_locations = [str(base)]
                return s
        return importlib.machinery.ModuleSpec(name, StubLoader(), is_package=True)


sys.meta_path.insert(0, Finder())


class FakeDriver:
    """enough of triton.runtime.driver for module-level queries"""

    class utils:
        @staticmethod
        def get_device_properties(d):
            return dict(
                max_shared_mem=232448,
                multiprocessor_count=132,
                max_num_regs=65536,
                warpSize=32,
                sm_clock_rate=1,
                mem_clock_rate=1,
                mem_bus_width=1,
            )

    def get_current_target(self):
        return GPUTarget("cuda", 90, 32)

    def get_current_device(self):
        return 0

    def get_current_stream(self, d=0):
        return 0

    def get_active_torch_device(self):
        return Stub("device")

    def get_device_interface(self):
        return Stub("di")

    def get_benchmarker(self):
        return lambda *a, **k: 0.0

    def get_empty_cache_for_benchmark(self):
        return None

    def clear_cache(self, c):
        pass


triton.runtime.driver.set_active(FakeDriver())


def torch_setup():
    import torch

    torch.cuda.get_device_capability = lambda *a: (9, 0)
    torch.cuda.device_count = lambda: 0
    torch.cuda.is_available = lambda: False
    torch.cuda.get_device_name = lambda *a: "NVIDIA H200"
    torch.compiler = Stub("torch.compiler")
    torch.__version__ = "2.15.0"

    class Fn:  # autograd.Function, nn.Module as real bases
        pass

    torch.autograd.Function = Fn
    torch.nn.Module = Fn
    torch.Tensor = type("Tensor", (), {})
    torch.dtype = type("dtype", (), {})
    for f in ("compile", "no_grad", "inference_mode"):
        setattr(torch, f, lambda *a, **k: a[0] if a and callable(a[0]) else (lambda g: g))


torch_setup()


# ---------------------------------------------------------------- kernel access
def load_module(pkg, rel):
    root, _ = PKG[pkg]
    name = rel[:-3].replace("/", ".") if rel.endswith(".py") else rel.replace("/", ".")
    if name.endswith(".__init__"):
        name = name[:-9]
    return importlib.import_module(name)


def unwrap(k):
    """-> (JITFunction, heuristics dict {arg: fn}, list of autotune configs)"""
    heur, cfgs = {}, []
    seen = 0
    while not isinstance(k, JITFunction) and seen < 8:
        seen += 1
        if isinstance(k, triton.runtime.autotuner.Heuristics):
            heur.update(k.values)
        if isinstance(k, triton.runtime.autotuner.Autotuner):
            cfgs = list(k.configs)
        k = getattr(k, "fn", None)
    return k, heur, cfgs


def kernels_of(mod):
    out = {}
    for n, v in list(vars(mod).items()):
        j, h, c = unwrap(v) if not isinstance(v, (Stub, types.ModuleType)) and hasattr(v, "fn") else (None, None, None)
        if isinstance(j, JITFunction) and j.fn.__module__ == mod.__name__:
            out[n] = (j, h, c)
    return out


# ---------------------------------------------------------------- guessing (bulk)
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


class Timeout(Exception):
    pass


def _alarm(*a):
    raise TimeoutError("compile timeout")


signal.signal(signal.SIGALRM, _alarm)


def compile_one(j, sig, ce, opts=None, limit=60, raw=False):
    signal.alarm(limit)
    try:
        return to_ir(make_source(j, sig, ce), options=opts, raw=raw)
    finally:
        signal.alarm(0)


def write(m, out, name):
    out = pathlib.Path(out)
    out.mkdir(parents=True, exist_ok=True)
    (out / f"{name}.ttir").write_text(m.str())
    (out / f"{name}.generic.mlir").write_text(generic(m))


def curated(out):

    rows = ["file\tpackage\tversion\ttriton\tsource\tkernel\tsignature\tconstexprs\tbatch_args\tverdict\twhy"]
    ok = bad = 0
    for s in map(json.loads, (HERE / "specs.jsonl").read_text().splitlines()):
        nm = f"{s['pkg']}__{pathlib.Path(s['file']).stem}__{s['kernel'].strip('_')}" + (f"__{s['variant']}" if s.get("variant") else "")
        try:
            mod = load_module(s["pkg"], s["file"])
            ks = kernels_of(mod)
            if s["kernel"] not in ks:
                raise KeyError(f"kernel not found; load_error={getattr(mod, '__load_error__', None)!r}; have {sorted(ks)[:30]}")
            j, heur, cfgs = ks[s["kernel"]]
            # "tl.bfloat16" stands for Triton's constant of that name.
            constant = lambda v: getattr(tl, v[3:]) if isinstance(v, str) and v.startswith("tl.") else v
            ce = {k: constant(v) for k, v in s.get("ce", {}).items()}
            sig = guess_sig(j)
            sig.update(s.get("sig", {}))
            for p in j.params:
                if p.is_constexpr and p.name not in ce:
                    ce[p.name] = guess_const(p.name, p.default)
                elif p.name in ce:
                    sig.pop(p.name, None)
            sig = {k: v for k, v in sig.items() if k in j.arg_names}
            m = compile_one(j, sig, ce, s.get("opts"))
            write(m, out, nm)
            f = lambda d: ";".join(f"{k}={v}" for k, v in d.items())
            rows.append(
                "\t".join(
                    [
                        nm + ".ttir",
                        s["pkg"],
                        PKG[s["pkg"]][1],
                        triton.__version__,
                        s["file"],
                        s["kernel"],
                        f(sig),
                        f({k: str(v).replace("\n", " ") for k, v in ce.items()}),
                        s.get("batch", ""),
                        s["verdict"],
                        s["why"],
                    ]
                )
            )
            ok += 1
            print("ok  ", nm)
        except BaseException as e:
            if isinstance(e, KeyboardInterrupt):
                raise
            bad += 1
            print("FAIL", nm, type(e).__name__, str(e)[-500:].replace("\n", " | "))
            if os.environ.get("X_TB"):
                traceback.print_exc()
    pathlib.Path(out).mkdir(parents=True, exist_ok=True)
    (pathlib.Path(out) / "index.tsv").write_text("\n".join(rows) + "\n")
    print(f"{ok} ok, {bad} failed")


WARM = {
    "vllm": [
        "vllm.model_executor.layers.fused_moe.fused_moe",
        "vllm.v1.attention.backends.mla.indexer",
        "vllm.model_executor.models.utils",
    ],
    "sglang": ["sglang.srt.utils", "sglang.srt.layers.moe.fused_moe_triton.fused_moe", "sglang.srt.layers.attention.triton_backend"],
    "fla_core": ["fla.utils", "fla.ops.utils", "fla.modules", "fla.ops.common.chunk_delta_h"],
    "liger_kernel": ["liger_kernel.ops.utils"],
}


def bulk(out, pkgs, limit=20):
    """each file is compiled in a forked child so that an MLIR assertion does not end the run"""
    out = pathlib.Path(out)
    out.mkdir(parents=True, exist_ok=True)
    tot = {}
    idx = open(out / "index.tsv", "a")
    for pkg in pkgs:
        root, ver = PKG[pkg]
        for w in WARM.get(pkg, ()):  # import the common modules once, before forking
            try:
                signal.alarm(60)
                importlib.import_module(w)
            except BaseException:
                pass
            finally:
                signal.alarm(0)
        for f in sorted(root.rglob("*.py")):
            t = f.read_text(errors="replace")
            if "jit" not in t or "triton" not in t:
                continue
            rel = str(f.relative_to(root))
            if re.search(
                r"(^|/)(tests?|benchmarks?|examples?)/|/(amd|rocm|npu|ascend|cambricon|_mthreads|_kunlunxin|_iluvatar|_metax|_hygon|_sunrise|_tsingmicro|_enflame|_aipu|_nvidia|_arm|_spacemit|_thead|backends?/_)|gluon|hip\b",
                rel,
            ):
                continue
            r, w = os.pipe()
            pid = os.fork()
            if pid == 0:
                os.close(r)
                import resource

                resource.setrlimit(resource.RLIMIT_CPU, (120, 130))  # some compiles hang inside C++, where SIGALRM is not seen
                W = os.fdopen(w, "w")
                try:
                    signal.alarm(40)
                    try:
                        mod = load_module(pkg, rel)
                    finally:
                        signal.alarm(0)
                    for n, (j, heur, cfgs) in kernels_of(mod).items():
                        # only entry kernels: no explicit non-None return value
                        fn = next(x for x in ast.walk(ast.parse(j.src)) if isinstance(x, ast.FunctionDef))
                        if any(isinstance(x, ast.Return) and x.value is not None for x in ast.walk(fn)):
                            W.write(f"device\t{n}\t\n")
                            continue
                        err = ""
                        for alt in range(3):
                            try:
                                sig = guess_sig(j)
                                ce = {p.name: guess_const(p.name, p.default, alt) for p in j.params if p.is_constexpr}
                                if cfgs:
                                    ce.update({k: v for k, v in cfgs[min(alt, len(cfgs) - 1)].kwargs.items() if k in ce})
                                for k, h in (heur or {}).items():
                                    if k in ce:
                                        try:
                                            ce[k] = h({**{a: 64 for a in j.arg_names}, **ce})
                                        except BaseException:
                                            pass
                                m = compile_one(j, sig, ce, limit=limit)
                                nm = f"{pkg}__{pathlib.Path(rel).stem}__{n}"[:180]
                                write(m, out, nm)
                                W.write(f"ok\t{n}\t{nm}\t{sig}\t{ce}\n".replace("\r", " "))
                                W.flush()
                                err = None
                                break
                            except BaseException as e:
                                err = f"{type(e).__name__} {str(e)[-220:]!r}"
                        if err:
                            W.write(f"fail\t{n}\t{err}\n")
                            W.flush()
                except BaseException as e:
                    W.write(f"load\t-\t{type(e).__name__} {str(e)[:200]!r}\n")
                W.flush()
                os._exit(0)
            os.close(w)
            data = os.fdopen(r).read()
            _, st = os.waitpid(pid, 0)
            (out / "progress").write_text(f"{pkg} {rel}\n")
            if st:
                data += f"crash\t-\tstatus {st}\n"
            for line in data.splitlines():
                k, n, *rest = line.split("\t")
                tot[(pkg, k)] = tot.get((pkg, k), 0) + 1
                idx.write("\t".join([k, pkg, ver, rel, n] + rest) + "\n")
        idx.flush()
        print(pkg, {k: v for (p, k), v in tot.items() if p == pkg}, flush=True)


if __name__ == "__main__":
    cmd = sys.argv[1]
    if cmd == "curated":
        curated(sys.argv[2])
    elif cmd == "bulk":
        bulk(sys.argv[2], sys.argv[3:] or list(PKG))

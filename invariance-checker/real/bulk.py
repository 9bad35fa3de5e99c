"""Every kernel of the packages, with guessed signatures."""

import ast
import importlib
import itertools
import os
import pathlib
import re
import signal

from guess import guess_const, guess_sig
from compiled import compile_one, kernels_of, load_module, write
from packages import PKG

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


def variant(j, heur, cfgs, alt, special, limit):
    """One compilation of a kernel: the alt-th guess of its constants; special makes every integer a multiple of 16 and bf16 to f16."""
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
    divisible = "pointers"
    if special:
        divisible = [k for k, v in sig.items() if v.startswith("*") or v in ("i32", "i64")]
        sig = {k: "*fp16" if v == "*bf16" else v for k, v in sig.items()}
    return compile_one(j, sig, ce, limit=limit, divisible=divisible), sig, ce


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

                resource.setrlimit(resource.RLIMIT_CPU, (400, 410))  # some compiles hang inside C++, where SIGALRM is not seen
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
                        err, seen = "", set()
                        for alt, special in itertools.product(range(3), (False, True)):
                            try:
                                m, sig, ce = variant(j, heur, cfgs, alt, special, limit)
                            except BaseException as e:
                                err = f"{type(e).__name__} {str(e)[-220:]!r}"
                                continue
                            text = m.str_nodebug()
                            if text not in seen:
                                seen.add(text)
                                nm = f"{pkg}__{pathlib.Path(rel).stem}__{n}"[:170] + f"__{alt}{special:d}"
                                write(m, out, nm)
                                W.write(f"ok\t{n}\t{nm}\t{sig}\t{ce}\n".replace("\r", " "))
                                W.flush()
                        err = "" if seen else err
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

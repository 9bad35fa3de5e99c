"""The kernels of specs.jsonl."""

import json
import os
import pathlib
import traceback

import triton
import triton.language as tl

from guess import guess_const, guess_sig
from compiled import compile_one, kernels_of, load_module, write
from packages import PKG

HERE = pathlib.Path(__file__).resolve().parent


def curated(out, specs=HERE / "specs.jsonl"):

    rows = ["file\tpackage\tversion\ttriton\tsource\tkernel\tsignature\tconstexprs\tbatch_args\tverdict\twhy"]
    ok = bad = 0
    for s in map(json.loads, pathlib.Path(specs).read_text().splitlines()):
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

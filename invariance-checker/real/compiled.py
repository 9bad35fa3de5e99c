"""Kernels of a module, and their TTIR."""

import importlib
import pathlib
import signal
import types

import triton
from triton.runtime.jit import JITFunction

import imports  # noqa: F401  what the modules import is found by it
from packages import PKG
from stubs import Stub
from ttir_dump import generic, make_source, to_ir


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


class Timeout(Exception):
    pass


def _alarm(*a):
    raise TimeoutError("compile timeout")


signal.signal(signal.SIGALRM, _alarm)


def compile_one(j, sig, ce, opts=None, limit=60, raw=False, divisible="pointers"):
    signal.alarm(limit)
    try:
        return to_ir(make_source(j, sig, ce, divisible), options=opts, raw=raw)
    finally:
        signal.alarm(0)


def write(m, out, name):
    out = pathlib.Path(out)
    out.mkdir(parents=True, exist_ok=True)
    (out / f"{name}.ttir").write_text(m.str())
    (out / f"{name}.generic.mlir").write_text(generic(m))

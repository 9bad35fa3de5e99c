"""What an import finds: Triton and the standard library, modules of the packages as far as they run, and stubs for all else."""

import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
import traceback
import types

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget

from packages import LOCAL
from stubs import Stub, StubModule

VERS = {"torch": "2.15.0", "numpy": "2.0.0", "transformers": "5.0.0"}
REAL_TOP = set(sys.stdlib_module_names) | {
    "triton",
    "ttir_dump",
    "corpus",
    "bulk",
    "compiled",
    "curated",
    "guess",
    "imports",
    "packages",
    "stubs",
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

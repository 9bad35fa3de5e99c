"""Stand-ins for modules that are not there: every name in them is a stub, and a stub is whatever the importing code makes of it."""

import importlib
import types

from triton.runtime.jit import JITFunction

from packages import LOCAL


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

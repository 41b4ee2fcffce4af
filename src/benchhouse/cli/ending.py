"""How the command line's process ends: without looking for garbage in all that was imported, which took 0.1 s."""

import atexit
import gc
import sys

_PLAIN = frozenset({"_yaml", "numpy", "pyarrow", "pydantic_core", "yaml"})  # nothing of these has to be freed


def end_quickly() -> None:
    """From now on; where there is anything at all for `atexit`, it is done as ever."""
    atexit.unregister(_leave_garbage)  # one that runs in this process again, as tests do
    atexit.register(_leave_garbage)


def _leave_garbage() -> None:
    gc.disable()
    # Some extensions, those made with nanobind such as DuckDB among them, count what is left of them and complain.
    extensions = {name.partition(".")[0] for name, module in sys.modules.items() if _is_extension(module)}
    if extensions <= _PLAIN:
        gc.freeze()


def _is_extension(module: object) -> bool:
    file = getattr(module, "__file__", None)
    return isinstance(file, str) and file.endswith(".so") and "/lib-dynload/" not in file

"""What a trainer may import to tell its steps: callbacks of transformers and Lightning, a wrapper of any loop.

One file beside `benchhouse_client.py`, for Python 3.8 and newer; torch and the others are imported when they are used.
Each step of each rank becomes a record: step, t_start and t_end by the monotonic clock, data_s, tokens or samples,
loss, checkpoint_s, cpu_s, memory_bytes, as far as it can be known. The end of a step is when Python is through with it:
nothing here waits for a GPU, so there a single step may be told early, while rates over many hold.
"""

import contextlib
import json
import os
import resource
import runpy
import sys
import time

from benchhouse_client import emit

__all__ = ["Steps", "count_flops", "lightning_callback", "profiled", "transformers_callback"]

PROFILE = "BENCHHOUSE_PROFILE"  # "10..14": the first and the last step to profile
PROFILES = "BENCHHOUSE_PROFILES"  # the folder for what a profiler writes


class Steps:
    """The steps of a loop of your own, or of accelerate's: each turn is a step, from the wait for its batch on.

    steps = Steps()
    for batch in steps(loader):
        ...
        steps.note(loss=loss.item())
        with steps.checkpoint():  # where one is written: after the step, and not part of it
            accelerator.save_state(folder)

    A turn that is left by `break` is no step, unless `steps.end()` was called.
    """

    def __init__(self) -> None:
        self.record, self.profile = {}, Profile()
        self.ready, self.cpu, self.began_cpu = time.monotonic(), time.process_time(), 0.0

    def __call__(self, batches, first=0, every=1):
        """Of `every` batches, whose gradients are summed up, a step is made."""
        self.tell()
        self.skip()
        for at, batch in enumerate(batches):
            self.begin(first + at // every)
            self.count(batch)
            yield batch
            if (at + 1) % every == 0:
                self.end()
            self.skip()
        self.close()

    def begin(self, step):
        """A batch of it has come; the wait for it is since the one before was through."""
        wait_s = time.monotonic() - self.ready
        if self.record and "t_end" not in self.record:
            return self.note(data_s=self.record["data_s"] + wait_s)
        self.tell()
        self.record, self.began_cpu = {"step": step, "t_start": self.ready, "data_s": wait_s}, self.cpu
        return self.profile.begin(step)

    def count(self, batch):
        """Samples, and tokens where `input_ids` has them, padding included."""
        members = batch if hasattr(batch, "keys") else {}
        tensors = list(members.values()) if members else batch if isinstance(batch, (list, tuple)) else [batch]
        shape = next((item.shape for item in tensors if len(getattr(item, "shape", ()))), None)
        if shape is not None:
            self.note(samples=self.record.get("samples", 0) + shape[0])
        if "input_ids" in members:
            self.note(tokens=self.record.get("tokens", 0) + members["input_ids"].numel())

    def note(self, **amounts):
        """Of the step that is going on, or was the last one."""
        self.record.update(amounts)

    def end(self):
        if not self.record or "t_end" in self.record:
            return
        self.note(t_end=time.monotonic(), cpu_s=time.process_time() - self.began_cpu, memory_bytes=_memory())
        self.profile.end(self.record["step"])
        self.skip()

    def skip(self, name=None):
        """What passed until now is no wait for data; with a name it is told as that."""
        now = time.monotonic()
        if name:
            self.note(**{name: self.record.get(name, 0.0) + now - self.ready})
        self.ready, self.cpu = now, time.process_time()

    @contextlib.contextmanager
    def checkpoint(self):
        self.end()
        yield
        self.skip("checkpoint_s")

    def tell(self):
        """One record a step, when all is known of it; a step that did not end is none."""
        if "t_end" in self.record:
            emit(self.record)
        self.record = {}

    def close(self):
        self.tell()
        self.profile.close()


def _memory():
    """Most bytes of the GPU that this process had allocated; without a GPU, most of the machine's memory."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available() and torch.cuda.is_initialized():
        return torch.cuda.max_memory_allocated()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def transformers_callback():
    """`Trainer(..., callbacks=[transformers_callback()])`; the loss is known of steps that are logged."""
    from transformers import TrainerCallback

    steps = Steps()

    def count(_module, _args, inputs):
        if _module.training:
            steps.count(inputs)

    class TransformersCallback(TrainerCallback):
        def on_train_begin(self, args, state, control, model=None, **_):
            model.register_forward_pre_hook(count, with_kwargs=True)
            steps.skip()

        def on_step_begin(self, args, state, control, **_):
            steps.begin(state.global_step)

        def on_step_end(self, args, state, control, **_):
            steps.end()

        def on_log(self, args, state, control, logs=None, **_):
            steps.note(**({"loss": logs["loss"]} if "loss" in (logs or {}) else {}))
            steps.skip()

        def on_evaluate(self, args, state, control, **_):
            steps.skip()

        def on_save(self, args, state, control, **_):
            steps.skip("checkpoint_s")

        def on_train_end(self, args, state, control, **_):
            steps.close()

    return TransformersCallback()


def lightning_callback(loss=True):
    """`Trainer(..., callbacks=[lightning_callback()])`. To read the loss waits for the GPU once a step.

    Lightning tells when it begins to write a checkpoint, not when it has: the next wait for data is part of it then.
    """
    from lightning.pytorch import Callback as Base

    steps = Steps()

    class LightningCallback(Base):
        saves = False

        def over(self, *_):
            steps.skip("checkpoint_s" if self.saves else None)
            self.saves = False

        on_train_epoch_start = on_validation_start = over

        def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
            if self.saves:
                self.over()
            steps.begin(trainer.global_step)
            steps.count(batch)

        def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
            if loss and outputs is not None:
                part = float(outputs["loss"] if isinstance(outputs, dict) else outputs)  # of a batch, over their number
                steps.note(loss=steps.record.get("loss", 0.0) + part)
            if trainer.global_step > steps.record["step"]:
                steps.end()
            steps.skip()

        def on_save_checkpoint(self, trainer, pl_module, checkpoint):
            self.saves = True

        def on_validation_end(self, trainer, pl_module):
            steps.skip()

        def on_train_end(self, trainer, pl_module):
            steps.close()

    return LightningCallback()


class Profile:
    """torch.profiler over the steps that BENCHHOUSE_PROFILE names; each rank writes a trace."""

    def __init__(self) -> None:
        first, _, last = os.environ.get(PROFILE, "").partition("..")
        asked = first.isdigit() and last.isdigit() and os.path.isdir(os.environ.get(PROFILES, ""))
        self.steps = range(int(first), int(last) + 1) if asked else range(0)
        self.profiler, self.part, self.began = None, None, 0.0

    def begin(self, step):
        if step not in self.steps:
            return
        from torch import profiler

        if self.profiler is None:
            self.began, self.profiler = time.monotonic(), profiler.profile()
            self.profiler.start()
            self.profiler.add_metadata_json("benchhouse", json.dumps({"utc": time.time(), "mono": time.monotonic()}))
        self.part = profiler.record_function("benchhouse.step %d" % step)
        self.part.__enter__()

    def end(self, step):
        if self.profiler is None:
            return
        self.part.__exit__(None, None, None)
        if step >= self.steps[-1]:
            self.close()

    def close(self):
        if self.profiler is not None:
            self.profiler.stop()
            rank, attempt = (os.environ.get(name, "0") for name in ("RANK", "TORCHELASTIC_RESTART_COUNT"))
            path = os.path.join(os.environ[PROFILES], "rank-%s.attempt-%s.trace.json" % (rank, attempt))
            self.profiler.export_chrome_trace(path + ".part.gz")
            os.replace(path + ".part.gz", path + ".gz")
            self.profiler = None
            emit({"profile": os.environ[PROFILE], "t_start": self.began, "t_end": time.monotonic()})


def profiled(steps):
    """`for step in profiled(range(steps)):` in a loop that emits its records itself."""
    profile = Profile()
    for step in steps:
        profile.begin(step)
        yield step
        profile.end(step)
    profile.close()


def count_flops(step: "object", *arguments: "object") -> int:
    """Call `step(*arguments)` once, under torch's FLOP counter: the FLOPs of all products that it computed.

    Three times a forward pass are the model's FLOPs, the record's `flops`; forward and backward together those that are
    really computed, `hardware_flops`: more, where activations are computed again. Attention is computed by plain
    products meanwhile: the counter leaves out the kernel of CPUs without a word, and counts what the backward pass of
    GPU kernels computes again. So it takes much memory: count on one sequence of a batch, and before `torch.compile`.
    All of attention is counted, causal or not.
    """
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils.flop_counter import FlopCounterMode

    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        step(*arguments)  # type: ignore[operator]
    return counter.get_total_flops()


def main() -> None:
    """`python -m benchhouse_training [tokens=4096] train.py ...`: a script as it is, told by its optimizer.

    A step ends when the optimizer that was first to step has done so; the first one begins with the program. Amounts
    of a step that never change may be given before the script.
    """
    amounts, line = {}, sys.argv[1:]
    while line and "=" in line[0]:
        name, _, number = line.pop(0).partition("=")
        amounts[name] = float(number)
    if not line:
        sys.exit(main.__doc__)
    from torch.optim.optimizer import register_optimizer_step_post_hook

    steps, first = Steps(), []

    def stepped(optimizer, _args, _kwargs):
        first[:] = first or [optimizer]
        if optimizer is first[0]:
            steps.end()
            begin(steps.record["step"] + 1)

    def begin(step):
        steps.begin(step)
        del steps.record["data_s"]  # nobody knows
        steps.note(**amounts)

    register_optimizer_step_post_hook(stepped)
    begin(0)
    sys.argv = line
    sys.path[0] = os.path.dirname(os.path.abspath(line[0]))
    try:
        runpy.run_path(line[0], run_name="__main__")
    finally:
        steps.close()


if __name__ == "__main__":
    main()

"""Writes down, after every optimizer step, what the training has come to.

Python imports this module by its name at the start of a process in whose ``PYTHONPATH`` its folder
is. ``WATCHED_STATES`` names the folder that receives one file per process that trains: digests of
all parameters that an optimizer has stepped, in the order of their first step, and of the random
generators.
"""

import hashlib
import importlib.abc
import importlib.util
import json
import os
import random
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

WATCHED = "torch.optim.optimizer"


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def bits(tensor: Any) -> bytes:
    """The bytes of a parameter; those of this rank's part where it is sharded."""
    torch = sys.modules["torch"]
    local = getattr(tensor, "_local_tensor", tensor).detach()
    return bytes(local.contiguous().reshape(-1).view(torch.uint8).numpy())


class Watch:
    """Remembers the parameters, and writes the file."""

    def __init__(self) -> None:
        self.parameters: dict[int, Any] = {}
        self.steps = 0

    def __call__(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        torch = sys.modules["torch"]
        self.steps += 1
        for group in optimizer.param_groups:
            self.parameters.update((id(item), item) for item in group["params"])
        found = {
            "steps": self.steps,
            "parameters": [digest(bits(item)) for item in self.parameters.values()],
            "torch": digest(bytes(torch.get_rng_state().numpy())),
            "python": digest(repr(random.getstate()).encode()),
        }
        if "numpy" in sys.modules:
            state = sys.modules["numpy"].random.get_state()
            found["numpy"] = digest(state[1].tobytes() + repr(state[2:]).encode())
        name = f"rank-{os.environ.get('RANK', '0')}.json"
        Path(os.environ["WATCHED_STATES"], name).write_text(json.dumps(found))


class Finder(importlib.abc.MetaPathFinder):
    """Sets the watch up as soon as there are optimizers."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != WATCHED:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        assert spec is not None
        assert spec.loader is not None
        run = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            run(module)
            # Programs that seed no generator begin with a random state.
            random.seed(0)
            if "numpy" in sys.modules:
                sys.modules["numpy"].random.seed(0)
            module.register_optimizer_step_post_hook(Watch())

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


if "WATCHED_STATES" in os.environ:
    sys.meta_path.insert(0, Finder())

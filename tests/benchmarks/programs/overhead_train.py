"""Steps of one workload, timed one by one; run as ``train.py WORKLOAD STEPS OUTPUT [PEER]``.

Copied into a scratch checkout beside ``workloads.py``: what is instrumented is this source.
"""

import contextlib
import io
import json
import sys
import time

import torch
from workloads import WORKLOADS

WARM_UP_STEPS = 3


def main(workload, steps, output):
    step = WORKLOADS[workload]()
    for _ in range(WARM_UP_STEPS):
        step()
    wall, processor = [], []
    for _ in range(steps):
        started = time.perf_counter(), time.thread_time()
        step()
        wall.append(time.perf_counter() - started[0])
        processor.append(time.thread_time() - started[1])
    with open(output, "w") as out:
        json.dump({"wall": wall, "processor": processor}, out)


def main_with_debug_mode(workload, steps, output):
    from torch.utils._debug_mode import DebugMode

    # A mode keeps what it logs: entered for the whole run it would also measure a growing list.
    timed = WORKLOADS[workload]

    def build():
        step = timed()

        def logged():
            with DebugMode() as mode, mode.log_tensor_hashes("hash_tensor", hash_inputs=True):
                return step()

        return logged

    WORKLOADS[workload] = build
    main(workload, steps, output)


def main_with_msprobe(workload, steps, output):
    from msprobe.pytorch import PrecisionDebugger

    timed = WORKLOADS[workload]

    def build():
        debugger = PrecisionDebugger(task="statistics", level="L1", dump_path=f"{output}.msprobe")
        step = timed()

        def probed():
            debugger.start()
            loss = step()
            debugger.stop()
            debugger.step()
            return loss

        return probed

    WORKLOADS[workload] = build
    # Every step writes its files and logs five lines.
    with contextlib.redirect_stdout(io.StringIO()):
        main(workload, min(steps, 40), output)


if __name__ == "__main__":
    torch.set_num_threads(1)
    arguments = (sys.argv[1], int(sys.argv[2]), sys.argv[3])
    if sys.argv[4:] == ["debug_mode"]:
        main_with_debug_mode(*arguments)
    elif sys.argv[4:] == ["msprobe"]:
        main_with_msprobe(*arguments)
    else:
        main(*arguments)

"""Results of a peer, as the JSON that `rlpipe bench` writes."""

import json
import os
import subprocess
import sys
import time


def quantile(ordered, share):
    """By linear interpolation: type 7 of Hyndman and Fan, as numpy and rlpipe do."""
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def spread(values):
    ordered = sorted(values)
    return {"runs": len(ordered), "median": quantile(ordered, 0.5), "min": ordered[0],
            "lower_quartile": quantile(ordered, 0.25), "upper_quartile": quantile(ordered, 0.75), "max": ordered[-1]}


def measured(name, seconds, warm_up_s=None, unit=None, amounts=None):
    """`amounts`: what was done in each run, or in all alike."""
    one = {"name": name, "seconds": spread(seconds)}
    if warm_up_s is not None:
        one["warm_up_s"] = warm_up_s
    if unit is not None:
        amounts = amounts if isinstance(amounts, list) else [amounts] * len(seconds)
        one["done"] = {"unit": unit, "amount": spread(amounts)["median"],
                       "per_second": spread([amount / second for amount, second in zip(amounts, seconds)])}
    return one


def timed(device, work):
    """What `work()` returns, and the seconds until the device has done it."""
    import torch

    def settle():
        if device == "cuda":
            torch.cuda.synchronize()

    settle()
    start = time.perf_counter()
    result = work()
    settle()
    return result, time.perf_counter() - start


def choose_device(wanted, threads):
    """`cuda` or `cpu`; `auto` takes a card where there is one."""
    import torch

    if threads:
        torch.set_num_threads(threads)
    if wanted == "auto":
        wanted = "cuda" if torch.cuda.is_available() else "cpu"
    if wanted == "cuda" and not torch.cuda.is_available():
        sys.exit("there is no card here that torch can open; give `--device cpu`")
    return wanted


def driver_version():
    try:
        asked = subprocess.run(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"],
                               capture_output=True, text=True, check=True)
        return asked.stdout.split()[0]
    except (OSError, subprocess.CalledProcessError, IndexError):
        return None


def show(bench, package, device, folder, parameters, dtype, settings, results, notes=()):
    """Prints the JSON. `package` is the module that was measured."""
    import torch
    import transformers

    card = device == "cuda"
    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    if card and driver_version():
        versions["driver"] = driver_version()
    name = os.path.basename(os.path.abspath(folder))
    print(json.dumps({
        "bench": bench,
        "program": {"name": package.__name__, "version": package.__version__},
        "device": torch.cuda.get_device_name() if card else "cpu",
        "versions": versions,
        "threads": torch.get_num_threads(),
        "model": {"name": name, "weights": "folder", "parameters": parameters, "dtype": dtype},
        "settings": settings,
        "measured": results,
        "notes": list(notes),
    }, indent=2))


def show_failed(bench, why, error, settings):
    """Prints the JSON of work that could not be done."""
    print(json.dumps({"bench": bench, "failed": why, "said": str(error), "settings": settings}, indent=2))

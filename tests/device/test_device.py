"""Which device ``device=`` means, and what is said where there is none."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import subprocess
import sys
import textwrap
from typing import Any

import pytest

import gpumatch as gm
from gpumatch.device import discovery, resolve_device

SCHEMA = {"px": "float64"}


class Nvml:
    """The three calls of NVIDIA's management library."""

    def __init__(self, devices: int, status: int = 0) -> None:
        self.devices, self.status, self.open = devices, status, 0

    def nvmlInit_v2(self) -> int:  # noqa: N802
        self.open += 1
        return self.status

    def nvmlDeviceGetCount_v2(self, count: Any) -> int:  # noqa: N802
        count._obj.value = self.devices
        return 0

    def nvmlShutdown(self) -> int:  # noqa: N802
        self.open -= 1
        return 0


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Sets what the machine has: a number of devices (None: no driver), and installed libraries."""

    def has(devices: int | None, *libraries: str, visible: str | None = None, status: int = 0) -> Nvml:
        nvml = Nvml(devices or 0, status)

        real = ctypes.CDLL

        def load(name: str, *args: Any, **kwargs: Any) -> Any:
            if "nvidia-ml" not in str(name):
                return real(name, *args, **kwargs)
            if devices is None:
                raise OSError(name)
            return nvml

        monkeypatch.setattr(ctypes, "CDLL", load)
        find = importlib.util.find_spec
        both = ("cupy", "numba_cuda")
        monkeypatch.setattr(
            importlib.util, "find_spec", lambda name: (name in libraries or None) if name in both else find(name)
        )
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        if visible is not None:
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        return nvml

    return has


@pytest.mark.parametrize("device", ["cuda", "cuda:0", "cuda:17"])
def test_no_driver(machine: Any, device: str) -> None:
    machine(None)
    with pytest.raises(gm.DeviceError) as caught:
        gm.Matcher(SCHEMA, device=device)
    assert str(caught.value) == (
        f"device {device!r} was asked for, but no NVIDIA driver was found here; install it where there is a GPU "
        "(a container must be started with access to it), or use device='cpu'"
    )


def test_auto_without_a_driver_is_the_cpu_and_says_why(machine: Any) -> None:
    machine(None)
    plan = gm.Matcher(SCHEMA).plan()
    assert plan.device == "cpu"
    assert str(plan).startswith("device cpu (auto: no NVIDIA driver was found here)\n")


def test_a_hidden_device(machine: Any) -> None:
    machine(2, "cupy", "numba_cuda", visible="")
    assert resolve_device("auto")[0] == "cpu"
    with pytest.raises(gm.DeviceError, match=r"shows no GPU to this process \(CUDA_VISIBLE_DEVICES may hide it\)"):
        resolve_device("cuda:0")


@pytest.mark.parametrize(
    ("libraries", "missing"),
    [
        ((), "CuPy and numba-cuda are missing"),
        (("cupy",), "numba-cuda is missing"),
        (("numba_cuda",), "CuPy is missing"),
    ],
)
def test_missing_libraries(machine: Any, libraries: tuple[str, ...], missing: str) -> None:
    machine(1, *libraries)
    with pytest.raises(gm.DeviceError, match=rf"{missing}: pip install 'gpumatch\[gpu13\]'"):
        resolve_device("cuda:0")
    assert missing in resolve_device("auto")[1]


def test_auto_takes_the_first_device(machine: Any) -> None:
    machine(2, "cupy", "numba_cuda")
    assert resolve_device("auto") == ("cuda:0", "auto: found 2 CUDA device(s)")
    assert resolve_device("cuda") == ("cuda:0", "as asked")
    assert resolve_device("cuda:1") == ("cuda:1", "as asked")
    assert resolve_device("cpu") == ("cpu", "as asked")
    with pytest.raises(gm.DeviceError, match="'cuda:2' was asked for, but there are 2 CUDA devices, from 'cuda:0'"):
        resolve_device("cuda:2")


def test_the_management_library_is_closed_again(machine: Any) -> None:
    nvml = machine(1)
    discovery.count_devices()
    assert nvml.open == 0


def test_a_broken_driver_shows_nothing(machine: Any) -> None:
    machine(1, status=999)
    assert discovery.count_devices() == 0


@pytest.mark.parametrize(
    ("wanted", "seen"),
    [
        (None, 4),
        ("", 0),
        ("-1", 0),
        ("2", 1),
        ("0,1", 2),
        ("0, 3", 2),
        ("0,7,1", 1),
        ("GPU-1a,GPU-2b", 2),
        ("x,-1,y", 1),
    ],
)
def test_visible_devices(wanted: str | None, seen: int) -> None:
    assert discovery.visible(4, wanted) == seen


@pytest.mark.parametrize("device", ["gpu", "cuda:x", "cuda:-1", "", "CPU", None, 0, ["cpu"]], ids=repr)
def test_a_device_that_is_none(device: Any) -> None:
    with pytest.raises(gm.DeviceError, match="device is 'auto', 'cpu' or 'cuda:N', found"):
        gm.Matcher(SCHEMA, device=device)


def test_the_same_subscriptions_elsewhere() -> None:
    matcher = gm.Matcher(SCHEMA, index=gm.Gem(cells=8), device="cpu")
    matcher.add({"a": "px > 1"}, destination="d")
    other = matcher.to("cpu")
    other.add({"b": "px > 2"})
    assert matcher.match_one({"px": 3.0}) == ["a"]
    assert other.match_one({"px": 3.0}) == ["a", "b"]
    assert list(other.destinations([{"px": 3.0}])) == [["d"]]
    assert other.plan().segments[0].index == gm.Gem(cells=8)


@pytest.mark.long
@pytest.mark.parametrize(("value", "device"), [("1", "cuda:0"), ("0", "cpu"), ("", "cpu"), ("true", "cpu")])
def test_the_simulator_is_on_where_numba_says_so(value: str, device: str) -> None:
    """Which reads a number, once: what is set later, or is none, changes nothing."""
    script = """
        import os, warnings
        warnings.simplefilter("ignore")
        import gpumatch as gm
        try:
            matcher = gm.Matcher({"px": "float64"}, device="cuda:0")
        except gm.DeviceError:
            matcher = gm.Matcher({"px": "float64"}, device="cpu")
        os.environ["NUMBA_ENABLE_CUDASIM"] = "0"
        matcher.add({1: "px > 1"})
        print(matcher.device, matcher.match_one({"px": 2.0}))
    """
    environment = {**os.environ, "NUMBA_ENABLE_CUDASIM": value}
    command = [sys.executable, "-c", textwrap.dedent(script)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split(maxsplit=1) == [device, "[1]\n"]

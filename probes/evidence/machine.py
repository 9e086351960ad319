"""Devices and host memory: what there is, and peaks over time."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from .records import Payload, Record, Text

MemoryKind = Literal["dedicated", "unified", "unknown"]


class DeviceProcess(Record):
    """A process that holds memory of a device. ``used_bytes`` None: the driver does not say (WDDM, rights, containers)."""

    pid: int
    name: Text | None = None
    used_bytes: int | None = Field(default=None, ge=0)
    is_server: bool | None = None


class Device(Record):
    """One accelerator as its driver tells."""

    id: str = Field(description="vendor and index, e.g. nvidia:0")
    name: Text
    vendor: Literal["nvidia", "amd", "intel", "apple", "other"]
    memory: MemoryKind = "dedicated"
    total_bytes: int | None = Field(default=None, ge=0)
    free_bytes: int | None = Field(default=None, ge=0)
    used_bytes: int | None = Field(default=None, ge=0)
    reserved_bytes: int | None = Field(default=None, ge=0, description="held by the driver itself")
    shared_used_bytes: int | None = Field(default=None, ge=0, description="system memory in use by this device: GTT, WDDM shared")
    shared_total_bytes: int | None = Field(default=None, ge=0)
    driver: Text | None = None
    driver_model: Text | None = None
    uuid: Text | None = None
    pci: Text | None = None
    link: Text | None = Field(default=None, description="e.g. PCIe 4.0 x16 (of x16)")
    link_generation: int | None = None
    link_width: int | None = None
    link_generation_max: int | None = None
    link_width_max: int | None = None
    utilization_percent: float | None = Field(default=None, ge=0)
    power_watts: float | None = Field(default=None, ge=0)
    temperature_c: float | None = None
    throttle: tuple[str, ...] | None = None
    processes: tuple[DeviceProcess, ...] | None = None
    notes: tuple[Text, ...] = ()


class DeviceReadings(Payload):
    """All devices at one moment. An empty tuple: looked, and there is none."""

    kind: ClassVar[str] = "devices"
    devices: tuple[Device, ...]
    when: Text = Field(default="", description="before-load, before-run, after-run, …")
    sources: tuple[str, ...] = Field(default=(), description="which interfaces were asked: nvml, sysfs, …")


class HostReading(Payload):
    """The machine: memory, operating system, limits."""

    kind: ClassVar[str] = "host"
    os: Text
    cpu: Text | None = None
    cores: int | None = Field(default=None, ge=0)
    ram_bytes: int | None = Field(default=None, ge=0)
    ram_available_bytes: int | None = Field(default=None, ge=0)
    swap_total_bytes: int | None = Field(default=None, ge=0)
    swap_used_bytes: int | None = Field(default=None, ge=0)
    cgroup_limit_bytes: int | None = Field(default=None, ge=0)
    cgroup_used_bytes: int | None = Field(default=None, ge=0)
    oom_kills: int | None = Field(default=None, ge=0)
    virtualised: Text | None = Field(default=None, description="WSL2, container, … where it is seen")
    load_1min: float | None = Field(default=None, ge=0)
    busy_processes: tuple[DeviceProcess, ...] = ()


class ServerMemory(Record):
    """The server process's own memory."""

    rss_bytes: int | None = Field(default=None, ge=0)
    uss_bytes: int | None = Field(default=None, ge=0)
    swap_bytes: int | None = Field(default=None, ge=0)
    major_faults: int | None = Field(default=None, ge=0)
    read_bytes: int | None = Field(default=None, ge=0)


class SampledPeaks(Payload):
    """Peaks over one request or phase, with the sample rate that was reached."""

    kind: ClassVar[str] = "peaks"
    phase: Text = Field(description="load, rung 8192 attempt 1, prefill, generation, …")
    rung: int | None = None
    attempt: int | None = None
    samples: int = Field(ge=0)
    seconds: float = Field(ge=0)
    hz: float = Field(ge=0)
    devices_peak_bytes: dict[str, int] = Field(default_factory=dict)
    devices_min_free_bytes: dict[str, int] = Field(default_factory=dict)
    shared_peak_bytes: dict[str, int] = Field(default_factory=dict)
    utilization_mean: dict[str, float] = Field(default_factory=dict)
    power_mean_watts: dict[str, float] = Field(default_factory=dict)
    host_min_available_bytes: int | None = Field(default=None, ge=0)
    swap_peak_bytes: int | None = Field(default=None, ge=0)
    swapped_in_bytes: int | None = Field(default=None, ge=0)
    swapped_out_bytes: int | None = Field(default=None, ge=0)
    memory_pressure_some: float | None = Field(default=None, ge=0)
    server_before: ServerMemory | None = None
    server_peak: ServerMemory | None = None
    server_after: ServerMemory | None = None
    major_faults: int | None = Field(default=None, ge=0, description="of the server during this phase")
    notes: tuple[Text, ...] = ()


class BufferTruth(Record):
    """One buffer as the server's log gives it."""

    device: Text
    component: Literal["weights", "kv", "state", "compute", "output", "draft", "projector", "other"]
    size_bytes: int = Field(ge=0)
    line: int | None = None


class MemoryBudget(Payload):
    """Predicted or logged memory by device and component."""

    kind: ClassVar[str] = "memory_budget"
    basis: Literal["log", "planner", "model"]
    ctx: int | None = None
    buffers: tuple[BufferTruth, ...] = ()
    longest_window: int | None = None
    limited_by: Text | None = None
    error_bytes: int | None = None

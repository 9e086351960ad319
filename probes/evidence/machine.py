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
    is_server: bool | None = Field(default=None, description="whether it is the server under test, or a child of it")
    server_kind: Text | None = Field(
        default=None, description="which inference server it looks like: llama.cpp, ollama, vllm, …"
    )
    previous_instance: bool | None = Field(
        default=None, description="the same server program, but not the one under test"
    )
    shared_bytes: int | None = Field(
        default=None, ge=0, description="system memory that the device uses for it: GTT, WDDM shared"
    )
    rss_bytes: int | None = Field(default=None, ge=0, description="host memory of the process")
    cpu_percent: float | None = Field(default=None, ge=0, description="100 is one whole core")


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
    shared_used_bytes: int | None = Field(
        default=None, ge=0, description="system memory in use by this device: GTT, WDDM shared"
    )
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
    processes: tuple[DeviceProcess, ...] | None = Field(default=None, description="None: could not be told; see notes")
    working_set_limit_bytes: int | None = Field(
        default=None, ge=0, description="what one process may use of unified memory (Apple)"
    )
    carved_bytes: int | None = Field(
        default=None,
        ge=0,
        description="part of a unified device's memory that was set apart at start: it is not in the host's numbers",
    )
    cuda_index: int | None = Field(
        default=None, ge=0, description="index that the server sees it under, where that is certain"
    )
    power_limit_watts: float | None = Field(default=None, ge=0)
    notes: tuple[Text, ...] = ()


class DeviceLink(Record):
    """How two devices reach each other."""

    a: str
    b: str
    path: Literal["internal", "one-switch", "many-switches", "host-bridge", "numa-node", "system"] | None = None
    peer_access: bool | None = Field(default=None, description="whether one may read the other's memory directly")
    peer_why_not: Text | None = None
    nvlink: bool | None = None


class DeviceReadings(Payload):
    """All devices at one moment. An empty tuple: looked, and there is none."""

    kind: ClassVar[str] = "devices"
    devices: tuple[Device, ...]
    when: Text = Field(default="", description="before-load, before-run, after-run, …")
    sources: tuple[str, ...] = Field(default=(), description="which interfaces were asked: nvml, sysfs, …")
    absent: dict[str, Text] = Field(default_factory=dict, description="interface → why it had nothing to say")
    links: tuple[DeviceLink, ...] = ()
    visibility: dict[str, Text] = Field(
        default_factory=dict, description="variables of the server's environment that hide or reorder devices"
    )
    notes: tuple[Text, ...] = ()


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
    busy_processes: tuple[DeviceProcess, ...] = Field(
        default=(), description="what else takes much of the CPU or the memory"
    )
    other_servers: tuple[DeviceProcess, ...] = Field(default=(), description="other inference servers on this machine")
    cgroup_version: int | None = Field(default=None, description="1 or 2; None where there is no memory group")
    cgroup_swap_limit_bytes: int | None = Field(default=None, ge=0)
    oom_events: int | None = Field(
        default=None, ge=0, description="times that the group's limit was hit and nothing could be reclaimed"
    )
    pressure_some_percent: float | None = Field(default=None, ge=0, le=100, description="PSI memory, some, over 10 s")
    pressure_full_percent: float | None = Field(default=None, ge=0, le=100, description="PSI memory, full, over 10 s")
    pressure_level: Literal["normal", "warning", "critical"] | None = Field(
        default=None, description="macOS's own word"
    )
    free_percent: float | None = Field(default=None, ge=0, le=100, description="macOS: system-wide free percentage")
    wired_bytes: int | None = Field(default=None, ge=0, description="memory that cannot be paged out (macOS)")
    compressed_bytes: int | None = Field(default=None, ge=0, description="memory held by the compressor (macOS)")
    locked_bytes: int | None = Field(default=None, ge=0, description="memory locked by processes (Linux)")
    address_space_limit_bytes: int | None = Field(
        default=None, ge=0, description="of the server's process; None: unlimited or not told"
    )
    locked_limit_bytes: int | None = Field(
        default=None, ge=0, description="how much the server may lock; None: unlimited or not told"
    )
    major_faults: int | None = Field(default=None, ge=0, description="of the whole machine since boot")
    notes: tuple[Text, ...] = ()


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
    memory_pressure_some: float | None = Field(
        default=None, ge=0, description="percent of the time in which some task waited for memory"
    )
    server_before: ServerMemory | None = None
    server_peak: ServerMemory | None = None
    server_after: ServerMemory | None = None
    major_faults: int | None = Field(default=None, ge=0, description="of the server during this phase")
    asked_hz: float | None = Field(default=None, ge=0, description="the sample rate that was asked for")
    cost_core_share: float | None = Field(
        default=None, ge=0, description="CPU time of sampling, as a share of one core"
    )
    devices_before_bytes: dict[str, int] = Field(default_factory=dict, description="in use when the phase began")
    shared_before_bytes: dict[str, int] = Field(default_factory=dict)
    server_devices_peak_bytes: dict[str, int] = Field(
        default_factory=dict, description="the server's own, where the driver tells it by process"
    )
    server_shared_before_bytes: dict[str, int] = Field(default_factory=dict)
    server_shared_peak_bytes: dict[str, int] = Field(default_factory=dict)
    utilization_max: dict[str, float] = Field(default_factory=dict)
    temperature_max_c: dict[str, float] = Field(default_factory=dict)
    throttle: dict[str, tuple[str, ...]] = Field(
        default_factory=dict, description="every reason that was seen, idle left out"
    )
    link_generation_best: dict[str, int] = Field(default_factory=dict, description="highest seen: it drops when idle")
    link_width_best: dict[str, int] = Field(default_factory=dict, description="most PCIe lanes seen in use")
    link_sent_max_bps: dict[str, int] = Field(
        default_factory=dict, description="over the PCIe link from the device, bytes a second, the most seen"
    )
    link_received_max_bps: dict[str, int] = Field(default_factory=dict, description="the same to the device")
    link_replays: dict[str, int] = Field(
        default_factory=dict, description="packets that a device's link had to send again during this phase"
    )
    devices_lost: dict[str, Text] = Field(default_factory=dict, description="device → why it stopped answering")
    server_gone_after_s: float | None = Field(
        default=None, ge=0, description="when the server's process was seen to be gone"
    )
    server_read_bytes: int | None = Field(
        default=None, ge=0, description="read from storage by the server during this phase"
    )
    memory_pressure_full: float | None = Field(
        default=None, ge=0, description="percent of the time in which all tasks waited"
    )
    pressure_level: Literal["normal", "warning", "critical"] | None = Field(
        default=None, description="macOS's own word, the worst seen"
    )
    cgroup_peak_bytes: int | None = Field(default=None, ge=0)
    oom_kills: int | None = Field(default=None, ge=0, description="in the server's memory group during this phase")
    notes: tuple[Text, ...] = ()


class BufferTruth(Record):
    """One buffer as the server's log gives it."""

    device: Text
    component: Literal["weights", "kv", "state", "compute", "output", "draft", "projector", "other"]
    size_bytes: int = Field(ge=0)
    line: int | None = None


class BudgetDevice(Record):
    """One device of a budget: what it must hold, and what there is for it. The host is a device too."""

    id: str
    need_bytes: int = Field(ge=0)
    free_bytes: int | None = Field(
        default=None, ge=0, description="what the server can have of it in all; None: not known"
    )
    margin_bytes: int = Field(default=0, ge=0)
    fits: bool | None = None


class BudgetLever(Record):
    """One step of the table of levers: the longest window with this and all before it. ``gain``: over the step before."""

    lever: Text
    tokens: int = Field(ge=0)
    gain: int
    weights_bytes: int = Field(ge=0)
    context_bytes: int = Field(ge=0)
    costs_quality: bool
    tensor_split: tuple[int, ...] = ()


class BudgetCacheType(Record):
    """The longest window with one cache type for keys and values, all else as it is."""

    kv: Text
    tokens: int | None = Field(default=None, ge=0)
    refused_because: Text | None = None


class BudgetSteps(Record):
    """What one change alone would do; None: no such value makes it fit, or it does not apply. Each leaves room for the error."""

    ctx: int | None = Field(default=None, ge=0, description="longest --ctx-size that fits; 0: not even the shortest")
    ctx_with_keys_8bit: int | None = Field(default=None, ge=0, description="the same with a q8_0 cache for keys alone")
    ubatch: int | None = Field(default=None, ge=1, description="largest micro-batch with which this window fits")
    gpu_layers: int | None = Field(default=None, ge=0, description="most layers on devices with which this window fits")
    tensor_split: tuple[int, ...] = Field(default=(), description="layers a device with which this window fits")


class MemoryBudget(Payload):
    """Predicted or logged memory by device and component."""

    kind: ClassVar[str] = "memory_budget"
    basis: Literal["log", "planner", "model"]
    ctx: int | None = None
    buffers: tuple[BufferTruth, ...] = ()
    longest_window: int | None = Field(default=None, description="of one slot, by the best estimate")
    limited_by: Text | None = None
    error_bytes: int | None = None
    devices: tuple[BudgetDevice, ...] = ()
    levers: tuple[BudgetLever, ...] = ()
    by_cache_type: tuple[BudgetCacheType, ...] = ()
    steps: BudgetSteps | None = None
    kv_least_bytes: int | None = Field(
        default=None,
        ge=0,
        description="cache and states at this window and type with no full-length sliding-window cache",
    )
    notes: tuple[Text, ...] = ()


class MemoryDifference(Record):
    """One device's total: predicted, as the log has it, and whether they agree (within 3 % or 100 MiB, whichever is larger)."""

    device: Text
    predicted_bytes: int
    logged_bytes: int
    agrees: bool
    worst_component: Text | None = Field(default=None, description="where they differ most")


class MemoryScore(Payload):
    """A prediction held against the server's log, device by device."""

    kind: ClassVar[str] = "memory_score"
    differences: tuple[MemoryDifference, ...]


class MemoryOverflow(Payload):
    """What did not fit, where, and by how much."""

    kind: ClassVar[str] = "memory_overflow"
    device: Text
    component: Literal[
        "weights", "kv", "state", "compute", "output", "draft", "projector", "other",
        "other-process", "driver-reserve", "oversized-piece", "fragmentation", "pinned-host",
    ] = Field(description="the component that crossed the line, or what stands in its way")  # fmt: skip
    lacking_bytes: int | None = Field(default=None, ge=0)
    piece_bytes: int | None = Field(default=None, ge=0, description="the allocation that failed, where the log tells")
    basis: Literal["log", "model"]
    note: Text = ""
    other_split: tuple[int, ...] = Field(
        default=(), description="a split with which it fits all the same; empty: none was found, or there is one device"
    )

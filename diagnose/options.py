"""What a run was asked to do. Kept with the run, so that an interrupted one can be resumed with the same."""

from __future__ import annotations

from pydantic import Field

from probes.evidence.records import Record, Text


class RunOptions(Record):
    """Options of one run; the key is never kept."""

    url: Text | None = None
    model: Text | None = None
    backend: Text | None = None
    tokenizer: Text | None = None
    logs: tuple[Text, ...] = ()
    clients: tuple[Text, ...] = Field(default=(), description="settings files of clients that were named")
    launch: tuple[Text, ...] | None = None
    launch_env: dict[str, Text] = Field(default_factory=dict)
    settings: dict[str, bool | int | float | Text] = Field(
        default_factory=dict,
        description="put into force through the server's own interface for this run, and put back at its end",
    )
    address_space_bytes: int | None = None
    target: int | None = None
    output_tokens: int | None = None
    ladder: tuple[int, ...] | None = None
    budget_s: float = 1800.0
    control_url: Text | None = None
    soak: int | None = Field(
        default=None, ge=0, description="length to which a session of many turns is grown; 0: as far as the window goes"
    )
    text_folder: Text | None = None
    seed: int = 0
    load_deadline_s: float = 600.0
    first: tuple[str, ...] = Field(
        default=(), description="probes that are run before the others: what a prediction needs"
    )
    starts: int = Field(
        default=1,
        ge=1,
        le=10,
        description="how often a launched server is started, where starting is what was predicted",
    )

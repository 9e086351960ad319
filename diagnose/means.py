"""How one setting is changed for an experiment: another command to start the server with, or the running server's own interface."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, Self

from diagnose.options import RunOptions
from diagnose.scripts import deaf_script
from probes.backends.commands import as_text, change_command, change_steps, detect_backend, masked, parse_command
from probes.backends.standing import LlamaManagerStanding, Standing, reload_steps
from probes.evidence.errors import NotOfferedError
from probes.evidence.words import Words


class Means(Protocol):
    """The user's server with what was changed so far."""

    def changed(self, variable: str, value: Any) -> Self:
        """Give the same with one setting changed too; itself where nothing would change. CtxDoctorError where that cannot be written."""
        ...

    def shown(self) -> str:
        """Give it as text for people: the command, or what is sent."""
        ...

    def steps(self, variable: str, value: Any) -> str:
        """Give what people do to change this setting for good; the command where there is one."""
        ...

    def put(self, options: RunOptions) -> RunOptions:
        """Give the options of a run with it."""
        ...

    def asked_window(self) -> int | None:
        """Give the window that it asks for, or None."""
        ...


@dataclass(frozen=True)
class ByCommand:
    """The server is started with a command in which one flag is changed."""

    command: tuple[str, ...]
    backend: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict)

    def changed(self, variable: str, value: Any) -> ByCommand:
        """Change the flag where it stands. NotOfferedError where a script starts the server and passes nothing on."""
        script = deaf_script(self.command)
        if script is not None:
            raise NotOfferedError(
                f"{script} does not pass settings on to the server it starts, so {variable} cannot be changed from outside; "
                'change it inside the script, or write "$@" behind the server\'s own settings there'
            )
        new = tuple(change_command(self.command, self.backend or detect_backend(self.command), variable, value))
        return self if new == self.command else replace(self, command=new)

    def shown(self) -> str:
        """Give the command, keys masked."""
        return as_text(masked(self.command))

    def steps(self, variable: str, value: Any) -> str:
        """Give the whole command."""
        return self.changed(variable, value).shown()

    def put(self, options: RunOptions) -> RunOptions:
        """Launch it."""
        return options.model_copy(update={"launch": self.command})

    def asked_window(self) -> int | None:
        """Read it from the command and its environment."""
        setting = parse_command(self.command, self.environment).settings.get("ctx")
        return setting.value if setting is not None and isinstance(setting.value, int) and setting.value > 0 else None


@dataclass(frozen=True)
class ByInterface:
    """The server goes on running; its own interface changes the settings for each run, and gives them back."""

    standing: Standing
    settings: Mapping[str, Any] = field(default_factory=dict)

    def changed(self, variable: str, value: Any) -> ByInterface:
        """Put one setting to the others. NotOfferedError, RefusedSettingError."""
        if variable in self.settings and self.settings[variable] == value:
            return self
        new = replace(self, settings={**self.settings, variable: value})
        self.standing.written(new.settings)
        return new

    def shown(self) -> str:
        """Give what is sent; empty where nothing is changed."""
        return self.standing.request(self.settings) if self.settings else ""

    def steps(self, variable: str, value: Any) -> str:
        """Give the steps of this server."""
        if isinstance(self.standing, LlamaManagerStanding):
            return _lines(reload_steps(variable, value, self.standing.model))
        return _lines(change_steps(self.standing.name, variable, value, model=self.standing.model))

    def put(self, options: RunOptions) -> RunOptions:
        """Put the settings into force for the run."""
        return options.model_copy(update={"settings": dict(self.settings), "model": self.standing.model})

    def asked_window(self) -> int | None:
        """Give the one that was changed, if it was."""
        value = self.settings.get("ctx")
        return value if isinstance(value, int) else None


def with_settings(options: RunOptions, settings: Mapping[str, Any]) -> RunOptions:
    """Give the options of a run with settings of ``--set``: in the launch command where there is one, else for the running server's own interface.

    NotOfferedError, RefusedSettingError where the command cannot be given one.
    """
    if not settings or not options.launch:
        return options.model_copy(update={"settings": dict(settings)})
    means = ByCommand(options.launch, options.backend, options.launch_env)
    for variable, value in settings.items():
        means = means.changed(variable, value)
    return means.put(options).model_copy(update={"settings": {}})


def _lines(said: tuple[Words, ...]) -> str:
    return "\n".join(one.english for one in said)

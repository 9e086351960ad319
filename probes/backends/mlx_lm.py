"""mlx_lm.server: no window, no tokenizer, no times of its own; usage and cached counts are exact.

Its only sure sign is the ``system_fingerprint`` of a completion: until the first one it is a guess by its HTTP library.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, ClassVar

from probes.backends.base import Ask, Feature, Signs
from probes.backends.commands import parse_command
from probes.backends.http import Http, count, is_loopback, text_of
from probes.backends.openai_compatible import OpenAiCompatible, StreamReading, object_of
from probes.evidence.errors import NotOfferedError
from probes.evidence.request import Completion, RequestError
from probes.evidence.subject import BackendIdentity, Configuration, ModelIdentity, WindowReading

_FINGERPRINT = re.compile(r"(\d+\.\d+\.\d+\S*?)-(\d+\.\d+\.\d+\S*?)-(.+)$")
MOST_CONFIG_BYTES = 4 * 1024 * 1024
MOST_LOGPROBS = 10
"""It refuses a request for more than eleven (0.32), older versions for more than ten."""


class MlxReading(StreamReading):
    """Generation errors come as HTTP 404 here; a 404 that names no unknown path or model is the server's own failure."""

    def whole(self, reply: Any) -> None:
        """Take a plain body."""
        super().whole(reply)
        if self.error is not None and self.error.error == "not-found" and self.error.message not in {"", "Not Found"}:
            missing = re.search(
                r"not found|no such|does not exist|404 client error|repo", self.error.message, re.IGNORECASE
            )
            if not missing:
                self.error = RequestError(**{**self.error.model_dump(), "error": "server-error"})


class MlxLm(OpenAiCompatible):
    """mlx_lm.server."""

    name: ClassVar[str] = "mlx_lm"
    offers: ClassVar[frozenset[Feature]] = frozenset(
        {
            "identity",
            "version",
            "model",
            "trained-window",
            "chat",
            "completion",
            "cached-count",
            "configuration",
            "logprobs",
            "streaming",
        }
    )
    reading: ClassVar[type[StreamReading]] = MlxReading

    def __init__(self, http: Http, model: str | None = None) -> None:
        super().__init__(http, model)
        self.fingerprint: str | None = None
        self.confirmed: bool | None = None
        """Whether a completion carried its fingerprint; None before the first one."""

    @classmethod
    def recognise(cls, signs: Signs) -> str | None:
        """By Python's plain HTTP library in the ``Server`` header and a bare ``/health``; confirmed by the first completion."""
        for path, (_status, headers, _body) in signs.answers.items():
            if re.match(r"BaseHTTP/\S+ Python/", headers.get("server", "")) and signs.json("/health").get("status") in {
                "ok",
                "unavailable",
            }:
                return f"Server: BaseHTTP at {path}; to be confirmed by its first completion"
        return None

    def identity(self) -> BackendIdentity:
        """Name; version and MLX build from the fingerprint once there was a completion."""
        match = _FINGERPRINT.match(self.fingerprint or "")
        if self.confirmed is False:
            return BackendIdentity(
                name="openai-compatible",
                url=self.http.base_url,
                recognised_by="looked like mlx_lm.server, but its completion had no such fingerprint",
            )
        return BackendIdentity(
            name=self.name,
            version=match.group(1) if match else None,
            build=f"mlx {match.group(2)}, {match.group(3)}"[:500] if match else None,
            url=self.http.base_url,
            recognised_by="system_fingerprint of a completion"
            if self.confirmed
            else self.recognised_by or "Server: BaseHTTP",
        )

    def model_name(self) -> str | None:
        """Give the name asked for, else the server's own ``default_model``; its list of models names what the disk holds, not what is loaded."""
        return self.model or "default_model"

    def model_identity(self) -> ModelIdentity:
        """Model as named, or as the server's process was told, with its file's values where that folder can be read."""
        folder = self._folder()
        config = read_config(folder) if folder is not None else {}
        name = self.model or (folder.name if folder is not None else None)
        if name is None:
            raise NotOfferedError("mlx_lm.server does not say which model is loaded; give --model")
        return ModelIdentity(
            name=name,
            path=str(folder) if folder is not None else None,
            architecture=text_of(config.get("model_type"), 200),
            quantization=_quantization(config),
            trained_window=trained_window(config),
        )

    def window(self) -> WindowReading:
        """Only the trained length, from the model folder; the server enforces no window: a longer prompt runs on until memory ends."""
        folder = self._folder()
        if folder is None:
            raise NotOfferedError(
                "mlx_lm.server has no window and tells none; give the model's folder to see its trained length"
            )
        trained = trained_window(read_config(folder))
        if trained is None:
            raise NotOfferedError(f"the config.json beside the model names no window ({folder.name})")
        return WindowReading(trained=trained)

    def configuration(self) -> Configuration:
        """Its command line, where the process is on this machine."""
        read = self._command()
        if read is None:
            raise NotOfferedError(
                "mlx_lm.server tells no settings over HTTP; its command line can be read on its own machine only"
            )
        return read

    def _command(self) -> Configuration | None:
        if not is_loopback(self.http.base_url):
            return None
        from probes.process import process_behind  # noqa: PLC0415 - looks at processes only when asked

        try:
            process = process_behind(self.http.base_url)
        except NotOfferedError:
            return None
        return parse_command(process.argv, process.environment, self.name)

    def _folder(self) -> Path | None:
        read = self._command()
        told = read.settings.get("model_path") if read is not None else None
        for name in (told.value if told is not None else None, self.model):
            if isinstance(name, str) and name:
                folder = Path(name).expanduser()
                if (folder / "config.json").is_file():
                    return folder
        return None

    def request(self, ask: Ask) -> tuple[str, dict[str, Any]]:
        """As the protocol has it; log-probabilities are given in whole answers only, and asked for by a switch and a number on both endpoints."""
        path, body = super().request(ask)
        if ask.logprobs:
            body |= {"logprobs": True, "top_logprobs": min(MOST_LOGPROBS, ask.logprobs), "stream": False}
            body.pop("stream_options")
        return path, body

    def complete(self, ask: Ask) -> Completion:
        """Send one completion; the first one confirms what this server is."""
        path, body = self.request(ask)
        reading, total_s = self.read(ask, path, body)
        if reading.error is None and reading.fingerprint is not None:
            self.fingerprint = reading.fingerprint
            self.confirmed = bool(_FINGERPRINT.match(reading.fingerprint))
        elif reading.error is None and reading.ended and self.confirmed is None:
            self.confirmed = False
        return reading.result(total_s)


def read_config(folder: Path) -> dict[str, Any]:
    """Read a model folder's ``config.json``; an empty object where it is none, or too large to be one."""
    try:
        with (folder / "config.json").open("rb") as file:
            data = file.read(MOST_CONFIG_BYTES + 1)
        return object_of(json.loads(data)) if len(data) <= MOST_CONFIG_BYTES else {}
    except (OSError, ValueError, RecursionError):
        return {}


def trained_window(config: dict[str, Any]) -> int | None:
    """Give the trained length that a ``config.json`` names, in it or in its text part."""
    for holder in (config, object_of(config.get("text_config"))):
        told = count(holder.get("max_position_embeddings"))
        if told:
            return told
    return None


def _quantization(config: dict[str, Any]) -> str | None:
    told = object_of(config.get("quantization"))
    bits = count(told.get("bits"))
    return f"{bits}-bit, groups of {count(told.get('group_size'))}" if bits else None

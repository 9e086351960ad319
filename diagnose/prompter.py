"""How one question is put to a person: with arrow keys where the terminal can, as numbered lines everywhere else. All of it on stderr.

A prompter knows nothing of the questionnaire: it shows a :class:`Screen` and gives what was typed or chosen, or one of the ways out.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import IO, Any, Literal, Protocol

from probes.evidence.words import Words, words


class Way(Enum):
    """What a person may do instead of answering."""

    BACK = "back"
    HELP = "help"
    DO_NOT_KNOW = "do-not-know"
    STOP = "stop"


Given = str | tuple[str, ...] | Way
"""One id, several ids, what was typed, or a way out."""


@dataclass(frozen=True, slots=True)
class Screen:
    """One question as it is shown. ``chosen``: ids (or the text) that stand there already, taken by Enter where there are any."""

    title: str
    why: str = ""
    kind: Literal["one", "several", "line", "lines"] = "one"
    options: tuple[tuple[str, str], ...] = ()
    hint: str = ""
    chosen: tuple[str, ...] = ()
    back: bool = False
    help: bool = True
    do_not_know: bool = True
    stop: bool = False


class Prompter(Protocol):
    """Puts screens to a person."""

    def ask(self, screen: Screen) -> Given:
        """Show a screen and wait. KeyboardInterrupt where the person leaves (Ctrl-C, or the input ends)."""

    def tell(self, text: str) -> None:
        """Show lines."""


def ways_of(screen: Screen) -> list[tuple[str, Way, Words]]:
    """Give the ways out of a screen: the key that is typed, what it means, and the words for it."""
    ways = []
    if screen.do_not_know:
        ways.append(("?", Way.DO_NOT_KNOW, words("I don't know")))
    if screen.back:
        ways.append(("b", Way.BACK, words("Back to the question before")))
    if screen.help:
        ways.append(("h", Way.HELP, words("Help")))
    if screen.stop:
        ways.append(("s", Way.STOP, words("Stop asking")))
    return ways


def keys_of(screen: Screen) -> str:
    """Give the keys of the ways out, in a few words."""
    short = {
        Way.DO_NOT_KNOW: words("I don't know"),
        Way.BACK: words("back"),
        Way.HELP: words("help"),
        Way.STOP: words("stop asking"),
    }
    return ", ".join(f"{key} = {short[way]}" for key, way, _ in ways_of(screen))


def fitted(text: str, columns: int | None) -> str:
    """Break lines between words at a terminal's width, each with its own indent; as they are where there is no width."""
    if not columns or columns < _NARROWEST:
        return text
    from reports.terminal import wrap  # noqa: PLC0415 - reports are only needed at the end

    out = []
    for line in text.split("\n"):
        lead = line[: len(line) - len(line.lstrip())]
        out += [lead + piece for piece in wrap(line, columns - 1 - len(lead))] or [line]
    return "\n".join(out)


_NARROWEST = 30


def _clipped(text: str, columns: int) -> str:
    """Cut a line that is wider than its room, in its middle: names end in what tells them apart."""
    from reports.escape import width  # noqa: PLC0415 - reports are only needed at the end

    if width(text) <= columns or columns < _NARROWEST:
        return text
    half = (columns - 1) // 2
    head = next(text[:end] for end in range(len(text), -1, -1) if width(text[:end]) <= columns - 1 - half)
    tail = next(text[start:] for start in range(len(text) + 1) if width(text[start:]) <= half)
    return f"{head}…{tail}"


def columns_of(sink: IO[str]) -> int | None:
    """Give the width of the terminal behind a stream; None where there is none."""
    try:
        return os.get_terminal_size(sink.fileno()).columns if sink.isatty() else None
    except (OSError, ValueError, AttributeError):
        return None


class Plain:
    """Numbered lines: for dumb terminals, pipes, screen readers, and wherever cursor keys cannot be trusted."""

    def __init__(self, source: IO[str] | None = None, sink: IO[str] | None = None) -> None:
        self._source = source
        self._sink = sink

    def tell(self, text: str) -> None:
        """Show lines."""
        sink = self._sink or sys.stderr
        text = fitted(text, columns_of(sink))
        try:
            sink.write(text + "\n")
        except UnicodeEncodeError:
            encoding = getattr(sink, "encoding", None) or "ascii"
            sink.write(text.encode(encoding, "replace").decode(encoding) + "\n")
        sink.flush()

    def ask(self, screen: Screen) -> Given:
        """Show a screen and read one answer; what cannot be understood is asked again. KeyboardInterrupt where the input ends."""
        self._show(screen)
        while True:
            line = self._line()
            typed = line.strip()
            way = next((way for key, way, _ in ways_of(screen) if typed.lower() == key), None)
            if way is not None:
                return way
            if screen.kind == "lines":
                return self._lines(line) if typed else self._nothing(screen)
            if not typed:
                return self._nothing(screen)
            if screen.kind == "line":
                return typed
            given = self._picked(screen, typed)
            if given is not None:
                return given
            self.tell(str(words("Please type one of the numbers above.")))

    def _show(self, screen: Screen) -> None:
        lines = ["", screen.title]
        if screen.why:
            lines.append(f"  {screen.why}")
        for number, (name, text) in enumerate(screen.options, start=1):
            mark = "*" if name in screen.chosen else " "
            lines.append(f" {mark}{number:>2}) {text}")
        lines += [f"   {key}) {text}" for key, _, text in ways_of(screen)]
        if screen.kind == "lines":
            lines.append(str(words("Paste the lines, then type a single dot (.) on a line of its own.")))
        elif screen.hint:
            lines.append(screen.hint)
        if screen.kind == "several":
            lines.append(str(words("Several numbers may be given, with commas or spaces between them.")))
        if screen.chosen:
            lines.append(str(words("Enter alone takes: {answer}", answer=", ".join(_named(screen)))))
        elif screen.do_not_know:
            lines.append(str(words("Enter alone means: I don't know.")))
        self.tell("\n".join(lines))

    def _line(self) -> str:
        sink = self._sink or sys.stderr
        sink.write("> ")
        sink.flush()
        line = (self._source or sys.stdin).readline()
        if not line:
            raise KeyboardInterrupt
        return line

    def _lines(self, first: str) -> str:
        lines = [first.rstrip("\r\n")]
        if lines == ["."]:
            return ""
        while True:
            line = (self._source or sys.stdin).readline()
            if not line or line.strip() == ".":
                return "\n".join(lines)
            lines.append(line.rstrip("\r\n"))

    @staticmethod
    def _nothing(screen: Screen) -> Given:
        if screen.chosen:
            return screen.chosen if screen.kind == "several" else screen.chosen[0]
        return Way.DO_NOT_KNOW if screen.do_not_know else ""

    @staticmethod
    def _picked(screen: Screen, typed: str) -> Given | None:
        parts = typed.replace(",", " ").split()
        ids = [name for name, _ in screen.options]
        picked = []
        for part in parts:
            if part.isascii() and part.isdigit() and 1 <= int(part) <= len(ids):
                picked.append(ids[int(part) - 1])
            elif part.lower() in ids:
                picked.append(part.lower())
            else:
                return None
        if screen.kind == "several":
            return tuple(dict.fromkeys(picked))
        return picked[0] if len(picked) == 1 else None


def _named(screen: Screen) -> list[str]:
    texts = dict(screen.options)
    return [texts.get(name, name) for name in screen.chosen]


class Keys:
    """Arrow keys, through questionary. What it cannot do on this terminal raises, and :func:`prompter` takes numbered lines instead."""

    def __init__(self, source: Any = None, sink: Any = None) -> None:
        from prompt_toolkit.input import create_input  # noqa: PLC0415 - only in a terminal that can do it
        from prompt_toolkit.output import create_output  # noqa: PLC0415

        self._input = source or create_input(sys.stdin)
        self._output = sink or create_output(stdout=sys.stderr)

    def tell(self, text: str) -> None:
        """Show lines."""
        sys.stderr.write(fitted(text, columns_of(sys.stderr)) + "\n")
        sys.stderr.flush()

    def ask(self, screen: Screen) -> Given:
        """Show a screen and wait. KeyboardInterrupt on Ctrl-C."""
        if screen.why:
            self.tell(f"  {screen.why}")
        if screen.kind in {"line", "lines"}:
            return self._typed(screen)
        return self._several(screen) if screen.kind == "several" else self._one(screen)

    def _one(self, screen: Screen) -> Given:
        import questionary  # noqa: PLC0415 - only where it is used

        # A line that does not fit is cut by the terminal, without a sign of it.
        room = (columns_of(sys.stderr) or 1_000) - 4
        choices: list[Any] = [questionary.Choice(_clipped(text, room), value=name) for name, text in screen.options]
        ways = ways_of(screen)
        if ways:
            choices.append(questionary.Separator())
        choices += [questionary.Choice(f"{text} [{key}]", value=way) for key, way, text in ways]
        default = screen.chosen[0] if screen.chosen else None
        asked = questionary.select(
            screen.title,
            choices,
            default=default,
            instruction=str(words("(arrow keys and Enter)")),
            use_jk_keys=False,
            input=self._input,
            output=self._output,
        )
        return self._answered(asked, screen)  # type: ignore[no-any-return]

    def _several(self, screen: Screen) -> Given:
        import questionary  # noqa: PLC0415 - only where it is used

        room = (columns_of(sys.stderr) or 1_000) - 6
        choices = [
            questionary.Choice(_clipped(text, room), value=name, checked=name in screen.chosen)
            for name, text in screen.options
        ]
        keys = keys_of(screen)
        asked = questionary.checkbox(
            screen.title,
            choices,
            instruction=str(words("(space marks, Enter goes on; {keys})", keys=keys)),
            use_jk_keys=False,
            input=self._input,
            output=self._output,
        )
        given = self._answered(asked, screen)
        if isinstance(given, Way):
            return given
        return tuple(given) or Way.DO_NOT_KNOW

    def _answered(self, asked: Any, screen: Screen) -> Any:
        """Wait for an answer; the letters of the ways out work as keys too."""
        from prompt_toolkit.key_binding import KeyBindings, merge_key_bindings  # noqa: PLC0415

        bindings = KeyBindings()
        for key, way, _text in ways_of(screen):

            def leave(event: Any, way: Way = way) -> None:
                event.app.exit(result=way)

            bindings.add(key, eager=True)(leave)

        def interrupt(event: Any) -> None:
            event.app.exit(exception=KeyboardInterrupt)

        # the key arrives as a character, but a signal from elsewhere as this; a choice ignores it by default
        bindings.add("<sigint>", eager=True)(interrupt)
        asked.application.key_bindings = merge_key_bindings([asked.application.key_bindings, bindings])
        return asked.unsafe_ask()

    def _typed(self, screen: Screen) -> Given:
        import questionary  # noqa: PLC0415 - only where it is used

        keys = keys_of(screen)
        hint = f"{screen.hint}; " if screen.hint else ""
        if screen.kind == "lines":
            hint += str(words("Escape, then Enter ends it")) + "; "
        text = questionary.text(
            screen.title,
            default=screen.chosen[0] if screen.chosen else "",
            multiline=screen.kind == "lines",
            instruction=f"({hint}{keys})",
            input=self._input,
            output=self._output,
            **({"key_bindings": _typed_anew(screen.chosen[0])} if screen.kind == "line" and screen.chosen else {}),
        ).unsafe_ask()
        typed = str(text).strip()
        way = next((way for key, way, _ in ways_of(screen) if typed.lower() == key), None)
        if way is not None:
            return way
        return typed or (Way.DO_NOT_KNOW if screen.do_not_know else "")


def _typed_anew(stands_there: str) -> Any:
    """Give keys by which typing or pasting replaces the text that stands there, as in a form whose field is marked.

    A person who types another number behind it means that number alone; one who moves the cursor or deletes first edits it.
    """
    from prompt_toolkit.application import get_app  # noqa: PLC0415 - only in a terminal that can do it
    from prompt_toolkit.filters import Condition  # noqa: PLC0415
    from prompt_toolkit.key_binding import KeyBindings  # noqa: PLC0415
    from prompt_toolkit.keys import Keys as Key  # noqa: PLC0415

    bindings = KeyBindings()
    untouched = Condition(
        lambda: (
            get_app().current_buffer.text == stands_there
            and get_app().current_buffer.cursor_position == len(stands_there)
        )
    )

    @bindings.add(Key.Any, filter=untouched)
    @bindings.add(Key.BracketedPaste, filter=untouched)
    def replace(event: Any) -> None:
        event.current_buffer.text = ""
        event.current_buffer.insert_text(event.data)

    return bindings


def can_move() -> bool:
    """Say whether the terminal can be trusted with cursor keys. Numbered lines are the safe choice."""
    if os.environ.get("CTXDOCTOR_PLAIN") or os.environ.get("TERM", "") in {"dumb", "unknown", "emacs"}:
        return False
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    if os.name == "nt":
        # the old console window says nothing about itself; newer terminals do
        return any(os.environ.get(name) for name in ("WT_SESSION", "ConEmuANSI", "ANSICON", "TERM"))
    return bool(os.environ.get("TERM"))


def prompter(make: Sequence[Callable[[], Prompter]] | None = None) -> Prompter:
    """Give the best prompter that this terminal can do."""
    for one in make if make is not None else ((Keys,) if can_move() else ()):
        try:
            return one()
        except Exception:  # noqa: S112 - whatever a terminal cannot do, numbered lines can
            continue
    return Plain()

"""Every sentence of a report can be translated: it stands in a call that a message catalogue is made from."""

from __future__ import annotations

import io
import re
from pathlib import Path

from jinja2.ext import babel_extract

from reports.render import TEMPLATES


def test_every_sentence_of_the_templates_is_found_for_a_catalogue() -> None:
    for path in sorted(Path(TEMPLATES).glob("*.j2")):
        text = path.read_text(encoding="utf-8")
        found = {
            message
            for _, _, message, _ in babel_extract(
                io.BytesIO(text.encode()), ("words",), (), {"trim_blocks": "1", "lstrip_blocks": "1"}
            )
        }
        names = {m if isinstance(m, str) else m[0] for m in found}
        assert len(names) == len(set(re.findall(r'words\("([^"]*)"', text)))


def test_no_words_stand_in_a_template_outside_of_a_message() -> None:
    for path in sorted(Path(TEMPLATES).glob("*.j2")):
        text = path.read_text(encoding="utf-8")
        bare = re.sub(r"\{\{.*?\}\}|\{%.*?%\}", "", text)
        bare = re.sub(r"</?(?:details|summary)>", "", bare)
        assert re.findall(r"[A-Za-z]{2,}", bare) == []

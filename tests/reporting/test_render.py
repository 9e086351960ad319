"""What a report says, in each of its forms."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from diagnose.plan import MINUTES
from probes.evidence.errors import InputError
from probes.evidence.records import Evidence
from probes.evidence.words import use_translation
from reports.check import LONGEST_HTML, LONGEST_MARKDOWN, check, check_html, parser
from reports.compose import PROBES, build, departure, verdict_words, window_statement
from reports.document import CaseDocument
from reports.escape import width
from reports.forms import FORMS, form_for
from reports.plots import mermaid, sparkline
from reports.redact import Redactor
from reports.render import FORMATS, render
from tests.reporting.samples import AT, SAMPLES, bare, healthy, spill, wide

GOLDEN = Path(__file__).parents[1] / "golden" / "reports"
WHOLE = [
    *((name, "md", None, f"{name}.md") for name in ("spill", "healthy", "bare")),
    ("spill", "html", None, "spill.html"),
    *((name, "terminal", None, f"{name}.txt") for name in ("spill", "bare")),
    *(("spill", "bug-report", target, f"spill-for-{target}.md") for target in FORMS),
    ("bare", "bug-report", "ollama", "bare-for-ollama.md"),
]


def drawn(name: str, format_: str, target: str | None = None) -> str:
    return render(SAMPLES[name](), format_, target=target, redactor=Redactor(local=False))  # type: ignore[arg-type]


@pytest.mark.parametrize(("name", "format_", "target", "file"), WHOLE, ids=[w[3] for w in WHOLE])
def test_whole_reports_are_as_they_were_read(
    name: str, format_: str, target: str | None, file: str, update_golden: bool
) -> None:
    report = drawn(name, format_, target)
    path = GOLDEN / file
    if update_golden:
        path.write_text(report, encoding="utf-8")
    assert report == path.read_text(encoding="utf-8")


def test_the_first_screen_holds_verdict_window_and_next_test() -> None:
    first = drawn("spill", "md").split("<details>")[0]
    assert len(first.splitlines()) <= 40
    assert first.startswith(
        "## Named cause: the driver moves video memory to shared system memory (`vram-spill-shared-memory`)\n"
    )
    assert "passed 65,536 input tokens three times in a row with the required speed and recall." in first
    assert "Change `cache_type` from `f16` to `q8_0`, and nothing else." in first
    for part in ("Keep still:", "Expect, if it is", "Cost:", "To undo:", "```sh\nllama-server -m "):
        assert part in first


def test_the_lines_that_show_the_cause_stand_beside_the_verdict() -> None:
    """At most two, of the first cause alone, cut to a line; hostile ones stay text."""
    whole = spill().model_dump(mode="json", by_alias=True)
    line = {"log": "a.log", "worth": 5, "cause": "vram-spill-shared-memory"}
    whole["log_lines"] = [
        {**line, "text": "first", "line": 3},
        {**line, "text": "another's", "line": 4, "cause": "depth-cost"},
        {**line, "text": "<img src=x> @somebody #1 " + "long " * 99, "line": 5, "worth": 6, "is_error": True},
        {**line, "text": "third", "line": 6, "worth": 1},
        {**line, "text": "nobody's", "line": 7, "cause": None},
    ]
    report = render(CaseDocument.model_validate(whole), redactor=Redactor(local=False))
    head = report.partition("### Verified window")[0]
    assert "- Shown by `a.log:3`: `first`" in head
    assert "`a.log:5`: `<img src=x>" in head
    assert not re.search("third|another's|nobody's", head)
    assert max(map(len, head.splitlines())) < 260
    assert check(report) == ()


def test_the_baseline_has_its_eight_areas() -> None:
    every = ["Model", "Backend", "Context", "KV cache", "Hardware", "Placement", "Runtime", "Result"]
    rows = [line.split("|")[1].strip() for line in drawn("spill", "md").splitlines() if line.startswith("| ")]
    assert [row for row in rows if row in every] == every
    # What nobody looked at takes no rows: it is named, area by area, in one line for each reason.
    report = drawn("bare", "md")
    lacking = next(line for line in report.splitlines() if line.startswith("- Not looked at: "))
    assert all(f"{area}: " in lacking or f"| {area} " in report for area in every)
    assert not re.search(r"\| unknown +\|", report)


def test_a_report_is_as_long_as_its_evidence() -> None:
    short = drawn("bare", "md")
    assert len(short.splitlines()) <= 100
    assert "| Does it fit?" not in short
    assert "Nothing was sent to a server." in short
    assert short.count("cudaMalloc failed: out of memory") == 2  # in the baseline and in the log, not a third time


def test_a_fact_is_told_by_its_words_and_its_id_stays_in_the_json() -> None:
    whole = spill().model_dump(mode="json", by_alias=True)
    fact = whole["verdict"]["causes"][0]["clues"][0]["facts"][0]
    fact["words"] = "The length at which generation falls"
    document = CaseDocument.model_validate(whole)
    report = render(document, redactor=Redactor(local=False))
    assert "The length at which generation falls = 73,728 tokens (measured)" in report
    assert fact["id"] not in report
    assert fact["id"] in render(document, "json")


def test_a_question_is_asked_in_words_with_its_choices() -> None:
    whole = bare().model_dump(mode="json", by_alias=True)
    whole["next_test"] = {
        "kind": "answer",
        "variable": "backend",
        "cost": {"minutes": 0.3},
        "reason": "It can still decide about a-cause, by a.fact.",
        "question": "Which server program runs the model?",
        "choices": [{"id": "ollama", "words": "Ollama"}],
        "decides": ["The prompt is cut to a default window"],
        "tells": ["Name of the server"],
    }
    first = render(CaseDocument.model_validate(whole)).split("<details>")[0]
    assert "Answer a question: Which server program runs the model?" in first
    assert "`ollama` (Ollama)" in first
    assert "It can still decide about: The prompt is cut to a default window" in first
    assert "a.fact" not in first


def test_what_is_not_known_says_why() -> None:
    report = drawn("bare", "md")
    assert "Unknown (no NVIDIA driver): Hardware: Device" in report
    assert re.search(r"Unknown \(the server did not start\): .*First failing length", report)


def test_a_clue_that_does_not_hold_is_not_told_as_if_it_did() -> None:
    assert "no: An allocation failed" in drawn("spill", "md")


def test_each_chart_has_a_text_form_beside_it() -> None:
    tokens = [t for t in parser().parse(drawn("spill", "md")) if t.type == "fence"]
    drawings = [i for i, t in enumerate(tokens) if t.info == "mermaid"]
    assert len(drawings) == 5
    assert all(tokens[i + 1].info == "text chart" for i in drawings)


@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.parametrize("format_", FORMATS)
def test_every_form_of_every_case_is_drawn_within_its_bounds(name: str, format_: str) -> None:
    report = drawn(name, format_, "llama.cpp")
    if format_ in {"md", "bug-report"}:
        assert check(report) == ()
        assert len(report) <= LONGEST_MARKDOWN
    if format_ == "html":
        assert check_html(report) == ()
        assert len(report.encode()) <= LONGEST_HTML


def test_json_is_the_document() -> None:
    data = json.loads(drawn("spill", "json"))
    assert CaseDocument.model_validate(data).next_test is not None
    assert data["next_test"]["from"] == "f16"
    assert json.loads(render(spill(), "json", redact=False)) == json.loads(spill().to_json())


def test_an_unknown_form_or_project_is_refused_in_one_line() -> None:
    with pytest.raises(InputError, match="unknown format"):
        render(spill(), "pdf")  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"choose --for llama\.cpp, ollama"):
        render(spill(), "bug-report", target="emacs")


@pytest.mark.parametrize(
    ("name", "id_"),
    [
        ("llama-server", "llama.cpp"),
        ("mlx_lm", "mlx-lm"),
        ("LM-Studio", "lm-studio"),
        ("oobabooga", "text-generation-webui"),
    ],
)
def test_a_form_is_found_by_the_servers_name(name: str, id_: str) -> None:
    assert form_for(name).id == id_


@pytest.mark.parametrize(("sent", "is_fault"), [(140_000, False), (60_000, True)])
def test_a_refusal_above_every_window_is_what_a_probe_asked_for_and_no_error(sent: int, is_fault: bool) -> None:
    whole = healthy().model_dump(mode="json", by_alias=True)
    said = f"request ({sent} tokens) exceeds the available context size"
    longest = max(whole["subject"]["window"][name] or 0 for name in ("asked", "in_force", "per_slot"))
    assert 60_000 < longest < 140_000
    whole["evidence"] = [
        Evidence(
            kind="request_error",
            source="measured",
            at=AT,
            data={"error": "exceeds-window", "status": 400, "message": said, "prompt_tokens": sent},
        ).model_dump(mode="json")
    ]
    assert (said in render(CaseDocument.model_validate(whole))) is is_fault


def test_a_bug_report_holds_what_a_maintainer_asks_for() -> None:
    report = drawn("spill", "bug-report", "llama.cpp")
    for part in (
        "llama.cpp b11549 (42b4109e)", "NVIDIA GeForce RTX 5060 Ti", "First failing input: 73,728 tokens", "Last passing input: 65,536 tokens",
        "POST /completion", "--cache-type-k f16", "this is the smallest that failed", "What was looked at and set aside", "llama_kv_cache: size = 8192.00 MiB",
    ):  # fmt: skip
        assert part in report


@pytest.mark.parametrize("target", FORMS)
def test_the_smallest_failing_request_is_a_command_that_makes_it(target: str) -> None:
    report = drawn("spill", "bug-report", target)
    (line,) = [one for one in report.splitlines() if one.startswith("python3 -c ")]
    words_of = shlex.split(line)
    assert words_of[:2] == ["python3", "-c"]
    made = subprocess.run([sys.executable, "-c", words_of[2]], capture_output=True, text=True, check=True).stdout
    body = json.loads(made)
    prompt = body.get("prompt", body.get("input_ids"))
    assert (len(prompt) if isinstance(prompt, list) else len(prompt.split())) == 73728
    assert "256" in made[-200:] or "256" in made[:200]  # the reserve for the answer is part of what fails
    assert words_of[words_of.index("curl") + 2].startswith("http://127.0.0.1:")


def test_a_model_with_any_name_does_not_break_out_of_the_command() -> None:
    whole = spill().model_dump(mode="json", by_alias=True)
    whole["subject"]["model"]["name"] = 'a\'; rm -rf ~; echo "$(id)" `id` \\'
    report = render(CaseDocument.model_validate(whole), "bug-report", target="vllm", redact=False)
    (line,) = [one for one in report.splitlines() if one.startswith("python3 -c ")]
    program = shlex.split(line)[2]
    made = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert json.loads(made)["model"] == whole["subject"]["model"]["name"]
    assert shlex.split(line)[3:6] == ["|", "curl", "-sS"]


# Length --------------------------------------------------------------------------------------------------------------


def huge() -> CaseDocument:
    whole = wide(200, 8).model_dump(mode="json", by_alias=True)
    cause = whole["verdict"]["causes"][0]
    cause["clues"] = [{**cause["clues"][0], "words": f"Clue number {i} of many " * 20} for i in range(60)]
    whole["verdict"]["causes"] = [{**cause, "id": f"cause-{i}", "words": f"cause number {i} " * 20} for i in range(50)]
    whole["log_lines"] = [
        {"text": f"line {i} " * 60, "log": "a.log", "line": i, "worth": i % 10, "is_error": i == 777}
        for i in range(2_000)
    ]
    whole["unknown"] = {f"path.{i}": {"why": "failed", "note": "because " * 30} for i in range(400)}
    whole["notes"] = ["note " * 300] * 100
    whole["changes"] = [
        {"run": i, "variables": [{"name": f"v{i}", "before": "x" * 400, "after": "y" * 400}], "conclusion": "z " * 900}
        for i in range(150)
    ]
    return CaseDocument.model_validate(whole)


def test_a_huge_case_is_cut_by_worth_and_says_what_was_cut() -> None:
    report = render(huge(), redactor=Redactor(local=False))
    assert len(report) <= LONGEST_MARKDOWN
    assert check(report) == ()
    assert re.search(r"Cut for length. Log lines: \d+ of 2000 shown", report)
    assert "Cut for length. Causes:" in report
    assert "777  line 777" in report
    assert "### Next test" in report
    page = render(huge(), "html", redactor=Redactor(local=False))
    assert check_html(page) == ()


def test_nothing_is_said_to_be_cut_where_nothing_was() -> None:
    assert "Cut for length" not in drawn("spill", "md")


# Sentences -----------------------------------------------------------------------------------------------------------


def changed(make: object, **window: object) -> CaseDocument:
    document = make()  # type: ignore[operator]
    return CaseDocument.model_validate({**document.model_dump(by_alias=True), "window": window})


@pytest.mark.parametrize(
    ("window", "said"),
    [
        (
            {
                "verified_input_tokens": 8192,
                "fits": {"tokens": 8192, "ok": True},
                "fast_enough": {"tokens": 8192, "ok": True},
                "recalls": {},
            },
            "recall is unknown",
        ),
        ({"verified_input_tokens": 8192, "recalls": {"tokens": 8192, "ok": True}}, "no speed was required"),
        ({"verified_input_tokens": 8192}, "accepted 8,192 input tokens"),
        (
            {"fits": {"tokens": 8192}},
            "No length met every criterion. It fits up to 8,192 tokens, is fast enough up to unknown",
        ),
        ({}, "No length met every criterion."),
    ],
)
def test_the_window_statement_claims_only_what_was_measured(window: dict[str, object], said: str) -> None:
    statement = window_statement(changed(spill, **window)).english
    assert said in statement
    assert ("required speed and recall" in statement) is False


def test_no_window_is_claimed_without_a_measurement() -> None:
    assert window_statement(bare()).english == "No window was measured."


def test_a_confirmed_cause_is_said_to_be_confirmed() -> None:
    whole = spill().model_dump(by_alias=True)
    whole["verdict"]["confirmed"] = ("vram-spill-shared-memory",)
    said, good = verdict_words(CaseDocument.model_validate(whole))
    assert said[0].english.startswith("Confirmed by a re-run with one change: the driver moves")
    assert good is False


def test_healthy_is_good_news_and_abstaining_is_neither() -> None:
    assert verdict_words(healthy())[1] is True
    said, good = verdict_words(bare())
    assert good is None
    assert [str(s) for s in said][1].startswith("Why: Two causes explain")


# Curves --------------------------------------------------------------------------------------------------------------


def test_a_curve_that_only_depth_bends_has_no_step() -> None:
    x = (8192, 16384, 32768, 65536, 131072)
    mark = departure(x, tuple(1 / (0.01 + n * 2e-7) for n in x))
    assert mark is not None
    assert mark.shape == "slope"


def test_a_fall_beyond_the_trend_is_a_step_where_it_falls() -> None:
    x = (8192, 16384, 32768, 65536, 131072)
    mark = departure(x, (50.0, 49.0, 47.0, 20.0, 18.0))
    assert mark is not None
    assert (mark.shape, mark.after) == ("step", 3)


def test_two_points_and_an_even_speed_say_no_step() -> None:
    assert departure((1, 2), (5.0, 1.0)) is None
    assert departure((1, 2, 3, 4), (5.0, None, 5.0, 5.1)).shape == "flat"  # type: ignore[union-attr]


def test_mermaid_leaves_lengths_without_a_value_out() -> None:
    whole = spill().model_dump(by_alias=True)
    whole["rungs"] = [
        {**r, "generation_tps": None if r["input_tokens"] == 98304 else r["generation_tps"]} for r in whole["rungs"]
    ]
    chart = next(c for c in build(CaseDocument.model_validate(whole)).charts if c.id == "generation")
    assert '"96K"' not in str(mermaid(chart))
    assert '"126K"' in str(mermaid(chart))


def test_mermaid_names_no_more_lengths_than_its_axis_can_hold_and_keeps_both_ends_and_the_step() -> None:
    charts = {c.id: c for c in build(wide(60, 4)).charts}
    for chart in charts.values():
        drawing = str(mermaid(chart))
        ticks = re.findall(r'"([0-9.]+[Kk]?)"', drawing.split("x-axis")[1].split("\n", maxsplit=1)[0])
        assert len(ticks) <= 12
        assert (ticks[0], ticks[-1]) == ("2K", "120K")
        assert drawing.count("#") == drawing.count("line [")  # each line has a colour that is seen on both grounds
    mark = charts["generation"].mark
    assert mark is not None
    assert mark.shape == "step"
    assert f'"{charts["generation"].x[mark.after] // 1024}K"' in str(mermaid(charts["generation"]))


def test_a_recall_map_of_many_lengths_keeps_the_longest() -> None:
    document = wide(60, 1)
    heat = build(document).heat
    assert heat is not None
    assert heat.lengths[-1] == max(r.input_tokens for r in document.rungs)
    assert len(heat.lengths) <= 24


def test_a_sparkline_has_one_sign_for_each_value() -> None:
    assert sparkline([0, 5, None, 10]) == "▁▅ █"
    assert sparkline([0, 0]) == "▁▁"


def test_the_page_draws_the_step_the_devices_size_and_the_recall_of_each_depth() -> None:
    page = drawn("spill", "html")
    assert page.count('<rect class="mark"') == 2
    assert page.count('<line class="limit') == 3
    assert page.count('<line class="edge"') == 2
    assert page.count('<g class="heat') == 54
    assert "prefers-color-scheme:dark" in page
    assert "@media print" in page


# Terminal and languages ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SAMPLES)
def test_the_terminal_keeps_to_its_width_but_for_what_is_copied(name: str) -> None:
    document = SAMPLES[name]()
    text = render(document, "terminal", redact=False)
    command = document.next_test.command if document.next_test else None
    for line in text.splitlines():
        assert width(line) <= 80 or line == command, line
    if command:
        assert command in text.splitlines()


def test_a_report_is_english_unless_another_language_is_asked_for() -> None:
    use_translation(lambda text: {"Next test": "다음 시험", "three times in a row": "세 번 연속"}.get(text, text))
    try:
        assert "### Next test" in render(spill())
        korean = render(spill(), lang="ko")
        assert "### 다음 시험" in korean
        assert "세 번 연속" in korean
        assert check(korean) == ()
    finally:
        use_translation(None)


def test_a_sentence_of_the_document_is_told_in_the_readers_language_with_its_values() -> None:
    whole = spill().model_dump(mode="json", by_alias=True)
    whole["notes"] = ["2 of 3 passed"]
    whole["messages"] = [{"english": "2 of 3 passed", "text": "{n} of {all} passed", "values": {"n": 2, "all": 3}}]
    document = CaseDocument.model_validate(whole)
    assert "3번 중 2번 통과" in render(
        document, lang="ko", translate=lambda text: {"{n} of {all} passed": "{all}번 중 {n}번 통과"}.get(text, text)
    )
    assert "2 of 3 passed" in render(document)


def test_words_of_a_document_never_choose_a_format() -> None:
    whole = spill().model_dump(mode="json", by_alias=True)
    whole["notes"] = ["x"]
    whole["messages"] = [{"english": "x", "text": "{a.__class__} {a:>999999999} {b}", "values": {"a": "v"}}]
    report = render(CaseDocument.model_validate(whole), lang="ko", translate=lambda text: text + " ")
    assert "__class__" in report
    assert len(report) < LONGEST_MARKDOWN


def _unmeasured(**changes: object) -> CaseDocument:
    """A log of a load that failed, of which no symptom was told."""
    whole = bare().model_dump(mode="json", by_alias=True)
    whole["case"]["symptom"] = None
    whole["subject"]["backend"] = {"name": "llama.cpp", "version": "b6123", "build": "6123 (79c1160b)"}
    whole["subject"]["model"] = {}
    whole["subject"]["window"] = {"in_force": 65_536}
    whole["window"]["in_force"] = 65_536
    whole["subject"]["hardware"]["devices"] = [{"id": "0", "name": "A card", "free_bytes": 2**30}]
    failed = "common_init_from_params: failed to create context with model 'models/some-7b.gguf'"
    whole["log_lines"].append({"text": failed, "log": "a.log", "line": 90, "worth": 9, "is_error": True})
    return CaseDocument.model_validate(whole | changes)


def _form(document: CaseDocument, target: str) -> str:
    return render(document, "bug-report", target=target, redactor=Redactor(local=False))


def test_a_form_of_what_was_not_measured_claims_no_measurement() -> None:
    """Each sentence only where it is true: nothing was sent, and the server never came up."""
    form = _form(_unmeasured(), "llama.cpp")
    assert "Eval bug: out of memory while the model is loaded" in form
    assert "Nothing was measured" in form
    assert "the server starts with a window of 65,536 tokens" in form
    assert "`llama.cpp 6123 (79c1160b)`" in form
    assert "some-7b.gguf" in form.partition("### Models")[2].partition("###")[0]
    for untrue in ("Pass criteria", "Measured by", "measurements", "settings below", "accepted and used", "memory unknown", "long context fails"):  # fmt: skip
        assert untrue not in form, untrue
    measured = drawn("spill", "bug-report", "llama.cpp")
    assert "Pass criteria were fixed before the first length" in measured
    assert "What the measurements point to" in measured


def test_a_form_of_another_project_says_that_the_case_is_not_of_it() -> None:
    form = _form(_unmeasured(), "ollama")
    version = form.partition("### Ollama version")[2].partition("###")[0]
    assert version.strip().startswith("unknown")
    assert "Attention: this form is for `Ollama`" in form
    assert "Attention" not in _form(_unmeasured(), "llama.cpp")


def test_a_question_costs_no_tokens_and_a_ratio_is_rounded() -> None:
    whole = spill().model_dump(mode="json", by_alias=True)
    whole["next_test"] = {"kind": "answer", "variable": "a", "question": "Why?", "cost": {"minutes": 0.3, "quality": "none"}}  # fmt: skip
    for value, said in ((0.581709956725201, "58 %"), (1.7391, "1.74 ×")):
        fact = whole["verdict"]["causes"][0]["clues"][0]["facts"][0]
        fact |= {"found": value, "unit": "ratio", "found_words": [], "why_unknown": None}
        report = render(CaseDocument.model_validate(whole), redactor=Redactor(local=False))
        assert "minutes: 0.3; no tokens" in report
        assert said in report
        assert str(value) not in report


def test_causes_that_nothing_speaks_for_are_counted_not_listed() -> None:
    whole = bare().model_dump(mode="json", by_alias=True)
    whole["verdict"]["set_aside"] = [{"id": f"cause-{n}", "band": "unlikely", "words": f"Cause {n}"} for n in range(30)]
    report = render(CaseDocument.model_validate(whole), redactor=Redactor(local=False))
    assert "Causes that did not apply: 30." in report
    assert "cause-7" not in report


@pytest.mark.parametrize(("stopped", "more"), [("budget", True), ("verified", False), (None, False)])
def test_nothing_is_left_is_not_said_where_more_time_would_tell_more(stopped: str | None, more: bool) -> None:
    """Law: a report never says that nothing is left to try where its own measuring was cut off by the budget."""
    data = json.loads(spill().to_json())
    data["next_test"] = None
    data["ladder"] = {**(data["ladder"] or {}), "stopped": stopped}
    report = render(CaseDocument.model_validate(data), "md")
    assert ("a larger budget" in report) is more
    assert ("Nothing is left to try" in report) is not more


@pytest.mark.parametrize("probe", sorted(MINUTES))
def test_what_is_to_be_measured_is_said_in_words(probe: str) -> None:
    """Law: every probe that can be proposed has words for people."""
    whole = bare().model_dump(mode="json", by_alias=True)
    whole["next_test"] = {"kind": "probe", "variable": probe, "reason": "", "cost": {"minutes": 1}}
    report = render(CaseDocument.model_validate(whole), redactor=Redactor(local=False))
    lead = report.partition("### Next test")[2].strip().splitlines()[0]
    assert lead == f"Measure more: {PROBES[probe].english}"


def test_a_log_that_is_asked_for_is_asked_for_in_words() -> None:
    """Law: what a person is to do never stands there as an id."""
    whole = bare().model_dump(mode="json", by_alias=True)
    whole["next_test"] = {"kind": "answer", "variable": "log", "reason": "", "cost": {"minutes": 1}}
    document = CaseDocument.model_validate(whole)
    for form in ("md", "terminal"):
        drawn_ = render(document, form, redactor=Redactor(local=False))
        assert "Give the server's log, from its start to the failure" in " ".join(drawn_.split())
        assert "question" not in drawn_.partition("Next test")[2].partition("Cost")[0].lower()

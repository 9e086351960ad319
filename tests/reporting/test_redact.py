"""What is private goes, always to the same placeholder; what a reader needs stays; a log of any size takes constant memory."""

from __future__ import annotations

import io
import re
import time
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from probes.evidence.records import Evidence
from reports.document import CaseDocument, LogLine
from reports.redact import CHUNK, Redactor, redact_document
from reports.render import render
from tests.reporting.samples import AT, bare, spill
from tests.reporting.secret_shapes import MORE

# A line, what must not be in it afterwards, what must be.
SECRETS: tuple[tuple[str, list[str], list[str]], ...] = (
    ("llama-server --api-key hunter2abc -c 4096", ["hunter2abc"], ["4096", "--api-key"]),
    ("LLAMA_API_KEY=abc123def456 llama-server", ["abc123def456"], []),
    ("Authorization: Bearer sk-proj-Ab12Cd34Ef56Gh78Ij90", ["Ab12Cd34"], ["Authorization"]),
    ('{"api_key": "0123456789abcdef0123456789abcdef"}', ["0123456789abcdef"], []),
    ("HF_TOKEN=hf_AbCdEfGhIjKlMnOpQrStUvWxYz012345", ["AbCdEf"], ["HF_TOKEN"]),
    ("Your API key is: 5f2b8c9d1e3a4b6c7d8e9f0a1b2c3d4e", ["5f2b8c9d"], []),
    ("Your admin key is: 5f2b8c9d1e3a4b6c7d8e9f0a1b2c3d4e", ["5f2b8c9d"], []),
    ("password = 'p@ss w0rd!'", ["p@ss", "w0rd"], []),
    ("postgres://bob:s3cr3t@db.corp:5432/x", ["bob", "s3cr3t", "db.corp"], ["5432"]),
    ("GET /v1/models?api_key=abcdef&x=1", ["abcdef"], ["x=1"]),
    ("aws AKIAIOSFODNN7EXAMPLE wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", ["AKIAIOSF", "wJalrX", "bPxRfi"], []),
    (
        "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjEAAAA\nxyz\n-----END OPENSSH PRIVATE KEY-----\nafter",
        ["b3Blbn", "xyz"],
        ["after"],
    ),
    (
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U",
        ["eyJ", "dozj"],
        [],
    ),
    ("loading /home/alice/models/Qwen3-8B-Q4_K_M.gguf", ["alice"], ["Qwen3-8B-Q4_K_M.gguf"]),
    (r"C:\Users\John Doe\AppData\model.gguf", ["John", "Doe"], ["model.gguf"]),
    (r'"path": "C:\\Users\\jdoe\\models\\a.gguf"', ["jdoe"], ["a.gguf"]),
    ("alice@gpubox:~$ llama-server", ["alice", "gpubox"], ["llama-server"]),
    ("Oct 03 09:30:11 gpubox kernel: NVRM: Xid", ["gpubox"], ["NVRM: Xid"]),
    ("request from 192.168.1.23:54321", ["192.168.1.23"], ["54321"]),
    ("request from 203.0.113.7 and fe80::1ff:fe23:4567:890a", ["203.0.113.7", "fe80::"], []),
    ("2001:db8:85a3::8a2e:370:7334 listening", ["2001:db8"], []),
    (
        "http://127.0.0.1:8080 http://localhost:11434 0.0.0.0:80 [::1]:80",
        [],
        ["127.0.0.1:8080", "localhost:11434", "0.0.0.0:80", "[::1]:80"],
    ),
    ("GPU 0: NVIDIA GeForce RTX 4090 (UUID: GPU-8f3c1a2b-1234-5678-9abc-def012345678)", ["8f3c1a2b"], ["RTX 4090"]),
    ("Serial Number: 1324021098765", ["1324021098765"], []),
    ("mail me at john.doe+llm@example.co.uk please", ["john.doe", "example.co"], ["please"]),
    ("MAC 3c:22:fb:aa:bb:cc", ["3c:22"], []),
    ("Linux gpubox-01 6.8.0-45-generic #46-Ubuntu SMP", ["gpubox-01"], ["6.8.0-45-generic"]),
    ("uid=1000(alice) gid=1000(alice)", ["alice"], ["1000"]),
    ("USER=carol HOSTNAME=rig.lan", ["carol", "rig.lan"], []),
    (
        "Received request cmpl-1: prompt: 'Dear diary, today I was sad', params: SamplingParams(n=1)",
        ["diary"],
        ["SamplingParams(n=1)"],
    ),
    ('{"messages":[{"role":"user","content":"my secret plan is to go"}]}', ["plan"], ["role"]),
    ("cookie: sessionid=abcd1234; theme=dark", ["abcd1234"], []),
    (
        "xoxb-123456789012-abcdefGHIJ glpat-abcdEFGH1234abcd npm_abcdefghijklmnopqrstuvwx0123456789",
        ["xoxb-", "glpat-", "npm_"],
        [],
    ),
    ("x-api-key: 9aF3kL0pQ2", ["9aF3kL0pQ2"], []),
    ("token: ghp_16C7e42F292c6912E7710c838347Ae178B4a", ["16C7e42"], []),
    ("systemd: running as user dana since", ["dana"], ["since"]),
    ("User: dana", ["dana"], []),
    ('{"user": "dana", "host": "tower7"}', ["dana", "tower7"], []),
    ("username: dana logged in", ["dana"], ["logged in"]),
    ("hostname: tower7 is up", ["tower7"], ["is up"]),
    ("random key Zx8Kq2Lm9Pw4Rt6Yv1Bn3 in text", ["Zx8Kq2"], []),
    (
        "curl -H 'Authorization: Basic dXNlcjpwYXNzd29yZA==' http://gpu.example.internal:8000",
        ["dXNlcj", "gpu.example"],
        ["8000"],
    ),
    ("ssh bob@10.1.2.3", ["bob", "10.1.2.3"], []),
    ("Darwin Johns-MacBook-Pro.local 25.3.0 Darwin Kernel", ["Johns"], ["25.3.0"]),
    ("DESKTOP-7H3KQ2L", ["7H3KQ2L"], []),
    ("OPENAI_API_KEY='sk-abcdefghijklmnop'", ["abcdefgh"], []),
    ("/Users/김철수/models/x.gguf", ["김철수"], ["x.gguf"]),
    ("secret: correct-horse-battery", ["correct-horse"], []),
    ("connecting to gpubox.example.de:8080 failed http://gpubox.example.de:8080/v1", ["gpubox"], ["8080"]),
    (
        "discord https://discord.com/api/webhooks/123456789012345678/AbCdEfGhIjKlMnOpQrStUvWxYz-0123456789_abcdefghij",
        ["AbCdEfG"],
        [],
    ),
    ("bot 123456789:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw1 x", ["AAHdq"], []),
)
KEPT = (
    "llama_model_loader: - kv   0: general.architecture str = qwen3",
    "build: 4567 (42b4109e) with cc (Ubuntu 11.4.0) 11.4.0 for x86_64-linux-gnu",
    "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 279356.51 MiB on device 0: cudaMalloc failed: out of memory",
    "llama_kv_cache: size = 8192.00 MiB (131072 cells, 64 layers, 1/1 seqs), K (f16): 4096.00 MiB",
    "prompt eval time =   12345.67 ms / 8192 tokens (    1.51 ms per token,   663.55 tokens per second)",
    "load: special_eos_id is not in special_eog_ids - the tokenizer config may be incorrect",
    "print_info: BOS token = 151643 '<|endoftext|>'",
    "print_info: EOT token        = 151645 '<|im_end|>'",
    "libc++abi: terminating: [METAL] Command buffer execution failed: Insufficient Memory (00000008:kIOGPUCommandBufferCallbackErrorOutOfMemory)",
    "NVRM: Xid (PCI:0000:01:00): 79, pid=1234, GPU has fallen off the bus.",
    "Driver Version: 580.65.06    CUDA Version: 13.0",
    "driver 32.0.15.6094",
    "model Qwen3.8-27B-UD-Q5_K_M.gguf bartowski/Meta-Llama-3.1-8B-Instruct-GGUF unsloth/DeepSeek-R1-0528-Qwen3-8B-GGUF",
    "sha256:6e9f90f02bb3b39b59e81916e8cfce9deb45aeaeb9a54a5be4414486b907dc1e",
    "commit 42b4109e1f7f5d4e3a2b1c0d9e8f7a6b5c4d3e2f",
    "exllamav2 0.2.8+cu124.torch2.6.0",
    "version 1.10.1.2 of the engine",
    "slot update_slots: id  0 | task 12 | prompt processing progress, n_past = 2048, n_tokens = 2048",
    'time=2026-10-03T09:30:00.000+09:00 level=INFO source=server.go:1288 msg="llama runner started in 2.51 seconds"',
    "ValueError: This model's maximum context length is 8192 tokens. However, you requested 9000 tokens",
    "What is too slow for the user: said so, or under what was wanted",
    "the host: memory grows over time",
    "the user is waiting",
    "the user name of that account must be given",
    "key: general.name",
    "max_tokens=4096 token_count: 12345678",
    "flash_attn = auto, n_keys = 12",
    "_ZN2at6native18elementwise_kernelILi128ELi4EZNS0_22gpu_kernel_impl_nocast",
    "https://github.com/ggml-org/llama.cpp/issues/12345",
    "huggingface.co/Qwen/Qwen3-8B",
    "common_init_from_params: added <|im_end|> logit bias = -inf",
    "mlx-llm-mac-arm64-apple-metal-advsimd@1.11.0",
    "/usr/lib/python3.11/site-packages/torch/nn/modules/module.py",
    "CUDA_VISIBLE_DEVICES=0,1 OLLAMA_NUM_PARALLEL=4 OLLAMA_HOST=0.0.0.0",
    "print_info: n_ctx_train      = 262144",
    "srv  params_from_: Chat format: Content-only",
    "time 12:34:56 and 09:30:11.123 ratio 1:2:3:4",
    "std::vector c10::Error at::native torch::OutOfMemoryError",
    "rope_freq_base_train= 1000000.0 rope_yarn_log_mul=0.0000",
    "user: 12 sys: 3",
    "http://host.docker.internal:11434",
    "tokenizer.ggml.model str = gpt2",
    "n_threads = 8 (n_threads_batch = 8) / 16",
    "password required",
    "api_key: null",
    "--api-key-file is not set",
    "server is listening on http://0.0.0.0:8080",
    "host: 127.0.0.1",
    "session restored",
    "prompt cache: 2 seq, 3.11 GB",
    "UD-Q4_K_XL IQ2_XXS MXFP4_MOE BF16 gemma-3-270m-it-qat-q4_0-unquantized",
    "AMD Ryzen 9 7950X 16-Core Processor",
    "gfx1151 Radeon 8060S",
    "PCIe 4.0 x16",
    "f16 / q8_0",
    "Qwen2.5-Coder-32B-Instruct-abliterated-i1-GGUF/Qwen2.5-Coder-32B-Instruct-abliterated.i1-Q4_K_M.gguf",
    "/home/<user-1>/x",
    '{"error":{"code":400,"message":"request (1531 tokens) exceeds the available context size (1024 tokens)"}}',
    '"message": "the request exceeds the available context size, try increasing it"',
    '"key": "qwen/qwen3-8b", "type": "llm"',
    "+-o AMDRadeonX6000_AmdNavi21GraphicsAccelerator  <class IOAccelerator, id 0x100000a11>",
    "llama_kv_cache_unified: layer  12: dev = CUDA0 // the second half",
    "n_ctx 4096 - 8192 - 16384, 100-200-300",
    "BOS_TOKEN: <s> EOS_TOKEN=151645 N_KEY=8",
    "ggml_cuda_init: found 1 CUDA devices: compute capability 8.9, VMM: yes",
    "PWD=/srv/llm OLDPWD=/tmp",
    "Accept-Encoding: gzip",
    "the password is wrong",
    "GPU0: 15.7 GiB",
    "vllm 0.11.1rc2.dev45+g1b2c3d4e5",
    "0000:03:00.0 VGA",
    'level=INFO source=sched.go:517 msg="new model will fit in available VRAM"',
)


@pytest.mark.parametrize(("line", "gone", "stays"), [*SECRETS, *MORE], ids=range(len(SECRETS) + len(MORE)))
def test_what_is_private_goes(line: str, gone: list[str], stays: list[str]) -> None:
    out = Redactor(local=False).text(f"before\n{line}\nafter")
    assert [g for g in gone if g in out] == []
    assert [s for s in stays if s not in out] == []
    assert out.startswith("before\n")
    assert out.endswith("\nafter")


@pytest.mark.parametrize("line", KEPT, ids=range(len(KEPT)))
def test_what_a_reader_needs_stays(line: str) -> None:
    assert Redactor(local=False).text(line) == line


def test_the_same_thing_has_the_same_placeholder_and_another_thing_another() -> None:
    redactor = Redactor(local=False)
    out = redactor.text(
        "http://rig.lan:1 http://rig.lan:2 http://box.lan 10.0.0.1 10.0.0.2 10.0.0.1 /home/alice/a /home/bob/b"
    )
    assert (
        out
        == "http://<host-1>:1 http://<host-1>:2 http://<host-2> <ip-1> <ip-2> <ip-1> /home/<user-1>/a /home/<user-2>/b"
    )
    assert redactor.text("rig.lan again") == "<host-1> again"


def test_a_name_that_was_learned_goes_wherever_it_stands() -> None:
    out = Redactor(local=False).text(
        "loading /home/alice/x.gguf\nalice started it on gpubox\nHOSTNAME=gpubox\nalicent stays, malice stays"
    )
    assert "alice started" not in out
    assert "gpubox" not in out
    assert "alicent stays, malice stays" in out


def test_names_and_secrets_that_are_known_go() -> None:
    redactor = Redactor(users=["minsu"], hosts=["kestrel9"], secrets=["open sesame"], local=False)
    assert redactor.text("minsu said open sesame to kestrel9") == "<user-1> said <key-1> to <host-1>"


def test_this_machines_own_names_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("getpass.getuser", lambda: "jiwoo")
    monkeypatch.setattr("socket.gethostname", lambda: "jiwoo-rig")
    monkeypatch.setenv("CTXDOCTOR_API_KEY", "plain words as key")
    out = Redactor().text("jiwoo at jiwoo-rig sent plain words as key")
    assert out == "<user-1> at <host-1> sent <key-1>"


def test_no_sentence_of_the_rules_is_changed() -> None:
    """What the tool itself says is full of words such as user, host, key and token."""
    from rules.catalogue import facts_document, rules_document

    texts: list[str] = []

    def gather(value: object) -> None:
        if isinstance(value, str):
            texts.append(value)
        elif isinstance(value, dict):
            for item in value.values():
                gather(item)
        elif isinstance(value, list | tuple):
            for item in value:
                gather(item)

    gather(rules_document())
    gather(facts_document())
    assert len(texts) > 500
    redactor = Redactor(local=False)
    changed = [(text, out) for text in texts if (out := redactor.text(text)) != text]
    assert changed == []


def test_what_was_left_out_is_said_without_the_values() -> None:
    redactor = Redactor(local=False)
    redactor.text("api_key=abcdef123456 from 10.0.0.1, api_key=abcdef123456")
    said = [str(each) for each in redactor.left_out()]
    assert said == [
        "Keys, tokens and passwords: 1 different, replaced 2 times",
        "Network addresses: one, replaced once",
    ]


def test_a_second_pass_changes_nothing() -> None:
    text = "\n".join(line for line, _, _ in SECRETS)
    once = Redactor(local=False).text(text)
    assert Redactor(local=False).text(once) == once


@settings(max_examples=60, deadline=None)
@given(st.text(alphabet=st.sampled_from(list("abcAB019 \n-_=:/@.\"'{}<>\\가~")), max_size=300), st.integers(1, 40))
def test_piece_by_piece_is_the_same_as_at_once(text: str, size: int) -> None:
    pieces = [text[i : i + size] for i in range(0, len(text), size)]
    assert "".join(Redactor(local=False).lines(pieces)) == Redactor(local=False).text(text)


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=400))
def test_any_text_is_read_without_an_error(text: str) -> None:
    Redactor(local=False).text(text)


def test_a_key_block_that_spans_pieces_goes_whole() -> None:
    body = "\n".join(f"line{i} of the key" for i in range(8_000))
    text = f"-----BEGIN RSA PRIVATE KEY-----\n{body}\n-----END RSA PRIVATE KEY-----\nafter\n"
    out = "".join(Redactor(local=False).lines(text[i : i + 1000] for i in range(0, len(text), 1000)))
    assert out == "<key-1>\nafter\n"


def test_memory_stays_at_a_few_pieces_however_long_the_log() -> None:
    line = "slot update: prompt progress 2048 tokens from 10.0.0.7 by /home/alice/run.sh id {}\n"
    source = (line.format(i % 97) for i in range(40_000))
    tracemalloc.start()
    sink = 0
    for piece in Redactor(local=False).lines(source):
        sink += len(piece)
        assert "alice" not in piece
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert sink > 3_000_000
    assert peak < 40 * CHUNK


def test_one_word_without_an_end_is_left_out_and_takes_bounded_memory() -> None:
    out = "".join(Redactor(local=False).lines("A1b2" * 1024 for _ in range(600)))
    assert "A1b2A1b2" not in out.replace("<", "")[:200]
    assert len(out) < 600 * 4096


@pytest.mark.parametrize(
    "unit",
    [
        "a1",
        "=",
        '"',
        "/home/a ",
        "a@",
        "--api-key ",
        "api_key ",
        "://",
        "::",
        '{"content":"',
        "sk-",
        "\\\\a",
        "key is ",
        "~a",
        "ssh a ",
    ],
)
def test_no_text_makes_it_slow(unit: str) -> None:
    text = (unit * 60_000)[:120_000]
    start = time.perf_counter()
    Redactor(local=False).text(text)
    assert time.perf_counter() - start < 4


def test_a_stream_is_copied() -> None:
    sink = io.StringIO()
    Redactor(local=False).stream(io.StringIO("a 10.0.0.1\nb"), sink)
    assert sink.getvalue() == "a <ip-1>\nb"


def private() -> CaseDocument:
    evidence = (
        Evidence(
            kind="completion", source="measured", at=AT, data={"purpose": "recall", "text": "my dear diary of Tuesday"}
        ),
        Evidence(
            kind="devices",
            source="machine",
            at=AT,
            data={"devices": [{"id": "nvidia:0", "uuid": "GPU-8f3c1a2b-1234-5678-9abc-def012345678"}]},
        ),
        Evidence(
            kind="answer",
            source="user",
            at=AT,
            data={"question": "client", "value": "my own script at http://rig.lan:9000"},
        ),
    )
    return spill(evidence=[e.model_dump(mode="json") for e in evidence], notes=["alice saw it on gpubox.lan first"])


@pytest.mark.parametrize("format_", ["md", "html", "json", "bug-report", "terminal"])
def test_no_form_of_the_report_holds_what_is_private(format_: str) -> None:
    report = render(private(), format_, target="llama.cpp")  # type: ignore[arg-type]
    for word in ("alice", "hunter2", "gpubox", "192.168.1.23", "diary", "8f3c1a2b", "rig.lan"):
        assert word not in report
    for word in ("Qwen3.8-27B-UD-Q5_K_M",):
        assert word in report


def test_every_shape_is_gone_from_every_form_wherever_it_stands() -> None:
    every = [case for case in (*SECRETS, *MORE) if "BEGIN" not in case[0]]
    whole = spill().model_dump(mode="json", by_alias=True)
    whole["log_lines"] = [
        {"text": line.replace("\n", " "), "log": "a.log", "line": i, "worth": 5, "is_error": i % 2 == 0}
        for i, (line, _, _) in enumerate(every)
    ]
    whole["notes"] = [line for line, _, _ in every[::3]]
    whole["changes"] = [
        {"run": 1, "variables": [{"name": "url", "before": line, "after": line}]} for line, _, _ in every[1::3]
    ]
    for rung, (line, _, _) in zip(whole["rungs"], every[2::3], strict=False):
        rung["error"] = line
    document = CaseDocument.model_validate(whole)
    # What is also a word of the report, or of another line, tells nothing here.
    gone = {word for _, words, _ in every for word in words if len(word) >= 6 and re.search(r"\d|[a-z][A-Z]", word)}
    for format_ in ("md", "html", "json", "bug-report", "terminal"):
        report = render(document, format_, target="llama.cpp", redactor=Redactor(local=False))
        assert sorted(word for word in gone if word in report) == []


def test_without_redaction_the_report_says_so() -> None:
    report = render(private(), redact=False)
    assert "/home/alice/" in report
    assert "Nothing was replaced: this report is for private use." in report
    assert "Nothing was replaced" not in render(private())
    assert "Nothing was replaced" in render(private(), "bug-report", redact=False)


def test_fingerprints_ids_and_times_stay_in_a_document() -> None:
    document = spill()
    clean, _ = redact_document(document, Redactor(local=False))
    assert clean.subject.model.header_hash == document.subject.model.header_hash
    assert clean.criteria.hash == document.criteria.hash
    assert clean.case == document.case
    assert clean.rungs == document.rungs
    assert clean.subject.kv_cache == document.subject.kv_cache
    assert clean.verdict == document.verdict
    assert clean.subject.backend.command is not None
    assert "--api-key" in clean.subject.backend.command
    assert "hunter2-very-secret" not in clean.subject.backend.command


def test_an_options_value_on_a_command_line_is_known_by_the_word_before_it() -> None:
    whole = bare().model_dump(mode="json", by_alias=True)
    whole["subject"]["backend"]["command"] = [
        "llama-server",
        "--api-key",
        "weak",
        "--host",
        "tower",
        "-p",
        "dear diary",
        "--rpc",
        "node7:50052",
        "-c",
        "4096",
    ]
    clean, _ = redact_document(CaseDocument.model_validate(whole), Redactor(local=False))
    assert clean.subject.backend.command == (
        "llama-server", "--api-key", "<key-1>", "--host", "<host-1>", "-p", "<prompt: 10 characters>", "--rpc", "<host-2>:50052", "-c", "4096",
    )  # fmt: skip


@pytest.mark.parametrize("word", ["cuda", "allocating", "memory", "context", "buffer", "tokens", "n_ctx", "MiB"])
def test_a_name_that_is_an_ordinary_word_goes_only_where_a_name_stands(word: str) -> None:
    """A home folder or a server called as the words of logs are takes no word out of them."""
    text = f"/home/{word}/x.gguf http://{word}:8080/v1: {word} is full"
    clean = Redactor(local=False).text(text)
    assert clean.endswith(f": {word} is full")
    assert f"/home/{word}" not in clean
    assert f"//{word}" not in clean


@pytest.mark.parametrize(
    "user", ["cuda", "allocating", "server", "kv", "llama", "possible", "likely", "log", "octavius"]
)
def test_no_user_name_breaks_a_document(user: str) -> None:
    """A name that is learned halfway changes what is replaced, and never which texts there are; ids and bands stay as they are."""
    document = spill()
    line = LogLine(text=f"/home/{user}/a.gguf")
    document = document.model_copy(update={"log_lines": (*document.log_lines, line)})
    clean, _ = redact_document(document, Redactor(local=False))
    assert [cause.id for cause in clean.verdict.causes] == [cause.id for cause in document.verdict.causes]
    assert [cause.band for cause in clean.verdict.causes] == [cause.band for cause in document.verdict.causes]


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("ls ~/lorenzo", "ls ~/<user-1>"),
        (r"open \\nas01\share\lorenzo", r"open \\<host-1>\share\<user-1>"),
        ("ls ~/models/x.gguf ~/llama.cpp/build", "ls ~/models/x.gguf ~/llama.cpp/build"),
    ],
)
def test_a_folder_that_is_called_after_a_person_goes(text: str, clean: str) -> None:
    """What is in no sentence and no log is read as a name where people put theirs."""
    assert Redactor(local=False).text(text) == clean

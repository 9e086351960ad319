"""Prefill and generation speeds as the product reports them, beside those of others on the same server, by hand.

``python tests/benchmarks/bench_speed.py [--depths 512,2048,4096] [--pairs 15]``: each pair is one cold measurement by the product (the text and
request of its ladder) and one request of the same text that is read here from the server's own ``timings``; their order alternates. Prints the median
ratio with its 95 % interval; and the ratio of the product's own clock, which is what it goes by where a server tells no times, to the server's in
the same request (this one is steady also on a busy machine). The law: within 3 %.

``--benchy COMMAND`` compares with ``llama-benchy`` on the same server and depth instead of the timings; the law: within 5 %. It is on PyPI:
``uv venv /tmp/benchy && uv pip install --python /tmp/benchy/bin/python llama-benchy``, then ``--benchy /tmp/benchy/bin/llama-benchy``. It reads its text
and tokenizer from here (the server's own vocabulary), nothing is fetched, and it is asked for greedy sampling, as the product asks.

``--llama-bench COMMAND`` prints what ``llama-bench -d`` says of the same model, threads and depths: another program without a server, shown beside
and never mixed. ``--server COMMAND`` measures another build's ``llama-server`` instead of the embedded one.

The server gets one thread (``--threads``), so that a second core is left for those who measure; so does llama-bench. About 12 minutes for the three depths
on a machine that does nothing else, 6 with ``--benchy`` at 2048.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
import threading
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import islice
from math import comb
from pathlib import Path
from typing import TypeVar

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from diagnose.demo import model_path, server_command
from probes.backends.http import Http
from probes.backends.recognise import recognise
from probes.base import ProbeContext
from probes.counting import counter_for
from probes.evidence.errors import CtxDoctorError
from probes.ladder.canaries import completion_tail
from probes.ladder.rungs import RungText, build_ladder
from probes.ladder.text import generated
from probes.launch import Server, address_of
from probes.process import free_port
from probes.speed import GENERATE, SpeedProbe

OF_SERVER, OF_BENCHY = 0.03, 0.05
Speeds = tuple[float, float]
"""Prefill and generation, tokens per second."""
T, U = TypeVar("T"), TypeVar("U")


@dataclass(frozen=True)
class Mine:
    """One measurement of the product: what its report shows (the server's clock where it has one), and what its own clock says."""

    shown: Speeds
    clocked: Speeds


def median_interval(values: list[float]) -> tuple[float, float]:
    """Give the 95 % interval of the median by order statistics (the sign test): no shape is assumed."""
    ordered, n = sorted(values), len(values)
    below, k = 0.0, 0
    while k < n // 2 and below + comb(n, k) / 2**n <= 0.025:
        below += comb(n, k) / 2**n
        k += 1
    k = max(0, k - 1)
    return ordered[k], ordered[n - 1 - k]


def said(label: str, ratios: list[float], limit: float) -> bool:
    """Print the median of ratios with its interval; true where it keeps the law."""
    middle, (low, high) = statistics.median(ratios), median_interval(ratios)
    kept = abs(middle - 1) <= limit
    print(
        f"  {label:<44} {middle:.4f}  ({low:.4f} to {high:.4f}, {len(ratios)} pairs)  within {limit:.0%}: {'yes' if kept else 'NO'}",
        flush=True,
    )
    return kept


def answers(url: str) -> bool:
    """Say whether the server is done loading."""
    try:
        with Http(url, connect_s=1.0) as http:
            return http.get("/health", deadline_s=2.0).status == 200
    except CtxDoctorError:
        return False


class Product:
    """Measures one text cold as a session does."""

    def __init__(self, context: ProbeContext) -> None:
        self.context = context

    def speeds(self, text: RungText) -> Mine:
        """Measure the text once; again where its clock saw the answer come in one piece, which tells no speed of generation."""
        for _try in range(4):
            probe = SpeedProbe([text])
            for _ in probe.collect(self.context):
                pass
            [one] = probe.results
            if one.result != "passed":
                raise SystemExit(f"{text.rung} tokens: {one.error or one.result}")
            a, b = one.prefill_tps, one.generation_tps
            c, d = one.client_prefill_tps, one.client_generation_tps
            if a and b and c and d:
                return Mine((a, b), (c, d))
        raise SystemExit(
            f"{text.rung} tokens: {one.output_tokens} tokens came back, and no speed; measure another depth"
        )


def timings(url: str, text: RungText) -> Speeds:
    """Ask for the same completion without the product, and read the server's own timings."""
    body = {
        "prompt": text.text + completion_tail(text.canaries[0]),
        "n_predict": GENERATE,
        "temperature": 0,
        "cache_prompt": False,
        "stream": True,
    }
    request = urllib.request.Request(
        f"{url}/completion", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=600) as answer:
        last = [line for line in answer if line.startswith(b"data: {")][-1]
    told = json.loads(last.removeprefix(b"data: "))["timings"]
    return float(told["prompt_per_second"]), float(told["predicted_per_second"])


def alternated(pairs: int, first: Callable[[], T], second: Callable[[], U]) -> list[tuple[T, U]]:
    """Do both, in turns with the other one first."""
    done: list[tuple[T, U]] = []
    for number in range(pairs):
        if number % 2:
            later = second()
            done.append((first(), later))
        else:
            sooner = first()
            done.append((sooner, second()))
    return done


def against_server(product: Product, url: str, text: RungText, pairs: int) -> bool:
    """Hold the product against the server's timings."""
    done = alternated(pairs, partial(product.speeds, text), partial(timings, url, text))
    kept = True
    for place, what in enumerate(("prefill", "generation")):
        kept &= said(f"{what}, as reported / timings beside", [m.shown[place] / t[place] for m, t in done], OF_SERVER)
        kept &= said(
            f"{what}, our clock / server's, one request",
            [m.clocked[place] / m.shown[place] for m, _t in done],
            OF_SERVER,
        )
    shown = [statistics.median(theirs[place] for _mine, theirs in done) for place in (0, 1)]
    print(f"  (server: {shown[0]:.1f} tokens/s of prefill, {shown[1]:.1f} of generation)")
    return kept


# -- llama-benchy ----------------------------------------------------------------------------------------------------------------------


def tokenizer_file(model: Path, out: Path) -> None:
    """Write the model's vocabulary as a ``tokenizer.json``: close enough to cut texts to a length; the server counts what it got."""
    import gguf
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

    reader = gguf.GGUFReader(str(model))

    def field(name: str) -> list[bytes]:
        one = reader.fields[name]
        return [bytes(one.parts[place]) for place in one.data]

    tokens = [piece.decode("utf-8", "replace") for piece in field("tokenizer.ggml.tokens")]
    vocabulary = {token: number for number, token in enumerate(tokens)}
    if "tokenizer.ggml.merges" in reader.fields:
        pairs = [tuple(line.decode().split(" ", 1)) for line in field("tokenizer.ggml.merges")]
        inner = Tokenizer(models.BPE(vocab=vocabulary, merges=[pair for pair in pairs if "".join(pair) in vocabulary]))
        inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        inner.decoder = decoders.ByteLevel()
    else:
        # a vocabulary of pieces: whatever two pieces make a third one are joined, in the order of the third
        pairs = [
            (token[:cut], token[cut:])
            for token in vocabulary
            if 1 < len(token) <= 32
            for cut in range(1, len(token))
            if token[:cut] in vocabulary and token[cut:] in vocabulary
        ]
        inner = Tokenizer(models.BPE(vocab=vocabulary, merges=pairs, byte_fallback=True, fuse_unk=True))
        inner.normalizer = normalizers.Replace(" ", "\u2581")
        inner.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()])
    inner.save(str(out))


@contextlib.contextmanager
def book() -> Iterator[str]:
    """Serve a long text on the loopback: the generated prose that the product reads too, of another seed."""
    text = "".join(unit.text for unit in islice(generated(99), 4000)).encode()

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; charset=utf-8")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/book.txt"
        server.shutdown()


def benchy(command: list[str], url: str, depth: int, tokenizer: Path, text_at: str, home: Path) -> Speeds:
    """Run llama-benchy once at a depth and read its result."""
    out = home / "benchy.json"
    out.unlink(missing_ok=True)
    asked = [
        *command, "--base-url", f"{url}/v1", "--model", "demo", "--tokenizer", str(tokenizer), "--book-url", text_at,
        "--pp", str(depth), "--tg", str(GENERATE), "--depth", "0", "--runs", "1", "--no-cache", "--no-warmup", "--no-adapt-prompt",
        "--skip-coherence", "--exact-tg", "--extra-body", "temperature=0", "--format", "json", "--save-result", str(out),
    ]  # fmt: skip
    kept_away = {
        **os.environ,
        "HOME": str(home),
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "NO_PROXY": "127.0.0.1",
    }
    done = subprocess.run(asked, env=kept_away, capture_output=True, text=True, check=False, timeout=600)
    if done.returncode != 0 or not out.exists():
        raise SystemExit(f"llama-benchy failed:\n{done.stdout[-1500:]}{done.stderr[-1500:]}")
    [run] = json.loads(out.read_text(encoding="utf-8"))["benchmarks"]
    return float(run["pp_throughput"]["mean"]), float(run["tg_throughput"]["mean"])


def against_benchy(product: Product, options: argparse.Namespace, url: str, texts: list[RungText], model: Path) -> bool:
    """Hold the product against llama-benchy."""
    command, kept = shlex.split(options.benchy), True
    with tempfile.TemporaryDirectory() as name, book() as text_at:
        home = Path(name)
        tokenizer = home / "tokenizer.json"
        tokenizer_file(model, tokenizer)
        for text in texts:
            print(f"{text.rung} tokens, llama-benchy:")
            done = alternated(
                options.pairs,
                partial(product.speeds, text),
                partial(benchy, command, url, text.rung, tokenizer, text_at, home),
            )
            for place, what in enumerate(("prefill", "generation")):
                ratios = [m.shown[place] / t[place] for m, t in done]
                kept &= said(f"{what}, as reported / llama-benchy", ratios, OF_BENCHY)
            shown = [statistics.median(theirs[place] for _mine, theirs in done) for place in (0, 1)]
            print(f"  (llama-benchy: {shown[0]:.1f} tokens/s of prefill, {shown[1]:.1f} of generation)")
    return kept


# -- llama-bench -----------------------------------------------------------------------------------------------------------------------


def beside(command: list[str], model: Path, depths: list[int], threads: int, repeat: int) -> None:
    """Print llama-bench's numbers: the whole prompt from nothing, and generation at that depth."""
    print("llama-bench (another program, no server; shown beside):")
    for depth in depths:
        shown = []
        for asked in (["-p", str(depth), "-n", "0", "-d", "0"], ["-p", "0", "-n", str(GENERATE), "-d", str(depth)]):
            words = [*command, "-m", str(model), "-t", str(threads), "-r", str(repeat), "-o", "json", *asked]
            done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=1800)
            if done.returncode != 0:
                raise SystemExit(f"llama-bench failed: {done.stderr[-800:]}")
            [run] = json.loads(done.stdout)
            shown.append(f"{run['avg_ts']:.1f} ± {run['stddev_ts']:.1f}")
        print(f"  {depth} tokens: {shown[0]} tokens/s of prefill, {shown[1]} of generation", flush=True)


def main() -> int:
    """Start the server and compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--depths", default="512,2048,4096")
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--model", help="a GGUF file (default: the demo's)")
    parser.add_argument("--server", help="a llama-server to start instead of the embedded one")
    parser.add_argument("--benchy", help="the command of llama-benchy")
    parser.add_argument("--llama-bench", help="the command of llama-bench")
    options = parser.parse_args()
    depths = [int(word) for word in options.depths.split(",")]
    model, threads, port = model_path(options.model), str(options.threads), free_port()
    flags = ["-c", str(max(depths) + 512), "-np", "1", "-t", threads, "-tb", threads]
    if options.server:
        command = (*shlex.split(options.server), "-m", str(model), "--host", "127.0.0.1", "--port", str(port), *flags)
    else:
        command = server_command(model, port, flags)
    kept = True
    with tempfile.TemporaryDirectory() as name, Server(command, log_path=Path(name) / "server.log") as server:
        server.start()
        launch = server.wait_healthy(lambda pid: address_of(pid, answers), 120)
        if not launch.healthy or server.url is None:
            raise SystemExit(f"the server did not start: {launch.why}")
        with Http(server.url) as http:
            backend = recognise(http)
            counter = counter_for(backend)
            assert counter is not None
            product = Product(ProbeContext(backend=backend, counter=counter))
            texts = [build_ladder([depth], counter, reserve=16, seed=depth).rungs[0] for depth in depths]
            product.speeds(texts[0])  # the first request after loading is slower
            if options.benchy:
                kept = against_benchy(product, options, server.url, texts, model)
            else:
                for text in texts:
                    print(f"{text.rung} tokens, the server itself:")
                    kept &= against_server(product, server.url, text, options.pairs)
    if options.llama_bench:
        beside(shlex.split(options.llama_bench), model, depths, options.threads, 3)
    return int(not kept)


if __name__ == "__main__":
    sys.exit(main())

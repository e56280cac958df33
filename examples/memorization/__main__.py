"""Which documents does a model remember, where, and since when? From text to pictures.

    python -m examples.memorization            # 4 minutes on one core
    python -m examples.memorization --quick    # some seconds, and little is learned

Everything is written into one folder: the text, the run file, the stores, the model of every
checkpoint, and the results. A study that was stopped goes on from its last checkpoint.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM

import tokenloom as tl
from examples.memorization.texts import VOCABULARY, write_corpus, write_tokenizer
from tokenloom.evaluate import (
    Extraction,
    Periodic,
    contrast,
    evaluate,
    heat_map,
    learned,
    overlap,
    pz,
)

WINDOWS = {"prefix": 32, "suffix": 32}


def main() -> None:
    """The whole study: the same documents, trained in two ways."""
    asked = _arguments()
    torch.set_num_threads(1)
    found = {name: studied(asked.folder, name, quick=asked.quick) for name in ("packed", "spliced")}
    rate = "extracted by greedy decoding"
    for name in ("often", "seldom", "held"):
        told = (f"{way} {one[name].intervals()[rate]}" for way, one in found.items())
        print(f"{rate}, {name}: {', '.join(told)}")


def studied(folder: Path, way: str, *, quick: bool) -> dict[str, Extraction]:
    """Train in one way, and measure what is remembered."""
    steps, every, stride = (12, 6, 128) if quick else (2000, 250, 8)
    print(f"\n{way}")
    run = prepared(folder, way)
    stores = {name: tl.open(folder / "stores" / name) for name in run.file.evaluate}
    stores["held"] = never_seen(stores)
    results = folder / way

    def judged(model: Any) -> dict[str, float]:
        found = {
            name: pz(model, store, stride=8 * stride, progress=False, **WINDOWS).summary()
            for name, store in stores.items()
        }
        return {name: one["mean_pz"] for name, one in found.items()}

    jobs: dict[str, Any] = {
        name: lambda model, rows=rows: evaluate(model, rows, by=("document",), progress=False)
        for name, rows in run.file.evaluate.items()
    }
    periodic = Periodic({**jobs, "P(z)": judged}, folder=results, every=every)
    model = trained(run, periodic, results, steps, every)
    found = {name: pz(model, store, stride=stride, **WINDOWS) for name, store in stores.items()}
    for name, one in found.items():
        (results / f"{name}.npz").write_bytes(one.to_bytes())
    report(found, periodic, results, run.state(steps * 8))
    return found


def never_seen(stores: dict[str, Any]) -> Any:
    """Held-out documents that share no 13 tokens in a row with a trained one."""
    touched: set[int] = set()
    for name in ("often", "seldom"):
        found = overlap(stores[name], stores["held"], n=13)
        touched |= set(found.touched)
        for line in found.lines(most=3):
            print(line)
    fair = [n for n in range(stores["held"].num_documents) if n not in touched]
    print(f"the control: {len(fair)} held-out documents, none of which was seen in part")
    return stores["held"].select(doc_index=fair, doc_index_policy="honor")


def prepared(folder: Path, way: str) -> tl.Dataset:
    """The text, the tokenizer and the run file; loading it builds the stores."""
    write_corpus(folder / "corpus")
    write_tokenizer(folder / "corpus", folder / "tokenizer.json")
    file = folder / f"{way}.yaml"
    shutil.copyfile(Path(__file__).with_name(file.name), file)
    return tl.load(file)


def trained(run: tl.Dataset, periodic: Periodic, folder: Path, steps: int, every: int) -> Any:
    """A plain loop of PyTorch: its state is a model, an optimizer and a position."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 96, "intermediate_size": 256, "vocab_size": VOCABULARY}
    model = LlamaForCausalLM(LlamaConfig(num_hidden_layers=2, num_attention_heads=4, **sizes))
    optimizer = torch.optim.AdamW(model.parameters(), 2e-3, weight_decay=0.0)
    place = folder / "state.pt"
    with tl.Loader(run, fields=("tokens", "labels", "position_ids")) as loader:
        if place.exists():
            kept = torch.load(place, weights_only=True)
            model.load_state_dict(kept["model"])
            optimizer.load_state_dict(kept["optimizer"])
            loader.load_state_dict(kept["loader"])
        model.train()
        while loader.step < steps:
            loss = model(**next(loader).torch()).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            periodic(model, loader.step, trained_loss=loss.item())
            if loader.step % every == 0:
                kept = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
                torch.save({**kept, "loader": loader.state_dict()}, place.with_suffix(".new"))
                place.with_suffix(".new").replace(place)
                print(f"step {loader.step:,} of {steps:,}: loss {loss.item():.3f}")
    model.save_pretrained(folder / "model")
    return model


def report(found: dict[str, Extraction], periodic: Periodic, folder: Path, state: Any) -> None:
    """What was found, in words and pictures."""
    for one in state["sources"]:
        print(f"{one['name']}: {one['epochs']:,} epochs, {one['tokens']:,} tokens")
    for name in ("often", "seldom"):
        print(f"{name}:")
        for line in contrast(found[name], found["held"]).lines():
            print(f"  {line}")
        for line in learned(periodic.records, name, line=1.0).lines(4):
            print(f"  {line}")
    for name, one in found.items():
        (folder / f"heat-{name}.svg").write_text(heat_map(one), encoding="utf-8")
    print(f"{folder}: heat-often.svg, heat-seldom.svg, heat-held.svg, results.svg and tables")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m examples.memorization", description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=Path("memorization"))
    parser.add_argument("--quick", action="store_true", help="a few steps, to see that it works")
    return parser.parse_args()


if __name__ == "__main__":
    main()

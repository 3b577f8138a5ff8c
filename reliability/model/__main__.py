"""`python -m reliability.model [NAME ...]`: search models exhaustively, then refute each broken variant of theirs.

The exit status is 0 only if every model holds in every state and every variant is refuted.
"""

from __future__ import annotations

import argparse
import sys
import time

from reliability.model.cases import MODELS, Model, Variant, search_worlds


def main() -> int:
    """Print each search as it ends; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m reliability.model", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"all if none is given: {', '.join(MODELS)}")
    names = parser.parse_args().names
    if strange := [name for name in names if name not in MODELS]:
        parser.error(f"there is no model {', '.join(strange)}; there are {', '.join(MODELS)}")
    results = [_search(MODELS[name]) for name in names or MODELS]
    return 0 if all(results) else 1


def _search(model: Model) -> bool:
    print(f"{model.name}:", flush=True)
    results = [_holds(model, world) for world in model.worlds]
    results += [_is_refuted(model, variant) for variant in model.variants]
    return all(results)


def _holds(model: Model, world: str) -> bool:
    began = time.process_time()
    found = search_worlds(model, {}, (world,))
    good = not found.violation and found.complete
    _print(f"the rules, {world}", found.states, began, "holds in every state" if good else "")
    if found.violation:
        print(f"    BROKEN: {found.violation}: {found.steps}")
    elif not found.complete:
        print("    CUT SHORT: the search reached its limit")
    return good


def _is_refuted(model: Model, variant: Variant) -> bool:
    began = time.process_time()
    found = search_worlds(model, variant.rules, variant.worlds)
    good = variant.finds in found.violation if variant.finds else not found.violation and found.complete
    said = found.violation or ("holds in every state" if found.complete else "the search reached its limit")
    _print(variant.name, found.states, began, said)
    if not good:
        print(f"    NOT REFUTED: expected {variant.finds or 'that it holds'}")
    return good


def _print(name: str, states: int, began: float, said: str) -> None:
    print(f"  {name:<55} {states:>9,} states {time.process_time() - began:>6.1f} s  {said}", flush=True)


if __name__ == "__main__":
    sys.exit(main())

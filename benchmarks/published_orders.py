"""The published figures of block shuffle: how well orders mix, and how often they read.

Both come from `benchmarks.shuffles`: what a reader sees when running `python -m benchmarks
permutation` and `data-loading` is what the page shows.
"""

from __future__ import annotations

from functools import cache

import tokenloom as tl
from benchmarks import shuffles
from benchmarks.figures import Figure, Section, shown

__all__ = ["mixing", "quality", "reads"]

MEASURES = {
    "mean_abs_displacement_norm": (0.3325, 0.0417, 0.3319),
    "inversion_fraction": (0.4997, 0.0625, 0.4980),
    "spearman_rho": (0.0010, 0.9844, 0.0088),
    "same_block_transition_rate": (0.0107, 0.3106, 0.3063),
}
HEADS = ("published", "ours, Levanter's order", "ours, our own order")
PERM_TYPES = ("levanter", "feistel")  # theirs, ours
STRATEGIES = ("full", "era", "block")
TABLE = "test_be_01_be_02_the_published_command_prints_the_published_table"
READS = {
    "reads_issued": ("35,650", "20", "287"),
    "examples": ("40,960", "40,960", "40,960"),
    "reads/example": ("0.8704", "0.00049", "0.00701"),
    "estimated_read_reduction": ("12.96%", "99.95%", "99.30%"),
}
FORMS = {
    "reads_issued": {"full": ",.0f", "era": ",.0f", "block": ",.0f"},
    "examples": {"full": ",.0f", "era": ",.0f", "block": ",.0f"},
    "reads/example": {"full": ".4f", "era": ".5f", "block": ".5f"},
    "estimated_read_reduction": {"full": ".2%", "era": ".2%", "block": ".2%"},
}


measured = cache(shuffles.measured)


def quality() -> Section:
    """The twelve measures of three orders, and their baselines."""
    found = measured("permutation")
    figures = []
    for place, strategy in enumerate(STRATEGIES):
        for measure, published in MEASURES.items():
            theirs, ours = (
                found["results"][kind][strategy][measure]["mean"] for kind in PERM_TYPES
            )
            figures.append(
                Figure(
                    what=f"{strategy}: {measure}",
                    published=f"{published[place]:.4f}",
                    ours=f"{theirs:.4f}",
                    more=(f"{ours:.4f}",),
                    test=TABLE,
                )
            )
    for measure, published in (
        ("mean_abs_displacement_norm", "0.3334"),
        ("inversion_fraction", "0.5000"),
        ("same_block_transition_rate", "0.0155"),
    ):
        value = f"{found['fair'][measure]:.4f}"
        what = f"a random order: {measure}"
        figures.append(Figure(what=what, published=published, ours=value, more=("",), test=TABLE))
    value = f"{found['no_shuffle']['same_block_transition_rate']:.4f}"
    what = "no shuffle: same_block_transition_rate"
    figures.append(Figure(what=what, published="0.9923", ours=value, more=("",), test=TABLE))
    return shown("quality", figures, heads=HEADS)


def mixing() -> Section:
    """The two scores that the note draws as bars."""
    found = measured("permutation")
    moved, same = "mean_abs_displacement_norm", "same_block_transition_rate"
    scores = {
        "global mixing": (moved, found["fair"][moved], ("0.997", "0.125", "0.996")),
        "locality": (same, 1.0, ("0.011", "0.311", "0.306")),
    }
    figures = []
    for name, (measure, of, published) in scores.items():
        for place, strategy in enumerate(STRATEGIES):
            theirs, ours = (
                f"{found['results'][kind][strategy][measure]['mean'] / of:.3f}"
                for kind in PERM_TYPES
            )
            what = f"{name}, {strategy}"
            figures.append(
                Figure(what=what, published=published[place], ours=theirs, more=(ours,), test=TABLE)
            )
    return shown("mixing", figures, heads=HEADS)


def reads() -> Section:
    """Reads of 20 requests of 2,048 examples, and the sizes that they follow from."""
    found = measured("data-loading")["results"]
    test = "test_be_05_the_published_reads_come_out_to_the_last_one"
    figures = []
    for place, strategy in enumerate(STRATEGIES):
        for count, published in READS.items():
            form = FORMS[count][strategy]
            theirs, ours = (f"{found[kind][strategy][count]['mean']:{form}}" for kind in PERM_TYPES)
            what = f"{strategy}: {count}"
            figures.append(
                Figure(what=what, published=published[place], ours=theirs, more=(ours,), test=test)
            )
    theirs, ours = (
        f"{1 / found[kind]['block']['reads/example']['mean']:.0f}" for kind in PERM_TYPES
    )
    what = "block: examples a read, of which the gate asks for 2"
    figures.append(Figure(what=what, published="143", ours=theirs, more=(ours,), test=test))
    rows = measured("permutation")["settings"]["io_block_size"]
    preset = tl.BlockShuffle.published()
    settings = f"{preset.window_blocks} / {preset.perm_type} / {preset.cache_windows}"
    figures += [
        Figure(
            what="rows of 2,048 tokens in a block of 262,144",
            published="128",
            ours=f"{rows}",
            more=("",),
            test="test_sh_06_c_37_a_length_that_does_not_divide_is_rounded_down_with_a_warning",
        ),
        Figure(
            what="rows of a window of 8 blocks",
            published="1,024",
            ours=f"{rows * preset.window_blocks:,}",
            more=("",),
            test="test_sh_01_a_window_of_8_blocks_of_128_uses_exactly_8_blocks",
        ),
        Figure(
            what="window_blocks / perm_type / cache_windows",
            published="8 / feistel / 8",
            ours=settings,
            more=("",),
            test="test_sh_07_block_shuffle_has_the_fields_of_the_design",
        ),
    ]
    return shown("reads", figures, heads=HEADS)

"""Tokenizers whose words are their own ids ("7 8 9" → 7, 8, 9), and slow, obvious oracles."""

import functools

from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizer, PreTrainedTokenizerFast

WORDS = 300
NAMES = {"bos": "<s>", "eos": "</s>", "pad": "<pad>"}


def words(text):
    """The plainest tokenizer: a function."""
    return [int(word) for word in text.split()]


def vocabulary(special):
    """Word → id; a special token stands for the number that is its id."""
    taken = {index: name for name, index in special.items()}
    return {taken.get(index, str(index)): index for index in range(WORDS)}


def rust(**special):
    """A tokenizers.Tokenizer; `special` is token text → id."""
    vocab = vocabulary(special)
    made = Tokenizer(models.WordLevel(vocab, unk_token=str(WORDS - 1)))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return made


def fast(bos=None, eos=None, pad=None, **kwargs):
    """A fast tokenizer of transformers; roles may share an id."""
    roles = {"bos": bos, "eos": eos, "pad": pad}
    name_of = {index: NAMES[role] for role, index in reversed(roles.items()) if index is not None}
    special = {name: index for index, name in name_of.items()}
    tokens = {f"{role}_token": name_of[index] for role, index in roles.items() if index is not None}
    return PreTrainedTokenizerFast(tokenizer_object=rust(**special), **tokens, **kwargs)


class Slow(PreTrainedTokenizer):
    """A slow tokenizer of transformers."""

    def __init__(self, **kwargs):
        self._vocab = vocabulary({"<s>": 1, "</s>": 2, "<pad>": 0})
        super().__init__(bos_token="<s>", eos_token="</s>", pad_token="<pad>", **kwargs)

    @property
    def vocab_size(self):
        return WORDS

    def get_vocab(self):
        return dict(self._vocab)

    def _tokenize(self, text, **_):
        return text.split()

    def _convert_token_to_id(self, token):
        return self._vocab[token]

    def _convert_id_to_token(self, index):
        return next(word for word, at in self._vocab.items() if at == index)


@functools.cache
def usual():
    """BOS 1, EOS 2, PAD 0."""
    return fast(bos=1, eos=2, pad=0)


def text_of(ids):
    return " ".join(map(str, ids))


def slow_bins(sizes, width, strategy):
    """Every rule by looking at every bin; among equal room the bin opened last."""
    order = list(range(len(sizes)))
    if strategy != "greedy":
        order.sort(key=lambda item: -sizes[item])
    bins = []
    for item in order:
        room = [width - sum(sizes[i] for i in one) for one in bins]
        fits = [b for b in range(len(bins)) if room[b] >= sizes[item]]
        if strategy == "greedy":
            fits = [b for b in fits if b == len(bins) - 1]
        if strategy == "best_fit":
            fits = sorted(fits, key=lambda b: (room[b], -b))
        if fits:
            bins[fits[0]].append(item)
        else:
            bins.append([item])
    return bins


def slow_rows(lengths, width, *, packed, strategy, overflow, stride):
    """Rows as lists of cells (document, token, seen before), token by token."""
    if packed and strategy == "greedy" and overflow:
        rows, row = [], []
        for document, length in enumerate(lengths):
            for token in range(length):
                if len(row) == width:
                    rows.append(row)
                    again = range(max(1, token - stride), token) if token else ()
                    row = [(document, t, True) for t in again]
                row.append((document, token, False))
        return [*rows, row] if row else rows
    pieces = []
    for document, length in enumerate(lengths):
        end, begin = 0, 0
        while end < length:
            seen = end
            end = min(length, begin + width)
            pieces.append([(document, t, t < seen) for t in range(begin, end)])
            begin = end - stride
            if not overflow:
                break
    if not packed:
        return pieces
    bins = slow_bins([len(piece) for piece in pieces], width, strategy)
    return [[cell for item in one for cell in pieces[item]] for one in bins]


def slow_columns(rows):
    """(starts, continues, overlaps) of rows of cells."""
    starts = [
        [
            i
            for i, (d, t, _) in enumerate(row)
            if i == 0 or (d, t) != (row[i - 1][0], row[i - 1][1] + 1)
        ]
        for row in rows
    ]
    continues = [[row[i][1] > 0 for i in s] for row, s in zip(rows, starts, strict=True)]
    return starts, continues

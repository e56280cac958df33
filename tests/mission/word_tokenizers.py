"""Tokenizers whose words are their own ids: "7 8 9" becomes 7, 8, 9."""

from tokenizers import Tokenizer, models, pre_tokenizers

WORDS = 300


def words(text):
    """The plainest tokenizer: a function from text to ids."""
    return [int(word) for word in text.split()]


def text_of(ids):
    """The text that becomes these ids."""
    return " ".join(map(str, ids))


def word_tokenizer(**special):
    """A `tokenizers.Tokenizer`; `special` is the text of a special token → its id."""
    name_of = {index: name for name, index in special.items()}
    vocabulary = {name_of.get(index, str(index)): index for index in range(WORDS)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=str(WORDS - 1)))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return tokenizer


def bos_eos_pad():
    """A tokenizer with PAD 0, BOS 1 and EOS 2."""
    return word_tokenizer(**{"<pad>": 0, "<s>": 1, "</s>": 2})

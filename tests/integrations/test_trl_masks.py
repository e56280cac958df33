"""What a build trains on is what transformers and TRL train on, token by token.

TRL's own preparation of a dataset runs here, without a trainer around it.
"""

import importlib
from pathlib import Path
from types import SimpleNamespace

import datasets
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit import quick_folder
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
from toys import bpe
from transformers import PreTrainedTokenizerFast

import tokenloom as tl

trl = importlib.import_module("trl")

SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|bos|>")

MARKED = """{{ bos_token }}{% if tools %}tools: {{ tools | tojson }}
{% endif %}{% for m in messages %}
{{ '<|im_start|>' + m.role + '\\n' }}{% if m.role == 'assistant' %}
{% generation %}{{ m.content or '' }}{% for call in m.tool_calls or [] %}
{{ '<call>' + (call | tojson) }}{% endfor %}{{ '<|im_end|>' }}{% endgeneration %}
{% else %}{{ m.content + '<|im_end|>' }}{% endif %}{{ '\\n' }}{% endfor %}
{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""

PLAIN = MARKED.replace("{% generation %}", "{% if true %}").replace("endgeneration", "endif")

CALL = [{"type": "function", "function": {"name": "add", "arguments": {"a": 2}}}]

CHATS = [
    [("user", "Hi you"), ("assistant", "Hello 😀")],
    [
        ("system", "Be é"),
        ("user", "  a\r\nb"),
        ("assistant", "x\n"),
        ("user", "?"),
        ("assistant", ""),
    ],
    [("user", "2+2"), ("assistant", None), ("tool", "4"), ("assistant", "It is 4.")],
    [("assistant", "I begin."), ("user", "Do."), ("assistant", "中文 <think>")],
]


def messages(turns):
    made = [{"role": role, "content": content} for role, content in turns]
    return [{**m, "tool_calls": CALL} if m["content"] is None else m for m in made]


def tokenizer(template=MARKED):
    """A tokenizer of transformers that puts a BOS before texts of its own accord."""
    backend = bpe(specials=SPECIALS)
    backend.post_processor = processors.TemplateProcessing(
        single="<|bos|> $A", special_tokens=[("<|bos|>", backend.token_to_id("<|bos|>"))]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        bos_token="<|bos|>",
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        chat_template=template,
    )


def prepared(rows, own, **settings_):
    """The rows as TRL's SFTTrainer prepares them."""
    arguments = {
        "dataset_num_proc": None,
        "dataset_text_field": "text",
        "assistant_only_loss": False,
        "max_length": None,
        "shuffle_dataset": False,
        **settings_,
    }
    trainer = SimpleNamespace(
        _tokenizer=own, chat_template=own.chat_template, completion_only_loss=True
    )
    dataset = datasets.Dataset.from_list(rows)
    made = trl.SFTTrainer._prepare_dataset(
        trainer, dataset, own, SimpleNamespace(**arguments), False, None, "train"
    )
    return [(row["input_ids"], [int(label != -100) for label in row["labels"]]) for row in made]


def built(rows, own, **settings_):
    with quick_folder() as folder:
        store = tl.build(rows, folder / "s", tokenizer=own, **settings_)
        (column,) = store.columns
        return [
            (
                store.document(i).tolist(),
                (store.document(i, column=column) > 0).astype(int).tolist(),
            )
            for i in range(store.num_documents)
        ]


def test_assistant_only_loss_is_that_of_trl():
    rows = [{"messages": messages(turns)} for turns in CHATS]
    own = tokenizer()
    theirs = prepared(rows, own, assistant_only_loss=True)
    assert built(rows, own) == theirs
    assert any(0 < sum(mask) < len(mask) for _, mask in theirs)  # neither all nor nothing
    bos = own.bos_token_id
    assert all(ids[0] == bos and ids.count(bos) == 1 for ids, _ in theirs)  # once, by the template
    everything = prepared(rows, own)
    assert built(rows, own, train_on="all") == everything
    assert everything != theirs


def test_completion_only_loss_is_that_of_trl():
    rows = [
        {"prompt": messages(turns[:-1]), "completion": messages(turns[-1:])}
        for turns in (CHATS[0], CHATS[2], CHATS[3])
    ]
    for template in (MARKED, PLAIN):
        own = tokenizer(template)
        assert built(rows, own) == prepared(rows, own)
    both = tokenizer()
    assert built(rows, both, train_on="assistant") == prepared(rows, both, assistant_only_loss=True)


def test_a_prompt_and_a_completion_of_text_are_those_of_trl():
    rows = [
        {"prompt": "Q: 2 + 2? A:", "completion": " 4."},
        {"prompt": "", "completion": "all of it"},
        {"prompt": "no answer:", "completion": ""},
    ]
    own = tokenizer()
    assert built(rows, own, add_bos=True) == prepared(rows, own)
    # their BOS comes from the post-processor; here it is asked for by name
    assert built(rows, own) != prepared(rows, own)


def test_tools_of_a_record_reach_the_template_as_with_trl():
    tools = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}]
    rows = [{"messages": messages(CHATS[2]), "tools": tools}]
    own = tokenizer()
    mine = built(rows, own)
    assert mine == prepared(rows, own, assistant_only_loss=True)
    assert '"name": "add"' in own.decode(mine[0][0])


CONTENT = st.text(st.sampled_from("ab \n\té😀中' \u0301\u00a0<|>"), max_size=12)
TURNS = st.lists(st.tuples(st.sampled_from(["user", "assistant", "tool"]), CONTENT), max_size=5)


@settings(max_examples=4)
@given(st.lists(st.tuples(TURNS, CONTENT), min_size=5, max_size=30))
def test_any_conversation_has_the_masks_of_transformers(many):
    """Without an end-of-turn token in the block, so that the edges are in the middle of text."""
    bare = MARKED.replace("{{ '<|im_end|>' }}{% endgeneration %}", "{% endgeneration %}|")
    own = tokenizer(bare)
    chats = [messages([*turns, ("assistant", last + "x")]) for turns, last in many]
    how = {"return_dict": True, "return_assistant_tokens_mask": True}
    theirs = [own.apply_chat_template(chat, **how) for chat in chats]
    expected = [(one["input_ids"], one["assistant_masks"]) for one in theirs]
    assert built([{"messages": chat} for chat in chats], own) == expected


def test_characters_that_a_normaliser_drops_change_nothing_around_a_block():
    """transformers trains on all that follows if the last character of a block has no token."""
    backend = Tokenizer(models.WordPiece(unk_token="<unk>"))
    backend.normalizer = normalizers.BertNormalizer()
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(
        vocab_size=200, special_tokens=["<unk>", *SPECIALS], show_progress=False
    )
    backend.train_from_iterator(["user assistant some words é | < > : a b c x"], trainer)
    bare = MARKED.replace("{{ '<|im_end|>' }}{% endgeneration %}", "{% endgeneration %}|")
    own = PreTrainedTokenizerFast(
        tokenizer_object=backend, eos_token="<|im_end|>", bos_token="<|bos|>", chat_template=bare
    )
    texts = ["some words", " some \n", "\t a\r\n", "b\u0301", "e\u0301 \u200b"]
    chats = [messages([("user", "b "), ("assistant", one), ("user", "c")]) for one in texts]
    mine = built([{"messages": chat} for chat in chats], own)
    others = 0
    for chat, (ids, mask) in zip(chats, mine, strict=True):
        whole = own.apply_chat_template(chat, tokenize=False)
        start = whole.index("assistant") + len("assistant\n")
        stop = start + len(chat[1]["content"])
        encoding = backend.encode(whole, add_special_tokens=False)
        # the slow loop: a token is trained on if it has a character of the block
        slow = [int(a < stop and b > start) for a, b in encoding.offsets]
        assert (ids, mask) == (encoding.ids, slow)
        how = {"return_dict": True, "return_assistant_tokens_mask": True}
        others += own.apply_chat_template(chat, **how)["assistant_masks"] != mask
    assert others > 0  # the control: it is about these


def test_reasoning_has_the_names_that_transformers_gives_it():
    names = "{{ m.content ~ m.reasoning_content ~ m.thinking }}"
    template = MARKED.replace("{{ m.content or '' }}", names)
    own = tokenizer(template)
    for name in ("reasoning", "thinking", "reasoning_content"):
        last = {"role": "assistant", "content": "x", name: "because", "weight": None}
        chat = [*messages(CHATS[0][:1]), last]
        how = {"return_dict": True, "return_assistant_tokens_mask": True}
        theirs = own.apply_chat_template(chat, **how)
        assert "becausebecause" in own.decode(theirs["input_ids"])
        mine = built([{"messages": chat}], own)
        assert mine == [(theirs["input_ids"], theirs["assistant_masks"])]


@pytest.mark.slow
def test_published_templates_make_the_tokens_that_transformers_makes():
    """Every template that TRL brings; what raises there, or leaves a text out, is refused here."""
    made = refused_here = 0
    for path in sorted((Path(trl.__file__).parent / "chat_templates").glob("*.jinja")):
        own = tokenizer(path.read_text(encoding="utf-8"))
        for chat in map(messages, CHATS):
            try:
                ((mine, _),) = built([{"messages": chat}], own, train_on="all")
            except tl.TokenloomError:
                refused_here += 1
                continue
            assert mine == own.apply_chat_template(chat, return_dict=True)["input_ids"], path.name
            made += 1
    assert made > 2 * refused_here > 0, (made, refused_here)


def test_beginnings_train_what_the_template_writes_after_the_generation_prompt():
    rows = [{"messages": messages(turns)} for turns in CHATS[:3]]
    own = tokenizer(PLAIN)
    marked = built(rows, tokenizer())
    for (ids, mask), (same, less) in zip(built(rows, own), marked, strict=True):
        assert ids == same
        more = [a - b for a, b in zip(mask, less, strict=True)]
        # only the line break behind the end of each turn is trained besides
        assert own.decode([i for i, one in zip(ids, more, strict=True) if one]).strip("\n") == ""
        assert min(more) == 0
        assert sum(more) == ids.count(own.eos_token_id) - [
            i for i, one in zip(ids, mask, strict=True) if not one
        ].count(own.eos_token_id)

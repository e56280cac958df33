"""datatrove writes data/tokens.ds with its index, as its tokenizer step does."""

from datatrove.io import get_datafolder
from datatrove.pipeline.tokens.tokenizer import TokenizedFile
from given import documents, tell

file = TokenizedFile(get_datafolder("data"), "tokens.ds", save_index=True, token_size=2)
for ids in documents():
    file.write(ids, None)
file.close()
tell(documents())

"""Packing with lists and loops: what the fast planner must equal."""

from slow_orders import slow_draw, slow_key

B, E = "B", "E"


def slow_bins(lengths, capacity, strategy, most=None):
    """Every rule, by scanning all bins."""
    order = list(range(len(lengths)))
    if strategy.endswith("decreasing"):
        order.sort(key=lambda item: -lengths[item])
    bins = []

    def room(items):
        full = most is not None and len(items) >= most
        return -1 if full else capacity - sum(lengths[i] for i in items)

    for item in order:
        fits = [b for b in range(len(bins)) if room(bins[b]) >= lengths[item]]
        if strategy == "greedy":
            fits = [b for b in fits if b == len(bins) - 1]
        if strategy == "one_doc":
            fits = []
        if not fits:
            bins.append([item])
        elif strategy.startswith("best_fit"):
            least = min(room(bins[b]) for b in fits)
            bins[max(b for b in fits if room(bins[b]) == least)].append(item)
        else:
            bins[fits[0]].append(item)
    return bins


def slow_documents(lengths, spec):
    """Each used document as a list of cells: B, E, or (document, offset)."""
    documents = []
    for number, length in enumerate(lengths):
        if not max(1, spec.min_len) <= length <= (spec.max_len or length):
            continue
        used = min(length, spec.max_doc_tokens or length)
        cells = [(number, offset) for offset in range(used)]
        if spec.bos_id is not None:
            cells.insert(0, B)
        if spec.eos_id is not None and used == length:
            cells.append(E)
        documents.append((number, cells))
    return documents


def slow_pieces(documents, spec):
    """Pieces as (document, cells, tokens seen before); a document that is too long is cut."""
    pieces = []
    for number, cells in documents:
        if len(cells) <= spec.width:
            pieces.append((number, cells, 0))
        elif spec.overflow == "drop":
            continue
        elif spec.overflow == "truncate":
            pieces.append((number, cells[: spec.width], 0))
        else:
            found, begin = [], 0
            while True:
                found.append(cells[begin : begin + spec.width])
                if begin + spec.width >= len(cells):
                    break
                begin += spec.width - spec.stride
            if found[-1] == [E]:
                found[-1].insert(0, found[-2].pop())
            pieces.append((number, found[0], 0))
            for piece in found[1:]:
                tokens = [cell for cell in piece if isinstance(cell, tuple)]
                pieces.append((number, piece, min(spec.stride, len(tokens))))
    return pieces


def slow_rows(lengths, spec, group=0):
    """Rows as lists of pieces (document, cells, tokens seen before)."""
    documents = slow_documents(lengths, spec)
    if spec.strategy == "sequential":
        line = [(number, cell) for number, cells in documents for cell in cells]
        step, rows, begin = spec.width - spec.overlap, [], 0
        while line:
            rows.append(_pieces_of(line[begin : begin + spec.width], documents))
            if begin + spec.width >= len(line):
                break
            begin += step
    else:
        pieces = slow_pieces(documents, spec)
        sizes = [len(cells) for _, cells, _ in pieces]
        bins = slow_bins(sizes, spec.width, spec.strategy, spec.max_docs_per_bin)
        rows = [[pieces[item] for item in items] for items in bins]
    if not spec.mask_overlap:
        rows = [[(number, cells, 0) for number, cells, _ in row] for row in rows]
    rows = [row for row in rows if sum(len(cells) for _, cells, _ in row) >= spec.min_row_len]
    if spec.shuffle_output:
        stream = slow_key(spec.shuffle_seed, "pack", "rows", group)
        rows = [
            row for _, row in sorted(enumerate(rows), key=lambda one: slow_draw(stream, one[0]))
        ]
    return rows


def _pieces_of(cells, documents):
    """A row of the line, document by document."""
    pieces = []
    for number, cell in cells:
        if pieces and pieces[-1][0] == number:
            pieces[-1][1].append(cell)
        else:
            pieces.append((number, [cell], 0))
    return pieces

"""Takes words, numbers and marks → gives pages that stand alone: no network, no inline code.

- `tokenloom.page.markup` makes elements; what it is given is text, never code.
- `tokenloom.page.charts` draws bars, lines, areas, strips and maps as SVG, in two widths.
- `tokenloom.page.standalone` puts drawings into an SVG file that has its colours inside.
- `tokenloom.page.figure` is a drawing with its message and its numbers.
- `tokenloom.page.document` is a whole page: style and script inside it, allowed by their hashes.
"""

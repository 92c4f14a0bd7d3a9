"""The parts of documents that tools write: between <!-- NAME:begin --> and <!-- NAME:end -->."""

import re

LINE_COLUMNS = 100
# What stays in one piece: a link, a code span that is no longer than a line, a word.
PIECE = re.compile(r"(?:\[[^\]]*\]\([^)]*\)|`[^`]*`|\S)+")
# A line must not begin with what Markdown takes for a list, a heading, a quotation or a table, nor
# with the unit of the number before it.
NO_LINE_BEGIN = re.compile(r"(?:[-+*>|]|#+|\d+[.)]|%[.,;:]?)$")
ITEM = re.compile(r"\s*(?:[-*+]|\d+\.)\s+")
KEPT = re.compile(r"\s*(?:\||#|!\[|<!--|>)")


def wrap_line(line):
    """The line as lines of at most LINE_COLUMNS, a list item indented below its first word."""
    if len(line) <= LINE_COLUMNS or KEPT.match(line):
        return [line]
    item = ITEM.match(line)
    lead = item.group() if item else re.match(r"\s*", line).group()
    pieces = []
    for piece in PIECE.findall(line[len(lead):]):
        is_long_code = piece.startswith("`") and len(piece) > LINE_COLUMNS - len(lead)
        pieces += piece.split() if is_long_code else [piece]
    lines, current = [], lead + pieces[0]
    for number, piece in enumerate(pieces[1:], start=1):
        following = pieces[number + 1] if number + 1 < len(pieces) else ""
        width = len(current) + 1 + len(piece)
        # A piece that may not begin a line takes the one after it along.
        if NO_LINE_BEGIN.match(following):
            width += 1 + len(following)
        if width > LINE_COLUMNS and not NO_LINE_BEGIN.match(piece):
            lines.append(current)
            current = " " * len(lead) + piece
        else:
            current += " " + piece
    return [*lines, current]


def wrap(text):
    """Markdown with its prose wrapped; tables, headings, pictures and fenced blocks stay."""
    lines, fenced = [], False
    for line in text.split("\n"):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        lines += [line] if fenced else wrap_line(line)
    return "\n".join(lines)


def replace_section(path, name, section):
    begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
    text = path.read_text(encoding="utf-8")
    if text.count(begin) != 1 or text.count(end) != 1:
        raise ValueError(f"{path} has not exactly one {begin} and {end}")
    before, rest = text.split(begin)
    _, after = rest.split(end)
    path.write_text(f"{before}{begin}\n{wrap(section)}\n{end}{after}", encoding="utf-8")
    print(f"written: {path}", flush=True)

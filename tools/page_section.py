"""The parts of documents that tools write: between <!-- NAME:begin --> and <!-- NAME:end -->."""


def replace_section(path, name, section):
    begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
    text = path.read_text(encoding="utf-8")
    if text.count(begin) != 1 or text.count(end) != 1:
        raise ValueError(f"{path} has not exactly one {begin} and {end}")
    before, rest = text.split(begin)
    _, after = rest.split(end)
    path.write_text(f"{before}{begin}\n{section}\n{end}{after}", encoding="utf-8")
    print(f"written: {path}", flush=True)

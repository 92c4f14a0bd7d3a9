"""Rows of measurements related to each other, as tables, and what is aimed for."""

import re
import statistics

KIB = 1024
MIB = 1024 * KIB
# A segment of 1448 bytes of payload is a frame of 1514, which is what the shaper counts.
TCP_SHARE = 1448 / 1514
TIMES = ("median_us", "p99_us")


def size_text(size):
    return f"{size // MIB} MiB" if size >= MIB else f"{size // KIB} KiB"


def rate_gbit(link):
    """Of a Link; None if it is not shaped."""
    if not link.rate:
        return None
    number, unit = re.fullmatch(r"(\d+)([gm])bit", link.rate).groups()
    return int(number) * (1.0 if unit == "g" else 1e-3)


def median_rows(runs):
    """One row for each size and contestant of the seeds' runs: the medians, and the rounds of all. `spread` is
    half of what lies between the smallest and the largest median time, by their median."""
    cases = {}
    for rows in runs:
        for row in rows:
            cases.setdefault((row["bytes"], row["contestant"]), []).append(row)
    return [median_row(rows) for rows in cases.values()]


def median_row(rows):
    made = dict(rows[0])
    for key in made:
        if key in TIMES or isinstance(made[key], float):
            made[key] = statistics.median(row[key] for row in rows)
    times = [row["median_us"] for row in rows]
    made["rounds"] = sum(row["rounds"] for row in rows)
    made["spread"] = (max(times) - min(times)) / 2 / made["median_us"]
    return made


def finish_rows(name, link, iperf, rows):
    """A section of the result: the rows of one link, related to Gloo's and to iperf3's."""
    gloo = {row["bytes"]: row["median_us"] for row in rows if row["contestant"] == "gloo"}
    rate = rate_gbit(link)
    for row in rows:
        row["link"] = name
        row["vs_gloo"] = gloo[row["bytes"]] / row["median_us"] if row["bytes"] in gloo else None
        # An all-reduce by ranges: each node sends 2 (n-1)/n of the tensor, and receives as much.
        nodes = row["nodes"]
        sent = row.get("bytes_sent_per_op", 2 * (nodes - 1) / nodes * row["bytes"])
        row["goodput_gbit"] = 8e-3 * sent / row["median_us"]
        row["of_iperf3"] = None
        row["of_rate"] = row["goodput_gbit"] / rate if rate else None
        row["of_wire"] = row["goodput_gbit"] / (rate * TCP_SHARE) if rate else None
        if iperf and row["contestant"] in LOSSLESS:
            row["of_iperf3"] = row["goodput_gbit"] / (sum(iperf) / len(iperf))
    return {"link": name, "nodes": rows[0]["nodes"] if rows else 0, "rate_gbit": rate,
            "iperf3_gbit": iperf, "rows": rows}


def cell(value, form, missing="-"):
    return missing if value is None else format(value, form)


COLUMNS = ("size", "contestant", "rounds", "median us", "p99 us", "x Gloo", "of iperf3", "Gbit/s",
           "ratio", "residual", "scale", "target")
LOSSLESS = ("gloo", "tern raw")


def scale_text(row):
    """Elements for each scale of 3LC; nothing where a recipe has none."""
    scale = row.get("scale")
    return {None: "-", 0: "tensor"}.get(scale, str(scale))


def cells(row):
    lossy = row["contestant"] not in LOSSLESS
    return (size_text(row["bytes"]), row["contestant"], str(row["rounds"]),
            f"{row['median_us']:,.0f}", f"{row['p99_us']:,.0f}", speed_text(row),
            cell(row["of_iperf3"], ".2f"), f"{row['goodput_gbit']:.2f}",
            cell(row.get("ratio"), ".2f"), cell(row.get("residual_ratio") if lossy else None, ".3g"),
            scale_text(row), row.get("target", "-"))


def heading(section):
    text = f"{section['nodes']} nodes, {section['link']}"
    if section["iperf3_gbit"]:
        text += ", iperf3 --bidir " + " + ".join(f"{way:.2f}" for way in section["iperf3_gbit"])
        text += " Gbit/s"
    return text


def text_table(section):
    lines = [COLUMNS] + [cells(row) for row in section["rows"]]
    widths = [max(len(line[column]) for line in lines) for column in range(len(COLUMNS))]
    def line_text(line):
        return "  ".join(word.ljust(width) if column < 2 else word.rjust(width)
                         for column, (word, width) in enumerate(zip(line, widths)))
    return "\n".join(["", f"-- {heading(section)}", *map(line_text, lines)])


BURST = "†"
BURST_NOTE = (f"{BURST}: faster by more than the compression ratio. The operation began with a full "
              "token bucket, as every measured operation on a shaped link does; back to back this "
              "speed cannot be sustained.")


def beyond_ratio(row):
    """Whether a compressed operation was faster than Gloo by more than it saved of the bytes."""
    ratio = row.get("ratio") or 1.0
    return bool(row.get("vs_gloo")) and 1.0 < ratio < row["vs_gloo"]


def speed_text(row):
    text = cell(row["vs_gloo"] if row else None, ".2f")
    return f"{text} {BURST}" if row and beyond_ratio(row) else text


def markdown_table(header, lines):
    rows = [header, ["---"] * len(header), *lines]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def find(sections, link, size, contestant):
    for section in sections:
        if section["link"] == link and section["nodes"] == 2:
            for row in section["rows"]:
                if row["bytes"] == size and row["contestant"] == contestant:
                    return row
    return None


def aim(name, measured, limit, at_least=True, burst=False):
    met = None if measured is None else (measured >= limit if at_least else measured <= limit)
    return {"aim": name, "limit": f"{'>=' if at_least else '<='} {limit:g}", "measured": measured,
            "met": met, "burst": burst}


def all_aims(sections, idle):
    def value(link, size, contestant, key):
        row = find(sections, link, size, contestant)
        return row and row[key]

    def speed_aim(link, limit):
        row = find(sections, link, 64 * MIB, "tern 3lc:s=1")
        return aim(f"3lc:s=1 64 MiB at {link}, speed relative to Gloo", row and row["vs_gloo"],
                   limit, burst=bool(row) and beyond_ratio(row))

    raw = [row for section in sections for row in section["rows"]
           if row["contestant"] == "tern raw" and row["vs_gloo"]]
    large = [row["vs_gloo"] for row in raw if row["bytes"] >= 64 * KIB and row["nodes"] == 2]
    many = [row["vs_gloo"] for row in raw if row["nodes"] > 2]
    small = [1 / row["vs_gloo"] for row in raw if row["bytes"] == 4 * KIB]
    return [
        aim("raw 64 MiB at 10gbit, goodput of iperf3 --bidir",
            value("10gbit", 64 * MIB, "tern raw", "of_iperf3"), 0.85),
        aim("raw 64 MiB at 1gbit, goodput of the link's rate",
            value("1gbit", 64 * MIB, "tern raw", "of_rate"), 0.95),
        aim("raw 64 MiB at 1gbit, goodput of what TCP can carry",
            value("1gbit", 64 * MIB, "tern raw", "of_wire"), 0.95),
        aim("raw, two nodes, 64 KiB and more: least speed relative to Gloo",
            min(large, default=None), 1.0),
        aim("raw, more nodes: least speed relative to Gloo", min(many, default=None), 1.0),
        speed_aim("1gbit", 18.0),
        speed_aim("10gbit", 4.0),
        aim("4 KiB raw, greatest latency relative to Gloo", max(small, default=None), 1.3, False),
        aim("idle daemon, percent of a core",
            max((state["core_percent"] for state in idle.values()), default=None), 0.2, False),
        aim("idle daemon, MiB resident without arenas",
            max((state["resident_mib"] for state in idle.values()), default=None), 32.0, False),
    ]


def figures_table(sections):
    """A line for each link and size: Gloo's time, and how many times faster each recipe is."""
    contestants = [row["contestant"] for row in sections[0]["rows"] if row["bytes"] == 4 * KIB]
    recipes = [name for name in contestants if name != "gloo"]
    lines = []
    for section in sections:
        for gloo in (row for row in section["rows"] if row["contestant"] == "gloo"):
            same = {row["contestant"]: row for row in section["rows"]
                    if row["bytes"] == gloo["bytes"]}
            of_iperf3 = same["tern raw"]["of_iperf3"] if gloo["bytes"] >= MIB else None
            lines.append((str(section["nodes"]), section["link"], size_text(gloo["bytes"]),
                          f"{gloo['median_us']:,.0f} us",
                          *(speed_text(same.get(name)) for name in recipes),
                          cell(of_iperf3, ".2f")))
    names = [f"`{name.removeprefix('tern ')}`" for name in recipes]
    return markdown_table(("nodes", "link", "size", "Gloo", *names, "raw / iperf3"), lines)


def aims_table(aims):
    verdicts = {True: "met", False: "**missed**", None: "not measured"}
    return markdown_table(("aim", "wanted", "measured", ""), [
        (row["aim"], row["limit"],
         cell(row["measured"], ".3g") + (f" {BURST}" if row.get("burst") else ""),
         verdicts[row["met"]])
        for row in aims])


def environment(result):
    seeds = ", ".join(map(str, result["seeds"]))
    return (f"{result['processor']}, {result['cores']} cores, Linux {result['kernel']}, "
            f"{'real-time' if result['real_time'] else 'ordinary'} class, inputs "
            f"{'recorded' if isinstance(result['input'], list) else result['input']}, "
            f"seed{'s' if len(result['seeds']) > 1 else ''} {seeds}, `{result['command']}`")


def calls_text(result):
    for case, calls in (result["system_calls"] or {}).items():
        listed = ", ".join(f"{name} {count:g}" for name, count in calls.items())
        yield (f"System calls of one daemon for each raw operation of {case}: "
               f"{sum(calls.values()):.1f} ({listed}).")


def figures(result):
    """The section of docs/benchmarks.md."""
    iperf = ", ".join(f"{section['link']} " + " + ".join(f"{way:.2f}" for way in section["iperf3_gbit"])
                      for section in result["sections"] if section["iperf3_gbit"])
    return "\n".join([
        f"Of {result['commit']}, {result['date'][:10]}: {environment(result)}.\n",
        "Gloo's median time, and how many times as fast as Gloo Tern is with each recipe in the same "
        "rounds: medians of the seeds' medians. The last column is raw's goodput by that of "
        f"`iperf3 --bidir`. {spread_text(result['sections'])}\n",
        figures_table(result["sections"]) + "\n",
        BURST_NOTE + "\n",
        f"iperf3 --bidir, Gbit/s each way: {iperf}.\n",
        aims_table(result["aims"]) + "\n",
        *(line + "\n" for line in calls_text(result))])


def spread_text(sections):
    """How far the seeds lie apart, over all rows."""
    spreads = sorted(row["spread"] for section in sections for row in section["rows"])
    return (f"Half of what lies between the seeds' smallest and largest time is {100 * spreads[len(spreads) // 2]:.0f} % "
            f"in the median row, and {100 * spreads[-1]:.0f} % in the row where it is most.")


def short_speed(row):
    digits = 1 if row["vs_gloo"] >= 10 else 2
    return f"{row['vs_gloo']:.{digits}f} times as fast" + (f" {BURST}" if beyond_ratio(row) else "")


def short_figures(result):
    """The README's table: all-reduce of 64 MiB between two nodes."""
    lines, marked = [], False
    for link, text in (("1gbit", "1 Gbit/s"), ("10gbit", "10 Gbit/s"), ("unshaped", "unshaped")):
        gloo, raw, lossy = (find(result["sections"], link, 64 * MIB, contestant)
                            for contestant in ("gloo", "tern raw", "tern 3lc:s=1"))
        speeds = [short_speed(row) for row in (raw, lossy)]
        lines.append((text, f"{gloo['median_us'] / 1e3:.0f} ms", *speeds))
        marked = marked or beyond_ratio(lossy)
    return "\n".join([
        markdown_table(("link", "Gloo", "Tern, raw", "Tern, `3lc:s=1`"), lines) + "\n",
        f"{result['date'][:10]}, commit {result['commit']}, {environment(result)}." + (f" {BURST_NOTE}" if marked else "")])


def markdown(result, recorded=""):
    """The whole report; `recorded` is the table of codecs on a recorded gradient, if there is one."""
    parts = [f"# Benchmarks of {result['commit']}, {result['date']}\n", environment(result) + ".\n"]
    for section in result["sections"]:
        parts.append(f"## {heading(section)}\n")
        parts.append(markdown_table(COLUMNS, map(cells, section["rows"])) + "\n")
    parts.append(BURST_NOTE + "\n")
    if recorded:
        parts.append("## Codecs on a recorded gradient\n")
        parts.append(recorded + "\n")
    parts.append("## Daemon\n")
    parts.append(markdown_table(("state", "% of a core", "MiB resident"), [
        (state, f"{seen['core_percent']:.3f}", f"{seen['resident_mib']:.1f}")
        for state, seen in result["idle"].items()]) + "\n")
    parts += [line + "\n" for line in calls_text(result)]
    parts.append("## Aims\n")
    parts.append(aims_table(result["aims"]))
    return "\n".join(parts) + "\n"

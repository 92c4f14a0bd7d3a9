"""The text of the study: tables and sentences from the measured rows. study.py puts them into the page."""

import statistics

import study_plan as plan
from study_cost import COST_TABLE

PERCENT = 100.0


# ---- What rows say ------------------------------------------------------------------------------

def seconds(row, link_gbit):
    """Time of a value through encoder, link and decoder at work at once, one core at each end. Raw
    needs no coder: the link reads and writes the tensor."""
    on_link = row["bits_per_value"] / (1e9 * link_gbit)
    if row["recipe"] == "none(raw)":
        return on_link
    return max(on_link, 4e-9 / row["encode_gb_per_s"], 4e-9 / row["decode_gb_per_s"])


def pays_below(row):
    """The link, in Gbit/s, below which encoding, sending and decoding one after the other takes less
    time than sending raw."""
    saved_bits = 32 - row["bits_per_value"]
    return saved_bits / (4 / row["encode_gb_per_s"] + 4 / row["decode_gb_per_s"])


def is_lossless(row):
    return row["first_error"] == 0 and row["error"] == 0


def allowed(row, key, limit):
    if key is None or is_lossless(row):
        return is_lossless(row)
    return row[key] <= limit


def simplest(rows, cost):
    """The shortest recipe of those that cost within 3 % of the least: less than times vary."""
    least = min(cost(row) for row in rows)
    near = [row for row in rows if cost(row) <= 1.03 * least]
    return min(near, key=lambda row: (len(row["recipe"].split("+")), cost(row)))


def candidates(data, key, limit):
    """The rows within a limit, without those whose coder gains nothing: they are the recipe without
    it, and only chance makes them faster."""
    for name, row in data["rows"].items():
        plain = data["rows"].get(name[:name.rindex("+")] + ")") if "+" in name else None
        if plain and row["bits_per_value"] > 0.98 * plain["bits_per_value"]:
            continue
        if allowed(row, key, limit):
            yield row


def best_row(data, key, limit, link_gbit):
    fitting = list(candidates(data, key, limit))
    return simplest(fitting, lambda row: seconds(row, link_gbit))


def frontier(rows):
    """Those of which no other has both fewer bits and less error."""
    best = []
    for row in sorted(rows, key=lambda row: row["bits_per_value"]):
        if row["step_error"] > 0 and (not best or row["step_error"] < best[-1]["step_error"]):
            best.append(row)
    return best


def in_set(data, stage):
    """The row of a stage under the memory that it has in this set."""
    for memory in ("ef", "none"):
        row = data["rows"].get(f"{memory}({stage})")
        if row:
            return row
    return None


def coder_share(data, stage, coder):
    plain, coded = in_set(data, stage), in_set(data, f"{stage}+{coder}")
    return coded["bits_per_value"] / plain["bits_per_value"] if plain and coded else None


# ---- Tables -------------------------------------------------------------------------------------

def table(heading, rows):
    lines = ["| " + " | ".join(heading) + " |", "|" + "---|" * len(heading)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def spread(values, form="{:.2f}"):
    values = list(values)
    if not values:
        return "-"
    middle, least, most = (form.format(value) for value in
                           (statistics.median(values), min(values), max(values)))
    return middle if least == most else f"{middle} ({least} to {most})"


def short(value):
    if value == 0:
        return "0"
    return f"{value:.2g}" if value < 9.95 else f"{value:.0f}"


def all_rows(data):
    gradients = data["kind"] == "gradients"
    heading = ["recipe", "ratio", "bits", "error 1", "error"]
    heading += ["of sums"] if gradients else []
    heading += ["residual", "encode", "decode", "state", "pays below"]
    rows = []
    for name, row in data["rows"].items():
        cells = [f"`{name}`", f"{row['compression_ratio']:.2f}", f"{row['bits_per_value']:.3g}",
                 short(row["first_error"]), short(row["error"])]
        cells += [short(row["sum_error"])] if gradients else []
        cells += [short(row["residual_energy_over_input_energy"]), f"{row['encode_ratio']:.2f}",
                  f"{row['decode_ratio']:.2f}",
                  f"{short(row['sender_state_bytes_per_value'])} + "
                  f"{short(row['reader_state_bytes_per_value'])}",
                  "-" if name == "none(raw)" else f"{pays_below(row):.1f}"]
        rows.append(cells)
    return (f"#### {data['title'][0].upper()}{data['title'][1:]}\n{data['elements']:,} values, "
            f"{data['steps']} steps.\n\n" + table(heading, rows))


def links(data):
    limits = plan.LIMITS[data["kind"]]
    rows = []
    for link in plan.LINKS_GBIT:
        raw = seconds(data["rows"]["none(raw)"], link)
        cells = [f"{link:g} Gbit/s"]
        for _, key, limit in limits:
            best = best_row(data, key, limit, link)
            gain = raw / seconds(best, link)
            cells.append("raw" if best["recipe"] == "none(raw)"
                         else f"`{best['recipe']}` {gain:.3g}x")
        rows.append(cells)
    return f"{data['title'][0].upper()}{data['title'][1:]}:\n\n" + table(
        ["link", *(title for title, _, _ in limits)], rows)


def coders(sets):
    """One row a coder, over all data sets and quantizers."""
    stages = plan.CODED + ["bf16"]
    pairs = [(data, stage) for data in sets for stage in stages]

    def ratios(coder, key, base):
        for data, stage in pairs:
            row, other = in_set(data, f"{stage}+{coder}"), in_set(data, f"{stage}{base}")
            if row and other:
                yield row[key] / other[key]
    rows = []
    for coder in plan.CODERS:
        rows.append([coder, spread(ratios(coder, "bits_per_value", "")),
                     spread(ratios(coder, "bits_per_value", "+huffman")),
                     spread(ratios(coder, "encode_gb_per_s", "+huffman")),
                     spread(ratios(coder, "decode_gb_per_s", "+huffman"))])
    heading = ["coder", "bits by those without", "bits by Huffman's", "encode, speed by Huffman's",
               "decode, speed by Huffman's"]
    return table(heading, rows)


def coder_sentence(sets):
    def by_huffman(data, coder):
        return PERCENT * (statistics.median(
            coder_share(data, stage, coder) / coder_share(data, stage, "huffman")
            for stage in plan.CODED + ["bf16"]) - 1)
    parts = [f"{data['name']} gzip {by_huffman(data, 'gzip'):+.1f} %, zstd "
             f"{by_huffman(data, 'zstd'):+.1f} %, lz4 {by_huffman(data, 'lz4'):+.1f} %"
             for data in sets]
    return ("Bits by those of Huffman, the median over quantizers: " + "; ".join(parts) + ". Where "
            "codes are independent of each other there is nothing for gzip, zstd and lz4 to find but "
            "what an entropy coder finds too, and lz4 has none. MNIST's gradients are the exception: "
            "all pixels that are dark in the images that a unit responds to have the same gradient, "
            "again and again, which a search for repetitions finds and Huffman cannot.")


def coder_bits(sets):
    rows = []
    for data in sets:
        for stage in plan.CODED + plan.CODED_PLAIN:
            cells = [data["name"], f"`{stage}`"]
            for coder in ["", *plan.CODERS]:
                row = in_set(data, f"{stage}+{coder}" if coder else stage)
                cells.append(f"{row['bits_per_value']:.3f}" if row else "-")
            rows.append(cells)
    return table(["data", "quantizer", "none", *plan.CODERS], rows)


def books(entries):
    rows = []
    for entry in entries:
        bits = {key: row["bits_per_value"] for key, row in entry["rows"].items()}
        speed = {key: row["encode_ratio"] for key, row in entry["rows"].items()}
        rows.append([entry["set"], f"`{entry['recipe']}`", f"{entry['chunk_kib']} KiB",
                     *(f"{bits[key]:.3f}" for key in ("plain", "dynamic", "own", "other")),
                     f"{speed['dynamic']:.2f}", f"{speed['own']:.2f}"])
    return table(["data", "codes of", "chunk", "no coder", "dynamic", "static", "static of other",
                  "encode, dynamic", "encode, static"], rows)


def book_sentence(entries):
    parts = []
    for chunk_kib in plan.BOOK_CHUNKS_KIB:
        chosen = [entry["rows"] for entry in entries if entry["chunk_kib"] == chunk_kib]

        def change(key, rows=chosen):
            return spread((PERCENT * (row[key]["bits_per_value"] / row["dynamic"]["bits_per_value"]
                                      - 1) for row in rows), "{:+.1f}")
        faster = spread(row["own"]["encode_gb_per_s"] / row["dynamic"]["encode_gb_per_s"]
                        for row in chosen)
        parts.append(f"In chunks of {chunk_kib} KiB a static book changes the bits by "
                     f"{change('own')} % against a dynamic one, a book of the other model by "
                     f"{change('other')} %, and encoding is {faster} times as fast.")
    return (f"Static books learnt from steps {plan.EARLY.start} to {plan.EARLY.stop - 1}. "
            + " ".join(parts))


def lloyd(sets):
    rows = []
    for data in sets:
        for bits in range(2, 7):
            learnt, even = in_set(data, f"lloyd:bits={bits}"), in_set(data, f"int:bits={bits}")
            rows.append([data["name"], str(bits), short(learnt["first_error"]),
                         short(even["first_error"]),
                         f"{learnt['first_error'] / even['first_error']:.2f}",
                         f"{learnt['encode_ratio']:.2f}", f"{even['encode_ratio']:.2f}"])
    return table(["data", "bits", "error, Lloyd", "error, int", "Lloyd by int", "encode, Lloyd",
                  "encode, int"], rows)


def lloyd_sentence(sets):
    def by(bits, key):
        return spread(in_set(data, f"lloyd:bits={bits}")[key] / in_set(data, f"int:bits={bits}")[key]
                      for data in sets)
    coded = spread(in_set(data, "lloyd:bits=4+huffman")["bits_per_value"]
                   / in_set(data, "int:bits=4+huffman")["bits_per_value"] for data in sets)
    worth = [bits for bits in range(2, 7)
             if statistics.median(in_set(data, f"lloyd:bits={bits}")["first_error"]
                                  / in_set(data, f"int:bits={bits}")["first_error"]
                                  for data in sets) < 0.9]
    return (f"At the same bits Lloyd's levels leave {by(2, 'first_error')} of the error of uniform "
            f"ones at 2 bits, {by(4, 'first_error')} at 4 and {by(6, 'first_error')} at 6, and encode "
            f"at {by(4, 'encode_gb_per_s')} of their speed at 4. Uniform codes are used less evenly, "
            f"so that a coder gains more on them: with Huffman, 4 bits of Lloyd take {coded} times the "
            "bits of 4 uniform ones. The gain is more than a tenth of the error at "
            f"{', '.join(map(str, worth)) or 'no number of'} bits. `int` has a scale for 256 values and "
            "`lloyd` one codebook for a chunk, so that `int` is the better one where neighbours are "
            "alike and others are not, as the gradients of dark and bright pixels.")


def lossless(entries):
    rows = []
    for entry in entries:
        cells = [entry["set"], entry["dtype"]]
        for name in ("none(lossless)", "none(xordelta)"):
            row = entry["rows"][name]
            cells += [f"{row['compression_ratio']:.3f}", f"{row['encode_ratio']:.2f}",
                      f"{row['decode_ratio']:.2f}"]
        rows.append(cells)
    return table(["data", "type", "`lossless`, ratio", "encode", "decode", "`xordelta`, ratio",
                  "encode", "decode"], rows)


def cheapest(data):
    """The fewest bits within each limit, as a sentence."""
    parts = []
    for title, key, limit in plan.LIMITS[data["kind"]]:
        best = simplest(list(candidates(data, key, limit)), lambda row: row["bits_per_value"])
        parts.append(f"{title} `{best['recipe']}` with {best['bits_per_value']:.3g}")
    return f"* {data['title']}: " + "; ".join(parts) + "."


def in_short(result):
    """The answers, with their figures."""
    sets = result["sets"]
    gradients = [data for data in sets if data["kind"] == "gradients"]
    weights = [data for data in sets if data["kind"] == "weights"]

    def of(chosen, recipe, key, form="{:.2g}"):
        rows = [data["rows"][recipe] for data in chosen]
        return spread([row[key] for row in rows], form)

    def below(chosen, recipe):
        return spread([pays_below(data["rows"][recipe]) for data in chosen], "{:.1f}")
    lines = [
        f"Lossless, f32: `lossless` takes {of(sets, 'none(lossless)', 'bits_per_value', '{:.1f}')} of "
        f"32 bits and pays below {below(sets, 'none(lossless)')} Gbit/s a core.",
        f"`bf16` and `int:bits=8` leave errors of {of(sets, 'none(bf16)', 'first_error')} and "
        f"{spread([in_set(data, 'int:bits=8')['first_error'] for data in sets], '{:.2g}')}, and pay "
        f"below {below(sets, 'none(bf16)')} and "
        f"{spread([pays_below(in_set(data, 'int:bits=8')) for data in sets], '{:.1f}')} Gbit/s.",
        "Gradients with error feedback may have large errors of a step: sums over "
        f"{gradients[0]['rows']['ef(onebit)']['steps']} steps are off by "
        f"{of(gradients, 'ef(int:bits=4)', 'sum_error')} with `int:bits=4`, "
        f"{of(gradients, 'ef(onebit)', 'sum_error')} with `onebit` (1 bit), "
        f"{of(gradients, 'ef(topk:p=0.01)', 'sum_error')} with `topk:p=0.01` and "
        f"{of(gradients, 'ef(3lc:s=1)', 'sum_error')} with `3lc:s=1`, which takes "
        f"{of(gradients, 'ef(3lc:s=1)', 'bits_per_value')} bits. What has not been sent "
        "is in the residual, and later steps send it. `3lc:s=1.75` with its "
        f"{of(gradients, 'ef(3lc:s=1.75)', 'bits_per_value')} bits still owes "
        f"{of(gradients, 'ef(3lc:s=1.75)', 'sum_error')} of the sums.",
        "Gradients of single batches have too little in common from step to step for a shift: "
        f"`ef21(lloyd:bits=4)` is off by {of(gradients, 'ef21(lloyd:bits=4)', 'error')} a step where "
        f"`lloyd:bits=4` alone is by {of(gradients, 'ef(lloyd:bits=4)', 'first_error')}.",
        "Weights change little from step to step, which a shift turns into bits: `ef21(3lc:s=1)` "
        f"leaves an error of {of(weights, 'ef21(3lc:s=1)', 'error')} with "
        f"{of(weights, 'ef21(3lc:s=1)', 'bits_per_value')} bits, `bf16` "
        f"{of(weights, 'none(bf16)', 'error')} with 16. The price is a copy at the sender and at every "
        "reader, and a first step of 32 bits. (ternd compresses tensors of the roles `gradient` and "
        "`delta` with loss, and sends tensors of the role `weights` bit for bit. Such a recipe is "
        "therefore for weights that are sent as a `delta`.)",
    ]
    return "\n".join(f"* {line}" for line in lines)


def state(data):
    chosen = ["none(raw)", "none(natural)", "ef(int:bits=4)", "ef(lloyd:bits=4)", "diana(natural)",
              "ef21(topk:p=0.1)", "ef21(lloyd:bits=4)", "none(lossless)", "none(xordelta)"]
    rows = []
    for name in chosen:
        row = data["rows"].get(name)
        if row:
            rows.append([f"`{name}`", f"{row['sender_state_bytes_per_value']:.3f}",
                         f"{row['reader_state_bytes_per_value']:.3f}"])
    return table(["recipe", "sender", "each reader, for each sender"], rows)


# ---- The section --------------------------------------------------------------------------------

def section(result):
    sets = result["sets"]
    own = [data for data in sets if any(data["name"].startswith(name) for name in plan.MODELS)]
    gradients = next(data for data in sets if data["kind"] == "gradients")
    return "\n\n".join([
        "Everything from here to the end of the section is written by `make study`, which trains two "
        "small models on one process, records the gradients and weights of "
        f"`{plan.TENSOR}`, and measures every recipe on steps {plan.LATE.start} to "
        f"{plan.LATE.stop - 1}. [benchmarks.md](benchmarks.md#recorded-tensors) says what the columns "
        "are and how to run a recipe on tensors of one's own; `tools/study.py --extra FOLDER` adds "
        f"such tensors to the study. Measured at commit {result['commit']}, {result['date']}, on "
        f"{result['processor']}, {result['cores']} cores, one thread, "
        f"tensors of {result['size_mib']} MiB, chunks of 256 KiB. Encode and decode are speeds by "
        "that of the pass `e[i] += x[i]`; state is bytes a value, at the sender + at each reader; "
        "*pays below* is the link in Gbit/s below which encoding, sending and decoding one after the "
        "other (1/E + 1/D < (1 - 1/ratio)/W) beats sending raw.",
        "### In short",
        in_short(result),
        "### Which recipe for which data and link",
        "The fewest bits a value within a limit of error:",
        "\n".join(cheapest(data) for data in sets),
        "The least time on a link, with encoder, link and decoder at work at once, a core at each "
        "end: max(1/E, 1/(ratio W), 1/D). Beyond the link at which a recipe's coder is the slowest of "
        "the three, more ratio buys nothing. *Sums* are those over all steps: with error feedback, or "
        "an unbiased recipe, they are much nearer than any one step. The figure is how many times "
        "faster than raw. Raw is charged for the link alone, and not for the processor time of "
        "copying, checking and adding its bytes. That is why raw wins at 100 Gbit/s here, while in "
        "the [tuner's simulation](tuner.md#what-it-makes-of-simulated-links), which charges raw for "
        "this time, `3lc:s=1` can be the faster one there.",
        *(links(data) for data in sets),
        "![Times faster than raw against the link](images/study_links.png)",
        "![Error against bits](images/study_error.png)",
        "### Huffman against gzip, zstd and lz4",
        coder_sentence(sets),
        "On the codes of " + ", ".join(f"`{stage}`" for stage in plan.CODED) + " and `bf16`, the "
        "median over all data and the range:",
        coders(sets),
        "Bits a value:",
        coder_bits(sets),
        "![Bits with each coder](images/study_coders.png)",
        "### Dynamic and static codebooks",
        book_sentence(result["books"]) + " A dynamic book must count the codes first and travels in "
        "every block. A static book needs neither, and fits badly where the data are not what it learnt.",
        books(result["books"]),
        "### Lloyd against uniform levels",
        lloyd_sentence(sets),
        lloyd(sets),
        "### Lossless",
        "Signs and mantissas are noise; only exponents shrink, and they are a smaller part of wider "
        "types. `xordelta` sends what differs from the values before. That helps weights, most of all "
        "in bf16, because a step changes few bf16 values. Gradients have no earlier values to differ "
        "from.",
        lossless(result["lossless"]),
        "### What a value costs",
        COST_TABLE,
        "### State",
        "Bytes a value. A residual or shift is one f32; a shift is kept by the sender and by every "
        "reader of it, which is what `diana` and `ef21` cost in a group.",
        state(gradients),
        "### All figures",
        *(all_rows(data) for data in own + [data for data in sets if data not in own]),
    ])

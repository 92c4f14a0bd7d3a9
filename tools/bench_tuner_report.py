"""What the tuner's measurements on real links come to: ratios with their intervals, verdicts, and the
tables of docs/tuner.md. bench_tuner.py measures."""

import random
import statistics

MIB = 1 << 20
# Of the median of the ratios of pairs.
WITHIN = {"vs_best": 1.05, "vs_raw": 1.03}
SLOW = ("100mbit", "1gbit")  # from 1 MiB on every level compresses there
FIRST_ROUNDS = 3  # after a change
RESAMPLES = 2000


def interval(ratios, generator):
    """The 95 % bootstrap interval of the median of the ratios."""
    medians = sorted(statistics.median(generator.choices(ratios, k=len(ratios)))
                     for _ in range(RESAMPLES))
    return medians[int(0.025 * RESAMPLES)], medians[int(0.975 * RESAMPLES)]


def compare(mine, theirs, bound, generator):
    """The ratios of times in pairs. `certain`: the whole interval is on one side of the bound."""
    ratios = [one / other for one, other in zip(mine, theirs)]
    low, high = interval(ratios, generator)
    median = statistics.median(ratios)
    return {"median": median, "low": low, "high": high, "bound": bound, "passes": median <= bound,
            "certain": high <= bound or low > bound}


def judge(seconds, generator):
    """Of the times of all contestants by their names, in rounds: auto beside raw and beside whichever
    other has the least median."""
    medians = {name: 1e6 * statistics.median(times) for name, times in seconds.items()}
    best = min((name for name in medians if name != "auto"), key=medians.get)
    return {"auto_us": medians["auto"], "best": best, "best_us": medians[best],
            "raw_us": medians["raw"],
            "vs_best": compare(seconds["auto"], seconds[best], WITHIN["vs_best"], generator),
            "vs_raw": compare(seconds["auto"], seconds["raw"], WITHIN["vs_raw"], generator)}


def faults_of(run):
    """What is wrong with the choice at the end of one run, beside its times."""
    if run["choice"] is None:
        return [f"what auto has chosen is not known: {run['reason']}"]
    faults = []
    if run["link"] in SLOW and run["bytes"] >= MIB and run["choice"] == "raw":
        faults.append("auto sends raw on a slow link")
    if "nothing is known yet" in run["reason"]:
        faults.append(f"after {run['ops']} operations auto says that nothing is known")
    # One switch in fifty without a change; the link has not changed here.
    if run["switches"] > 3 + run["ops"] // 50:
        faults.append(f"auto has changed {run['switches']} times in {run['ops']} operations")
    return faults


def pool(runs, seed):
    """One result for all runs of one case, each of a seed of its own."""
    names = runs[0]["seconds"]
    seconds = {name: [time for run in runs for time in run["seconds"][name]] for name in names}
    faults = [f"seed {run['seed']}: {fault}" for run in runs for fault in faults_of(run)]
    about = {key: runs[0][key] for key in ("setting", "level", "link", "bytes")}
    return about | judge(seconds, random.Random(seed)) | {
        "choices": sorted({run["choice"] or "unknown" for run in runs}), "faults": faults,
        "pairs": len(seconds["auto"])}


def rounds_within(rows, begin, end):
    """The numbers of the rounds in which every contestant began and ended in that span, in their order."""
    count = min(len(row["at"]) for row in rows)
    return [number for number in range(count)
            if all(begin <= row["at"][number] and row["at"][number] + row["seconds"][number] < end
                   for row in rows)]


def spans_of_course(rows, changes):
    """[(link, {contestant: its times})] of each link that a run went through."""
    spans = []
    for (begin, name), (end, _) in zip(changes, changes[1:]):
        numbers = rounds_within(rows, begin, end)
        spans.append((name, {row["contestant"].removeprefix("tern "):
                             [row["seconds"][number] for number in numbers] for row in rows}))
    return spans


def judge_course(courses, seed):
    """One result for each link of the course, of all its runs, and one of the first rounds after all
    changes."""
    results, first = [], {"auto": [], "best": [], "raw": []}
    for spans in zip(*courses):
        settled = {name: [time for _, times in spans for time in times[name][FIRST_ROUNDS:]]
                   for name in spans[0][1]}
        if not settled["auto"]:
            raise ValueError(f"{spans[0][0]}: no more than {FIRST_ROUNDS} rounds between two changes; let the link "
                             "change less often")
        result = judge(settled, random.Random(seed)) | {
            "link": spans[0][0], "pairs": len(settled["auto"])}
        for key, name in (("auto", "auto"), ("best", result["best"]), ("raw", "raw")):
            first[key] += [1e6 * time for _, times in spans for time in times[name][:FIRST_ROUNDS]]
        results.append(result)
    return results, {key: statistics.median(values) for key, values in first.items()}


def passes(result):
    return all(result[key]["passes"] for key in WITHIN) and not result.get("faults")


def size_text(size):
    return f"{size // MIB} MiB" if size >= MIB else f"{size // 1024} KiB"


def pair_text(pair):
    return (f"{pair['median']:.2f} ({pair['low']:.2f} to {pair['high']:.2f})"
            f"{'' if pair['passes'] else ', **misses**'}")


def line(result):
    """One result for a terminal."""
    return (f"{result.get('setting', ''):>6} {result.get('level', ''):>12} {result['link']:>9} "
            f"{size_text(result['bytes']) if 'bytes' in result else '':>7}: auto {result['auto_us']:.0f} us, "
            f"best {result['best']} {result['best_us']:.0f} us, raw {result['raw_us']:.0f} us; auto/best "
            f"{pair_text(result['vs_best'])}, auto/raw {pair_text(result['vs_raw'])}")


def claims(results):
    """What the rows show, and nothing else."""
    missed = [result for result in results if not all(result[key]["passes"] for key in WITHIN)]
    faulty = [result for result in results if result["faults"]]
    uncertain = [result for result in results
                 if not all(result[key]["certain"] for key in WITHIN)]
    slower = [result for result in results if result["vs_raw"]["low"] > WITHIN["vs_raw"]]
    lines = [f"{len(results) - len(missed)} of {len(results)} cases keep both bounds by their medians. In "
             f"{len(uncertain)} a bound lies within the interval, so that the runs are too noisy to tell. "
             f"In {len(slower)} the lower end of auto / raw is above {WITHIN['vs_raw']}. "
             f"In {len(faulty)} something is wrong with the choice itself{':' if faulty else '.'}"]
    if faulty:
        lines.append("")
    lines += [f"- {result['setting']}, `{result['level']}`, {result['link']}, {size_text(result['bytes'])}, "
              f"{fault}." for result in results for fault in result["faults"]]
    return lines


def table(heading, rows):
    return "\n".join(["| " + " | ".join(heading) + " |", "|" + "---|" * len(heading)]
                     + ["| " + " | ".join(row) + " |" for row in rows])


def cells_of_times(result):
    return [f"{result['auto_us'] / 1e3:.2f}", f"`{result['best']}`, {result['best_us'] / 1e3:.2f}",
            f"{result['raw_us'] / 1e3:.2f}", pair_text(result["vs_best"]), pair_text(result["vs_raw"])]


def links_section(results, made, settings):
    """`made` says by whom and where; `settings` has a title for each setting's name."""
    parts = [made, "\n".join(claims(results))]
    for name, title in settings.items():
        rows = [[f"`{result['level']}`", result["link"], size_text(result["bytes"]), *cells_of_times(result),
                 ", ".join(f"`{choice}`" for choice in result["choices"])]
                for result in results if result["setting"] == name]
        if rows:
            parts += [f"**{title}**", table(["level", "link", "tensor", "auto, ms", "best static, ms", "raw, ms",
                                            "auto / best", "auto / raw", "auto ends with"], rows)]
    return "\n\n".join(parts)


def course_section(levels, made):
    """`levels`: {level: what judge_course returns}."""
    parts = [made]
    for level, (results, first) in levels.items():
        rows = [[f"`{level}`", result["link"], str(result["pairs"]), *cells_of_times(result)]
                for result in results]
        parts.append(table(["level", "link", "rounds", "auto, ms", "best static, ms", "raw, ms", "auto / best",
                            "auto / raw"], rows))
        parts.append(f"In the first {FIRST_ROUNDS} rounds after each change `{level}` took "
                     f"{first['auto'] / 1e3:.1f} ms, the best static recipe {first['best'] / 1e3:.1f} ms, and raw "
                     f"{first['raw'] / 1e3:.1f} ms (medians of all changes).")
    return "\n\n".join(parts)


def cost_section(results, made):
    rows = [[result["link"], size_text(result["bytes"]), f"{result['rounds']:,}",
             f"{100 * result['tuner_seconds'] / result['daemon_seconds']:.2f} %"] for result in results]
    return "\n\n".join([made, table(["link", "tensor", "operations", "the tuner's share"], rows)])

"""What was found, as tables: on a terminal, and in a document."""

import re

# The seconds below which a cost is meaningless.
SHORT = 0.25
PROGRAM_COLUMNS = ("program", "works", "peak in the account", "with --count resident", "VmHWM", "takes", "cost", "CPU's time")
LIMIT_COLUMNS = (
    "program",
    "--max",
    "peak in the account",
    "anonymous",
    "of the limit",
    "VmHWM",
    "refused",
    "status",
    "what it says",
    "why not 100 %",
)


def size(bytes_):
    """A size for people."""
    if bytes_ is None:
        return "-"
    for unit, shift in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if bytes_ >= 1 << shift:
            return f"{bytes_ / (1 << shift):.1f} {unit}"
    return f"{bytes_} B"


def cost(three):
    """A median between its quartiles, in percent."""
    if not three:
        return "-"
    low, middle, high = (100 * value for value in three)
    return f"{middle:+.1f} % ({low:+.1f} to {high:+.1f})"


def program_row(row, quick):
    """A line of the first table."""
    works = row["works"] + ("" if row["works"] == "yes" else ": " + "; ".join(map(str, row["differs"])))
    peak = size(row.get("peak")) if row.get("accounted", True) else "not accounted"
    seconds = f"{row['seconds']:.2f} s" if "seconds" in row else "-"
    times = ("-",) * 3 if quick else (seconds, "-", "-")
    # For a shorter program, the cost of starting the command would dominate.
    if not quick and row.get("seconds", 0) >= SHORT:
        times = (seconds, cost(row.get("cost")), cost(row.get("cpu_cost")))
    return (row["name"], works, peak, size(row.get("resident_peak")), size(row.get("resident")), *times)


def limit_row(row):
    """A line of the second table."""
    share = f"{100 * row['anonymous'] / row['limit']:.0f} %" + ("" if row["holds"] else ", does not hold")
    return (
        row["name"],
        size(row["limit"]),
        size(row["peak"]),
        size(row["anonymous"]),
        share,
        size(row["resident"]),
        str(row["refused"]),
        str(row["status"]),
        row["says"],
        row["why"] if abs(row["anonymous"] / row["limit"] - 1) > 0.05 else "",
    )


def rows(whole):
    """Both tables: their columns and lines; and who was left out."""
    left_out = [row for row in whole["programs"] if row["works"] == "missing"]
    left_out += [row for row in whole["limits"] if row.get("missing")]
    programs = [program_row(row, whole["machine"]["quick"]) for row in whole["programs"] if row["works"] != "missing"]
    limits = [limit_row(row) for row in whole["limits"] if not row.get("missing")]
    names = dict.fromkeys(
        f"{row['name']} ({', '.join(row.get('packages', row.get('missing', ())))})" for row in left_out
    )
    return programs, limits, list(names)


def conditions(machine):
    """On what and when it was measured, in a sentence."""
    before, after = machine["load"], machine["load_at_end"]
    pairs = "one pair each, small work" if machine["quick"] else f"{machine['pairs']} pairs each"
    return (
        f"{machine['processor']}, {machine['cpus']} CPUs, Linux {machine['kernel']}, {machine['started']}, {pairs}, "
        f"load {before[0]} at the start and {after[0]} at the end."
    )


def show(whole, out):
    """Prints both tables; what is not as it should be in colour on a terminal."""
    programs, limits, left_out = rows(whole)
    colour = out.isatty()
    print(conditions(whole["machine"]), file=out)
    for columns, lines in ((PROGRAM_COLUMNS, programs), (LIMIT_COLUMNS, limits)):
        if not lines:
            continue
        widths = [max(len(line[i]) for line in [columns, *lines]) for i in range(len(columns))]
        print(file=out)
        for number, line in enumerate([columns, *lines]):
            text = "  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip()
            bad = line[1].startswith("no") or "does not hold" in line[4]
            start = "\33[1m" if number == 0 else "\33[31m" if bad else ""
            print(f"{start}{text}\33[0m" if colour and start else text, file=out)
    if left_out:
        print(f"\nLeft out, since packages are missing: {', '.join(left_out)}.", file=out)


def markdown(columns, lines):
    """A table of a document."""
    body = [columns, ["---"] * len(columns), *lines]
    # A program's message may contain a column separator, or HTML.
    plain = lambda cell: cell.replace("|", "\\|").replace("<", "\\<")
    return "\n".join("| " + " | ".join(map(plain, line)) + " |" for line in body)


def put_into(document, whole):
    """Replaces the tables between a document's marks; of what was not run now, the old ones stay."""
    with open(document, encoding="utf-8") as file:
        text = file.read()
    with open(document, "w", encoding="utf-8") as file:
        file.write(with_tables(text, whole))


def with_tables(text, whole):
    """A document's text with these tables between its marks."""
    programs, limits, left_out = rows(whole)
    out = f"\n\nLeft out, since packages were missing: {', '.join(left_out)}." if left_out else ""
    for name, columns, lines in (("programs", PROGRAM_COLUMNS, programs), ("limits", LIMIT_COLUMNS, limits)):
        if lines:
            table = f"{conditions(whole['machine'])}\n\n{markdown(columns, lines)}{out}"
            marks = rf"(?s)(<!-- {name} -->\n)(?:.*?\n)??(<!-- end -->)"
            text = re.sub(marks, lambda found: f"{found[1]}{table}\n{found[2]}", text)
    return text


def fills_its_marks():
    """Whether tables come between the marks of a document, and nowhere else, the first time and again."""
    programs = [{"name": "p", "works": "yes", "differs": []}]
    limits = [{"name": "l", "holds": None, "missing": ["m"]}]
    machine = {"processor": "", "cpus": 1, "kernel": "", "started": "", "load": [0], "load_at_end": [0], "pairs": 1}
    whole = {"machine": machine | {"quick": True}, "programs": programs, "limits": limits}
    empty = "a\n<!-- programs -->\n<!-- end -->\nb\n<!-- limits -->\n<!-- end -->\nc\n"
    once = with_tables(empty, whole)
    kept = [
        once.startswith("a\n"),
        "<!-- end -->\nb\n<!-- limits -->\n<!-- end -->\nc\n" in once,
        "| p | yes |" in once,
    ]
    return all(kept) and with_tables(once, whole) == once

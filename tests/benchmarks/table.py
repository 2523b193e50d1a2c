"""The rows for people, as a .csv and as a plot."""

from pathlib import Path

COLUMNS = {
    "contestant": "contestant",
    "repeats": "repeats",
    "wall": "wall s (min-max)",
    "cpu": "CPU s (min-max)",
    "wall_times": "wall x",
    "cpu_times": "CPU x",
    "difference": "difference",
    "counts": "counts",
}


def text(rows: list[dict], notes: list[str]) -> str:
    """A workload's table and its notes."""
    lines = []
    if rows:
        first = rows[0]
        lines.append(
            f"\n{first['workload']}: {first['title']}; {first['rounds']} "
            f"{'runs' if first['workload'] == 'G' else 'rounds'}; "
            f"x = times faster than {first['base']}"
        )
        cells = [list(COLUMNS.values()), *(list(short(row).values()) for row in rows)]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        lines += ["  ".join(map(str.ljust, row, widths)).rstrip() for row in cells]
    return "\n".join(lines + [f"  {note}" for note in notes])


def short(row: dict) -> dict[str, str]:
    """A row's cells."""
    return {
        "contestant": row["contestant"],
        "repeats": str(row["repeats"]),
        "wall": spread(row, "wall"),
        "cpu": spread(row, "cpu"),
        "wall_times": f"{row['wall_times_faster']:.2f}",
        "cpu_times": f"{row['cpu_times_faster']:.2f}",
        "difference": f"{row['difference']:.1e} {row['judged']}"
        + (", parameters" if row["compared"] != "all" else ""),
        "counts": "yes" if row["counts"] else "NO",
    }


def spread(row: dict, clock: str) -> str:
    """Median (min-max)."""
    return "{:.3g} ({:.3g}-{:.3g})".format(
        *(row[f"{clock}_{of}"] for of in ("median", "min", "max"))
    )


def write(rows: list[dict], notes: list[str], machine: str, out: Path) -> None:
    """benchmarks.csv, benchmarks.txt and benchmarks.svg in the folder."""
    import pandas as pd

    out.mkdir(parents=True, exist_ok=True)
    found = pd.DataFrame(rows).assign(machine=machine)
    found.to_csv(out / "benchmarks.csv", index=False, float_format="%.6g")
    names = found.workload.unique() if len(found) else []
    parts = [text([r for r in rows if r["workload"] == name], []) for name in names]
    whole = "\n".join([machine, *parts, "", *notes])
    (out / "benchmarks.txt").write_text(whole + "\n")
    if len(found):
        plot(found[found.counts], machine, out / "benchmarks.svg")


def plot(rows, machine: str, path: Path) -> None:
    """Bars of how many times faster than its base every contestant is, in processor seconds."""
    from fedgrid.analysis import figures

    with figures.use_style():
        names, contestants = list(rows.workload.unique()), list(rows.contestant.unique())
        figure, [[axes]] = figures.panels(1, 1, width=max(3.4, 1.1 * len(names)))
        colours, width = figures.colours(contestants), 0.8 / len(contestants)
        for place, contestant in enumerate(contestants):
            mine = rows[rows.contestant == contestant]
            x = [names.index(name) + (place + 0.5) * width - 0.4 for name in mine.workload]
            axes.bar(x, mine.cpu_times_faster, width, color=colours[contestant], label=contestant)
        axes.axhline(1, color="0.4", linewidth=0.6)
        axes.set(xticks=range(len(names)), xticklabels=names, yscale="log")
        axes.set(xlabel="workload", ylabel="times faster than the base (CPU time)")
        figures.legend(figure, [axes], columns=4)
        figures.save_figure(figure, path, "svg", machine)

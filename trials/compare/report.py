"""The result: a table for people, and every run's figure for programs."""

import datetime
import json
import pathlib
import platform
import statistics
import subprocess

from broker import ROOT, thalweg_binary
from systems import SYSTEMS


def medians(runs):
    return {name: statistics.median(run[name] for run in runs) for name in (runs[0] if runs else {})}


def figure(value):
    """Formats with three significant digits."""
    if value >= 1_000:
        return f"{value:,.0f}"
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def cell(runs, name):
    """The median, and the range from minimum to maximum."""
    values = [run[name] for run in runs if name in run]
    if not values:
        return "–"
    return f"{figure(statistics.median(values))} ({figure(min(values))}–{figure(max(values))})"


class Results:
    """The figures, by row."""

    def __init__(self, runs):
        self.runs, self.rows = runs, []

    def add(self, row, by_system, ceilings):
        found = {system: medians(by_system[system]) for system in SYSTEMS}
        self.rows.append(
            {
                "row": row.name,
                "settings": row.settings,
                "bars": row.verdicts(found["thalweg"], found["apache-kafka"], medians(ceilings)),
                "runs": by_system,
                "ceiling": ceilings,
            }
        )
        return self.rows[-1]

    def write(self, directory, name):
        directory = pathlib.Path(directory)
        directory.mkdir(parents=True, exist_ok=True)
        about = {"date": datetime.date.today().isoformat(), "runs": self.runs, **machine()}
        (directory / f"{name}.json").write_text(json.dumps({**about, "rows": self.rows}, indent=1, ensure_ascii=False) + "\n")
        (directory / f"{name}.md").write_text(self.markdown(about))
        return directory / f"{name}.md"

    def markdown(self, about):
        lines = [
            "# Thalweg beside Apache Kafka",
            "",
            *(f"- {key}: {value}" for key, value in about.items()),
            "",
            "Taken by `scripts/compare-kafka`: both brokers with their defaults, Kafka with a 1 GB heap and warm; the same",
            "client on the same machine; runs alternate; memory is warmed before each. Each cell is the median of the",
            "runs, with the least and the most.",
            "",
            "| workload | figure | Thalweg | Apache Kafka | ratio | bar | reached |",
            "|---|---|---|---|---|---|---|",
        ]
        for row in self.rows:
            lines += table_rows(row)
        return "\n".join(lines) + "\n"


def table_rows(row):
    ours, theirs = (row["runs"][system] for system in SYSTEMS)
    names = list((ours or theirs or [{}])[0])
    for index, name in enumerate(names):
        first = index == 0
        mid = [medians(runs).get(name) for runs in (ours, theirs)]
        ratio = f"{mid[0] / mid[1]:.3g}" if all(mid) else "–"
        bar = next((bar for bar in row["bars"] if bar["figure"] == name), {"bar": "", "reached": None})
        verdict = {None: "", True: "yes", False: "**no**"}[bar["reached"]]
        title = f"{row['row']}<br>{row['settings']}" if first else ""
        yield f"| {title} | {name} | {cell(ours, name)} | {cell(theirs, name)} | {ratio} | {bar['bar']} | {verdict} |"
    for name in (row["ceiling"] or [{}])[0]:
        yield f"| | {name} | {cell(row['ceiling'], name)} | | | | |"


def machine():
    """Facts needed to judge the figures."""
    cpu = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), "?")
    memory = int(open("/proc/meminfo").readline().split()[1]) / 2**20
    filesystem = output(["stat", "-f", "-c", "%T", str(ROOT)])
    return {
        "machine": f"{cpu}, {len(list(pathlib.Path('/sys/devices/system/cpu').glob('cpu[0-9]*')))} cores, {memory:.0f} GiB, "
        f"{filesystem}, {platform.system()} {platform.release()}",
        "Thalweg": output([thalweg_binary(), "--version"]) + ", commit " + output(["git", "-C", str(ROOT), "rev-parse", "HEAD"]),
        "Apache Kafka": "4.3.1, 1 GB heap, G1, " + output(["java", "-version"]).replace('"', "'"),
        "librdkafka": output(["dpkg-query", "-W", "-f", "${Version}", "librdkafka1"]),
    }


def output(command):
    """The first line of a command's output."""
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT, check=False)
    except OSError:
        return "?"
    return (done.stdout.splitlines() or ["?"])[0]

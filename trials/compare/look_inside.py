#!/usr/bin/env python3
"""The cost of `thalweg lab run --look-inside`: the rate without it against the rate with it, in pairs.

    trials/compare/look_inside.py --target embedded --pairs 10
    trials/compare/look_inside.py --target apache-kafka --workload ibm-fast --points "1 broker" --pairs 10

Each pair is two runs of a point, one with the look and one without, in alternating order, each on a cluster of its
own. The cost is one minus the geometric mean of the pairs' ratios; its 95 % interval is Student's, on their logarithms.
Nothing else should run meanwhile. Exits with 1 if the interval does not lie below --limit percent."""
import argparse
import json
import math
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile

# 97.5 % of Student's distribution, by degrees of freedom from 1 on.
STUDENT = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
           2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045]


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default="target/release/thalweg")
    parser.add_argument("--target", default="embedded", help="embedded, apache-kafka or pulsar")
    parser.add_argument("--workload", default="ibm-fast")
    parser.add_argument("--points", default="1 broker", help="a text in the labels of the workload's points")
    parser.add_argument("--pairs", type=int, default=10, help="from 3 to 30")
    parser.add_argument("--repetitions", type=int, default=2, help="of a run; their mean rate counts")
    parser.add_argument("--limit", type=float, default=3.0, help="the largest cost, in percent")
    options = parser.parse_args()
    if not 3 <= options.pairs <= len(STUDENT) + 1:
        parser.error("--pairs: use a number from 3 to 30")
    return options


def rates(options, looks, work):
    """The mean rate of each point of a run."""
    out = pathlib.Path(work, "out")
    shutil.rmtree(out, ignore_errors=True)
    command = [options.binary, "lab", "run", options.workload, "--points", options.points, "--target", options.target,
               "--repetitions", str(options.repetitions), "--out", str(out), "--work-dir", str(pathlib.Path(work, "data"))]
    ended = subprocess.run(command + ["--look-inside"] * looks, capture_output=True, text=True)
    if ended.returncode != 0:
        sys.exit(f"{' '.join(command)} ended with {ended.returncode}:\n{ended.stdout}\n{ended.stderr}")
    with open(out / "result.json") as file:
        points = json.load(file)["workloads"][0]["points"]
    found = {}
    for point in points:
        figures = [one["figures"] for one in point["repetitions"]]
        of = [one.get("carried_records_per_s") or one.get("produced_records_per_s") or one.get("consumed_records_per_s")
              for one in figures]
        found[point["point"]["label"]] = statistics.fmean(of)
    return found


def interval(logs):
    """The mean of some logarithms, and half of the width of its 95 % interval."""
    half = STUDENT[len(logs) - 2] * statistics.stdev(logs) / math.sqrt(len(logs))
    return statistics.fmean(logs), half


def main():
    options = arguments()
    logs = {}
    with tempfile.TemporaryDirectory(prefix="look-inside-") as work:
        for pair in range(options.pairs):
            order = (True, False) if pair % 2 == 0 else (False, True)
            measured = {looks: rates(options, looks, work) for looks in order}
            for label, plain in measured[False].items():
                ratio = measured[True][label] / plain
                logs.setdefault(label, []).append(math.log(ratio))
                print(f"pair {pair + 1}, {label}: {plain:,.0f} records/s without, {ratio - 1:+.2%} with a look inside",
                      flush=True)
    is_within = True
    for label, of in logs.items():
        mean, half = interval(of)
        cost = [100 * (1 - math.exp(log)) for log in (mean, mean + half, mean - half)]
        is_within &= cost[2] <= options.limit
        print(f"{options.target}, {label}: the look inside costs {cost[0]:.2f} % of the rate, 95 % interval "
              f"{cost[1]:.2f} to {cost[2]:.2f} %, {len(of)} pairs (limit {options.limit:g} %)")
    sys.exit(0 if is_within else 1)


if __name__ == "__main__":
    main()

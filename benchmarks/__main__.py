"""`python -m benchmarks [--quick]`: aiogroup beside aiokafka, confluent-kafka and two floors, on one broker.

Every run is a process of its own and the clients take turns. Prints tables and writes benchmarks/results/TIME.json;
`python -m benchmarks.compare OLD NEW` says what changed between two of these.
"""

from __future__ import annotations

import argparse
import time

from aiogroup.devkafka import Cluster
from benchmarks import draining, results

RECORDS, ROUNDS = 1_500_000, 5
QUICK_RECORDS, QUICK_ROUNDS = 150_000, 2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the records, fewer scenarios and rounds")
    parser.add_argument("--records", type=int, help=f"a backlog's, in 500s (default {RECORDS:,})")
    parser.add_argument("--rounds", type=int, help=f"default {ROUNDS}")
    parser.add_argument("--only", help="drain scenarios whose name has this in it")
    args = parser.parse_args()
    count = (args.records or (QUICK_RECORDS if args.quick else RECORDS)) // 500 * 500
    rounds = args.rounds or (QUICK_ROUNDS if args.quick else ROUNDS)
    scenarios = [
        each
        for each in (draining.QUICK if args.quick else draining.FULL)
        if args.only is None or args.only in each.name
    ]
    tables = [draining.table()]
    began_at = time.monotonic()
    with Cluster(benchmark=True) as cluster:
        for part in draining.drain(cluster, scenarios, count, rounds, tables[0]):
            print(part + "\n", flush=True)
    path = results.FOLDER / f"{time.strftime('%Y%m%d-%H%M%S')}.json"
    took_s = round(time.monotonic() - began_at)
    results.write(path, tables, quick=args.quick, records=count, rounds=rounds, took_s=took_s)
    print(f"benchmarks/{path.parent.name}/{path.name} has every run. It took {took_s} s.")


if __name__ == "__main__":
    main()

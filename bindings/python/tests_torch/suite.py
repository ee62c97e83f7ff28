"""Runs torch's own tests of torch.distributed with Allcast, and compares with gloo.

The tests ship with torch, as torch.testing._internal.distributed.distributed_test. They run on the
CPU, with one process per rank: four ranks, or eight for tests that need more. Three runs are
compared:

    gloo       all tests, with gloo
    allcast    all tests, with Allcast. Tests that torch reserves for named backends skip.
    reserved   the tests that torch reserves for gloo, with Allcast all the same

The tests that count are those that pass with gloo and are not reserved. At least 95 % of them must
pass with Allcast, and a skip is not a pass. The reserved ones are reported for information.

    suite.py                     run all and compare
    suite.py --quick             run a selection with Allcast only
    suite.py --tests test_send   run some tests with all three

Ranks are forked from a process that has imported torch, because importing it takes seconds.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any, TextIO

RUNS = ("gloo", "allcast", "reserved")
SHARE = 0.95

# Reason of tests that skip because there are too few ranks.
NEEDS_RANKS = "Skipped due to small world size"

# Tests that --quick leaves out, because others are similar.
QUICK = r"(?!.*(full_group|profiler)).*"
QUICK_MINIMUM = 40  # tests that must pass, so that skips cannot go unnoticed


# ---- Worker: runs tests one after the other and prints a line of JSON for each ----


def worker(run: str, index: int, count: int, names: list[str]) -> None:
    """Runs every count-th test."""
    os.environ["BACKEND"] = "gloo" if run == "reserved" else run
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    os.environ["TEMP_DIR"] = tempfile.mkdtemp(prefix="allcast-suite-")
    os.makedirs(os.path.join(os.environ["TEMP_DIR"], "barrier"))
    sys.argv = sys.argv[:1]  # torch's test helpers parse it

    import unittest

    import torch
    from torch.testing._internal import common_distributed

    if run != "gloo":
        # torch lists the backends that implement a feature here.
        for feature in common_distributed.DistTestCases.backend_feature.values():
            feature.add("allcast")
        import allcast.torch  # noqa: F401

    from torch.testing._internal.distributed import distributed_test

    if run == "reserved":
        # The tests compare the name of the backend, so it stays gloo for them.
        init_process_group = torch.distributed.init_process_group

        def init(*args: Any, backend: str | None = None, **options: Any) -> None:
            init_process_group(*args, backend="allcast", **options)

        torch.distributed.init_process_group = init

    class Case(distributed_test.TestDistBackend, distributed_test.DistributedTest._DistTestBase):
        def setUp(self) -> None:
            super().setUp()
            self._start_processes(torch.multiprocessing.get_context("fork").Process)

    tests = sorted(name for name in dir(Case) if name.startswith("test_"))
    wanted = re.compile("|".join(f"(?:{name})" for name in names) if names else "")
    tests = [name for name in tests if wanted.fullmatch(name) or not names]
    for name in tests[index::count]:
        start = time.monotonic()
        result = unittest.TestResult()
        method = getattr(Case, name)
        reserved = getattr(method, "__unittest_skip__", False)
        if reserved:
            status, reason = "skip", method.__unittest_skip_why__
        else:
            Case(name).run(result)
            status, reason = outcome(result)
        entry = {
            "run": run,
            "test": name,
            "status": status,
            "reserved": reserved,
            "reason": reason,
            "seconds": round(time.monotonic() - start, 2),
        }
        print("RESULT " + json.dumps(entry), flush=True)


def outcome(result: Any) -> tuple[str, str]:
    failed = result.errors + result.failures
    if failed:
        return "fail", failed[0][1]
    if result.unexpectedSuccesses:
        return "fail", "unexpected success"
    if result.skipped:
        return "skip", result.skipped[0][1]
    return "pass", ""


# ---- Driver ----


class Results:
    def __init__(self) -> None:
        self.runs: dict[str, dict[str, dict[str, Any]]] = {run: {} for run in RUNS}

    def add(self, entry: dict[str, Any]) -> None:
        self.runs[entry["run"]][entry["test"]] = entry

    def status(self, run: str, test: str) -> str:
        return str(self.runs[run].get(test, {}).get("status", "missing"))

    def passed(self, run: str) -> list[str]:
        return sorted(t for t, e in self.runs[run].items() if e["status"] == "pass")


def start_workers(run: str, count: int, names: list[str], ranks: int, limit: int) -> list[Any]:
    env = dict(
        os.environ,
        WORLD_SIZE=str(ranks),
        DISTRIBUTED_TESTS_DEFAULT_TIMEOUT=str(limit),
        OMP_NUM_THREADS="1",
        PYTHONFAULTHANDLER="1",
    )
    started = []
    for index in range(count):
        log = tempfile.TemporaryFile("w+")  # noqa: SIM115  execute closes it
        process = subprocess.Popen(
            [sys.executable, __file__, "--worker", run, str(index), str(count), *names],
            env=env,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        started.append((process, log))
    return started


def lines(processes: list[Any]) -> Iterator[dict[str, Any]]:
    """Yields the results of all workers as they come."""
    import selectors

    selector = selectors.DefaultSelector()
    for process, _ in processes:
        selector.register(process.stdout, selectors.EVENT_READ)
    while selector.get_map():
        for key, _ in selector.select():
            stream = key.fileobj
            assert hasattr(stream, "readline")
            line = stream.readline()
            if not line:
                selector.unregister(stream)
            elif line.startswith("RESULT "):
                yield json.loads(line[len("RESULT ") :])


def execute(
    run: str, names: list[str], args: argparse.Namespace, results: Results, out: TextIO
) -> None:
    """Runs tests with the first number of ranks, and those that need more ranks with the next."""
    for ranks in args.ranks:
        execute_with(ranks, run, names, args, results, out)
        names = [t for t, e in results.runs[run].items() if NEEDS_RANKS in e["reason"]]
        if not names:
            return


def execute_with(
    ranks: int,
    run: str,
    names: list[str],
    args: argparse.Namespace,
    results: Results,
    out: TextIO,
) -> None:
    processes = start_workers(run, args.jobs, names, ranks, args.limit)
    for entry in lines(processes):
        results.add(entry)
        out.write(json.dumps(entry) + "\n")
        out.flush()
        if entry["status"] != "skip":
            print(f"{run:9}{entry['status']:8}{entry['seconds']:6.1f} s  {entry['test']}")
    for process, log in processes:
        if process.wait() != 0:
            log.seek(0)
            tail = log.read()[-4000:]
            sys.exit(f"a worker of run {run} ended with {process.returncode}:\n{tail}")
        log.close()


def last_line(reason: str) -> str:
    """The line of a traceback that says what went wrong."""
    found = [line for line in reason.strip().splitlines() if line.strip()]
    errors = [line for line in found if re.match(r"\S*(Error|Exception|Failure)\b", line)]
    return (errors or found or [""])[-1].strip()[:300]


def report(results: Results, out: str | None) -> bool:
    gloo = results.passed("gloo")
    reserved = [test for test in gloo if results.runs["allcast"].get(test, {}).get("reserved")]
    counted = [test for test in gloo if test not in reserved]
    passed = [test for test in counted if results.status("allcast", test) == "pass"]
    text = [
        f"{len(results.runs['gloo'])} tests: {len(gloo)} pass with gloo on the CPU, "
        f"of which {len(reserved)} are reserved for named backends",
        f"allcast passes {len(passed)} of the {len(counted)} others: "
        f"{100 * len(passed) / max(len(counted), 1):.1f} %",
    ]
    for test in counted:
        if test not in passed:
            entry = results.runs["allcast"].get(test, {"status": "missing", "reason": ""})
            text.append(f"  {entry['status']:5} {test}: {last_line(entry['reason'])}")
    also = [test for test in reserved if results.status("reserved", test) == "pass"]
    text.append(f"allcast passes {len(also)} of the {len(reserved)} reserved ones")
    for test in reserved:
        if test not in also:
            entry = results.runs["reserved"].get(test, {"status": "missing", "reason": ""})
            text.append(f"  {entry['status']:5} {test}: {last_line(entry['reason'])}")
    print("\n".join(text))
    if out:
        with open(out, "w") as file:
            file.write("\n".join(text) + "\n")
    return bool(counted) and len(passed) >= SHARE * len(counted)


def main() -> int:
    if sys.argv[1:2] == ["--worker"]:
        worker(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5:])
        return 0
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a selection, with Allcast only")
    parser.add_argument("--tests", nargs="*", default=[], help="regular expressions of names")
    parser.add_argument("--runs", nargs="*", choices=RUNS, default=list(RUNS))
    parser.add_argument("--ranks", type=int, nargs="+", default=[4, 8])
    parser.add_argument("--jobs", type=int, default=2, help="tests that run at the same time")
    parser.add_argument("--limit", type=int, default=120, help="seconds per test")
    parser.add_argument("--report", help="file for the summary")
    parser.add_argument("--log", default=os.devnull, help="file for results as lines of JSON")
    args = parser.parse_args()

    results = Results()
    with open(args.log, "w") as log:
        if args.quick:
            args.ranks = args.ranks[:1]
            execute("allcast", [QUICK], args, results, log)
            passed = results.passed("allcast")
            failed = [t for t, e in results.runs["allcast"].items() if e["status"] == "fail"]
            for test in failed:
                print(f"{test}\n{results.runs['allcast'][test]['reason']}")
            print(f"{len(passed)} tests of torch pass, {len(failed)} fail")
            return 1 if failed or len(passed) < QUICK_MINIMUM else 0
        for run in args.runs:
            names = args.tests
            if run == "reserved" and results.runs["gloo"]:
                skipped = [t for t, e in results.runs["allcast"].items() if e["reserved"]]
                names = [t for t in results.passed("gloo") if t in skipped]
                if not names:
                    continue
            execute(run, names, args, results, log)
    return 0 if report(results, args.report) else 1


if __name__ == "__main__":
    sys.exit(main())

"""What a benchmark found: a table for people, and one JSON object for programs."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mbpo.bench.timing import Timing
from mbpo.config import recorded_machine, recorded_versions, source_commit
from mbpo.durable import write_durably


def circumstances() -> dict[str, Any]:
    """Where and with what numbers were measured: the end of every report."""
    return {
        "load": list(os.getloadavg()),
        "machine": recorded_machine(),
        "versions": recorded_versions(),
        "commit": source_commit(),
    }


def write_report(path: Path, found: Mapping[str, Any]) -> None:
    """Writes one line of JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_durably(path, f"{json.dumps(found)}\n".encode())


@dataclass(frozen=True)
class Line:
    """A contestant and the time of one unit of its work."""

    name: str
    timing: Timing


@dataclass(frozen=True)
class Report:
    """Contestants over the same work; the first line is the one that the others are compared with."""

    bench: str
    task: str
    title: str
    unit: str
    gflop: float
    """In the matrix products of one unit."""
    lines: tuple[Line, ...]
    facts: Mapping[str, float] = field(default_factory=dict[str, float])
    """Further numbers by name."""
    peers: Mapping[str, Mapping[str, str]] = field(default_factory=dict[str, Mapping[str, str]])
    """The versions that other code bases ran with."""
    notes: tuple[str, ...] = ()

    def ratio(self, line: Line) -> float:
        """The first line's best time over this one's."""
        return self.lines[0].timing.best / line.timing.best

    def to_json(self) -> dict[str, Any]:
        times = {
            line.name: {"best": line.timing.best, "median": line.timing.median, "rounds": list(line.timing.rounds)}
            for line in self.lines
        }
        return {
            "bench": self.bench,
            "task": self.task,
            "title": self.title,
            "unit": self.unit,
            "gflop": self.gflop,
            "seconds": times,
            "ratios": {line.name: self.ratio(line) for line in self.lines[1:]},
            "facts": dict(self.facts),
            "peers": {name: dict(versions) for name, versions in self.peers.items()},
            **circumstances(),
        }

    def to_text(self) -> str:
        head = f"{'':<24}{'best':>12}{'median':>12}{'1/s':>10}{'GFLOP/s':>10}{self.lines[0].name + ' / it':>14}"
        rows = [
            f"{line.name:<24}{duration(line.timing.best):>12}{duration(line.timing.median):>12}"
            f"{1.0 / line.timing.best:>10,.1f}{self.gflop / line.timing.best:>10,.0f}{self.ratio(line):>13.1%}"
            for line in self.lines
        ]
        load = f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
        return "\n".join([self.title, f"one {self.unit}: {self.gflop:.3f} GFLOP; {load}", head, *rows, *self.notes])


def duration(seconds: float) -> str:
    """Seconds as a person reads them."""
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.3f} {unit}"
    return f"{seconds / 1e-6:.1f} us"

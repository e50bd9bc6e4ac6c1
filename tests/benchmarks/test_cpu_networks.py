"""benchmarks/cpu_networks.py: the networks run, and the table names every contender."""

from __future__ import annotations

import argparse

import pytest
import torch

from benchmarks.cpu_networks import NETWORKS, measure, rows


@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_gives_finite_results(name: str) -> None:
    torch.manual_seed(0)
    module, inputs = NETWORKS[name]()
    with torch.no_grad():
        assert bool(module(*inputs).isfinite().all())


def test_records_and_rows() -> None:
    """Each kind has a record per contender; a row has their times, the ratio and first steps."""
    options = argparse.Namespace(
        threads=torch.get_num_threads(),
        kinds=["training", "inference"],
        contenders=["eager"],
        frozen=False,
        autocast=False,
        rounds=1,
    )
    records = measure("dlrm", options)
    assert [(r["kind"], r["contender"]) for r in records] == [
        ("training", "eager"),
        ("inference", "eager"),
    ]
    assert all(r["ms"] > 0 and r["first_s"] > 0 for r in records)
    records += [{**r, "contender": "inductor", "ms": 2 * r["ms"]} for r in records]
    found = rows(records, ["inductor", "eager"])
    assert [row[:2] for row in found] == [["dlrm", "training"], ["dlrm", "inference"]]
    assert all(row[4] == "2.00" and len(row) == 7 for row in found)

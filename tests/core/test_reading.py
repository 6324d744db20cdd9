from __future__ import annotations

from vecload.reading import ByteBudget


def test_what_is_read_ahead_is_bounded_in_bytes() -> None:
    budget = ByteBudget(100)
    assert budget.take(60, timeout=0)
    assert budget.take(40, timeout=0)
    assert not budget.take(1, timeout=0)
    budget.give_back(60)
    assert budget.take(60, timeout=0)


def test_one_item_over_the_budget_passes_alone() -> None:
    budget = ByteBudget(100)
    assert budget.take(500, timeout=0)
    assert not budget.take(1, timeout=0)
    budget.give_back(500)
    assert budget.take(1, timeout=0)

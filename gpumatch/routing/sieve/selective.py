"""Selective subscription: how many of a subscription's attributes it pays to subscribe to (Sieve, IV-D and IV-E).

A subscription whose ``k`` subscribed attributes all hold must be matched in full, unless it has no others. Each
additional attribute makes that rarer and costs a counter's increment for every message in its range. Attributes are
assumed to be independent: probabilities multiply.

A candidate is one more range of a subscription; its extra traffic is the share of messages in it. Such a message may
come anyway, for another subscription's range, but is no cheaper then: the cost is that of the increment.

With times ``tf`` of a full match and ``tc`` of an increment, a message costs ``n1 * tf + n2 * tc``, a sum over
subscriptions. So each can be decided separately, which gives the optimum. The paper's rule is simpler and stops far
short of it: it takes candidates by their traffic alone, and among the first are third attributes of subscriptions
that two have made rare. They lose a little each, while second attributes of most others, which gain, are yet to come.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import numpy as np

from gpumatch.arrays import Array
from gpumatch.errors import RoutingError
from gpumatch.routing.sieve.values import integers_of, is_number, is_whole, values_of

Rule: TypeAlias = Literal["best", "stop", "all"]
RULES: tuple[str, ...] = get_args(Rule)


@dataclass(frozen=True, slots=True)
class CostModel:
    """Time of a full match (``tf``) and of a counter's increment (``tc``), and messages that arrive per unit of time.

    ``arrivals`` is the paper's ``M``: distinct messages, however many copies of each come. Shares of traffic are shares
    of these. Strictly they are those that match a range subscribed to, which changes with every range. But
    ``M * n1`` and ``M * n2``, full matches and increments per unit of time, do not depend on messages that match
    nothing: all published messages will do, as long as both the number and the shares refer to them. With the default
    of 1, throughput is messages per unit of time; the choice does not depend on it.
    """

    tf: float
    tc: float
    arrivals: float = 1.0

    def __post_init__(self) -> None:
        for name in ("tf", "tc", "arrivals"):
            value = getattr(self, name)
            if not is_number(value) or not (value > 0 or (name == "tc" and value == 0)):
                least = "from 0" if name == "tc" else "above 0"
                raise RoutingError(f"{name} of a cost model: expected a finite number {least}, found {value!r}")

    def time(self, n1: Any, n2: Any) -> Any:
        """Time of one message with ``n1`` full matches and ``n2`` increments."""
        return n1 * self.tf + n2 * self.tc

    def throughput(self, n1: Any, n2: Any) -> Any:
        """Messages that can be matched, as a share of those that arrive: below 1 the matching unit is too slow."""
        with np.errstate(divide="ignore", over="ignore"):
            return 1 / (self.arrivals * np.asarray(self.time(n1, n2), np.float64))


@dataclass(frozen=True, slots=True, eq=False)
class Selection:
    """Which predicates are subscribed to, and what each step on the way there cost."""

    chosen: Array  # bool, by predicate
    added: Array  # int64, the predicates beyond the first of each subscription, in the order of adding
    n1: Array  # float64, expected full matches of a message: at the start and after each of the added
    n2: Array  # float64, expected increments of counters
    throughput: Array  # float64, as a share of the arrivals

    @property
    def best(self) -> int:
        """After how many additions the throughput was highest."""
        return int(self.throughput.argmax())


class _Steps(NamedTuple):
    """All predicates, by subscription and then from the least traffic upwards: the order to subscribe in.

    For any number of a subscription's attributes, those with the least traffic have both the rarest full match and the
    fewest increments.
    """

    predicate: Array
    rank: Array  # from 0 in each subscription
    p: Array
    total: Array  # of p up to this one
    before: Array  # probability of a full match without this one
    after: Array  # and with it


def select_subscriptions(ptr: Any, p: Any, model: CostModel, *, rule: Rule = "best", batch: int = 1) -> Selection:
    """Choose predicates to subscribe to, at least one of each subscription.

    ``p``: for each predicate, the share of messages whose value is in its range; without the attribute, it is not.
    The predicates of subscription i are ``ptr[i]`` to ``ptr[i + 1] - 1``. It starts with the least traffic of each
    subscription and goes on by the traffic of candidates, upwards:

    ``"best"``  those of the exact optimum;
    ``"stop"``  the paper's rule, up to the first candidate that does not raise the throughput, or to the first
                ``batch`` of candidates that together do not, which gets further;
    ``"all"``   every one, for the whole curve.
    """
    if rule not in RULES:
        raise RoutingError(f"rule of select_subscriptions: expected one of {', '.join(RULES)}, found {rule!r}")
    if not is_whole(batch) or batch < 1 or (batch > 1 and rule != "stop"):
        raise RoutingError(f"batch: expected 1, or more with rule='stop', found {batch!r} with rule={rule!r}")
    ptr, p = _checked(ptr, p)
    steps = _steps(ptr, p)
    candidates = np.flatnonzero(steps.rank > 0)
    candidates = candidates[np.argsort(steps.p[candidates], kind="stable")]
    if rule == "best":
        candidates = candidates[_optimum(ptr, steps, model)[candidates]]
    elif rule == "stop":
        candidates = _until_no_gain(candidates, steps, model, batch)
    return _selection(candidates, steps, model)


def _checked(ptr: Any, p: Any) -> tuple[Array, Array]:
    ptr, p = integers_of(ptr, "ptr"), values_of(p, "p").astype(np.float64)
    if not len(ptr) or ptr[0] != 0 or ptr[-1] != len(p):
        raise RoutingError(f"ptr: expected integers from 0 to {len(p)}, the number of probabilities")
    if (np.diff(ptr) < 1).any():
        raise RoutingError(f"subscription {(np.diff(ptr) < 1).argmax()}: expected at least one predicate, found none")
    bad = ~((p >= 0) & (p <= 1))
    if bad.any():
        raise RoutingError(f"p: expected shares from 0 to 1, found {p[bad.argmax()]} at {bad.argmax()}")
    return ptr, p


def _steps(ptr: Array, p: Array) -> _Steps:
    lengths = np.diff(ptr)
    owner = np.repeat(np.arange(len(lengths)), lengths)
    order = np.lexsort((p, owner))
    p, rank = p[order], np.arange(len(p)) - ptr[owner]
    before, total = np.ones(len(p)), p.copy()
    by_rank = np.argsort(rank, kind="stable")
    bounds = np.searchsorted(rank[by_rank], np.arange(1, int(lengths.max(initial=0)) + 1))
    for first, last in pairwise(bounds):  # one step of all subscriptions together, one more factor at a time
        at = by_rank[first:last]
        before[at] = before[at - 1] * p[at - 1]
        total[at] += total[at - 1]
    is_last = rank == lengths[owner] - 1
    return _Steps(order, rank, p, total, before, np.where(is_last, 0, before * p))


def _optimum(ptr: Array, steps: _Steps, model: CostModel) -> Array:
    """Which steps are taken if every subscription takes as many as cost least, the fewest if several do."""
    if len(ptr) == 1:
        return np.empty(0, bool)
    lengths, cost = np.diff(ptr), model.time(steps.after, steps.total)
    least = np.repeat(np.minimum.reduceat(cost, ptr[:-1]), lengths)
    until = np.minimum.reduceat(np.where(cost == least, steps.rank, len(cost)), ptr[:-1])
    taken: Array = steps.rank <= np.repeat(until, lengths)
    return taken


def _until_no_gain(candidates: Array, steps: _Steps, model: CostModel, batch: int) -> Array:
    """The candidates before the first batch that gains nothing.

    Candidates of subscriptions that no message reaches are skipped: they gain nothing, and would come first.
    """
    candidates = candidates[steps.before[candidates] > 0]
    starts = np.arange(0, len(candidates), batch)
    change = model.time(steps.after - steps.before, steps.p)[candidates]
    loses = np.add.reduceat(change, starts) >= 0 if len(starts) else np.empty(0, bool)
    return candidates[: starts[loses.argmax()]] if loses.any() else candidates


def _selection(candidates: Array, steps: _Steps, model: CostModel) -> Selection:
    chosen = np.zeros(len(steps.p), bool)
    chosen[steps.predicate[steps.rank == 0]] = True
    chosen[steps.predicate[candidates]] = True
    saved = (steps.before - steps.after)[candidates]
    # Full matches left at the end, and what each step saved, backwards: sums of positive numbers lose no digits.
    ends = chosen[steps.predicate] & ~np.append(chosen[steps.predicate][1:] & (steps.rank[1:] > 0), False)
    n1 = np.cumsum(np.append(steps.after[ends].sum(), saved[::-1]))[::-1]
    n2 = np.cumsum(np.append(steps.p[steps.rank == 0].sum(), steps.p[candidates]))
    return Selection(chosen, steps.predicate[candidates], n1, n2, model.throughput(n1, n2))

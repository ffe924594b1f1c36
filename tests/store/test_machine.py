"""Any history of calls, in memory and in a folder, against a plain dict of expressions."""

from __future__ import annotations

import shutil
import tempfile
from typing import Any, ClassVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

import gpumatch as gm
from gpumatch.expr import evaluate, parse
from tests.conformance.strategies import events
from tests.conformance.test_oracle import INDEXES
from tests.examples import later, rounds
from tests.matcher.faces import SCHEMA, TYPED
from tests.matcher.test_history import EXPRESSIONS, IDS_OF_MODEL, Twin, model_answers
from tests.store import histories

eager = histories.eager

SUBSCRIPTIONS = st.dictionaries(IDS_OF_MODEL, EXPRESSIONS, max_size=5)
PAIRS = st.lists(st.tuples(IDS_OF_MODEL, st.integers(-3, 3)), max_size=8, unique_by=lambda pair: pair[0])
FSYNCS = st.sampled_from(["always", "batch", "never"])
VERIFY = st.sampled_from(["full", "once", "size"])


class Machine(RuleBasedStateMachine):
    """A matcher, a reader of its folder if it has one, and what they should hold."""

    index: ClassVar[str] = "auto"

    @initialize(
        durable=st.booleans(),
        background=st.booleans(),
        fsync=FSYNCS,
        batch=st.lists(events(SCHEMA), min_size=1, max_size=4),
    )
    def begin(self, durable: bool, background: bool, fsync: str, batch: list[dict[str, Any]]) -> None:
        self.base = tempfile.mkdtemp()
        self.folder, self.places = f"{self.base}/0", 1
        self.options: dict[str, Any] = {"background": background, "fsync": fsync}
        self.batch, self.durable = batch, durable
        self.twin = Twin(self.index, "")
        self.twin.matcher = gm.Matcher(SCHEMA, index=self.index, background=background)
        if durable:
            self.twin.matcher = gm.open(self.folder, "a", schema=SCHEMA, index=self.index, **self.options)
        self.follow()

    def follow(self) -> None:
        """A reader, and versions, of what is a folder now."""
        self.reader = gm.open(self.folder) if self.durable else None
        self.versions: dict[str, dict[int, gm.Expr]] = {}

    def teardown(self) -> None:
        if hasattr(self, "base"):
            self.twin.matcher.close()
            shutil.rmtree(self.base)

    def holds(self, matcher: gm.Matcher, model: dict[int, gm.Expr]) -> None:
        assert (len(matcher), list(matcher), matcher.ids.tolist()) == (len(model), list(model), list(model))
        assert list(matcher.match(self.batch)) == model_answers(model, self.batch)

    @invariant()
    def agrees(self) -> None:
        if not hasattr(self, "base"):
            return
        self.holds(self.twin.matcher, self.twin.model)
        if self.durable:
            self.versions[str(self.twin.matcher.version)] = dict(self.twin.model)

    # Calls

    @rule(given=SUBSCRIPTIONS)
    def add(self, given: dict[int, gm.Expr]) -> None:
        self.twin.add(given)

    @rule(given=SUBSCRIPTIONS)
    def collect(self, given: dict[int, gm.Expr]) -> None:
        self.twin.collect(given)

    @rule(given=SUBSCRIPTIONS, name=IDS_OF_MODEL, wrong=st.sampled_from(["i = ", "none = 1", "i = 'a'"]))
    def wrong(self, given: dict[int, gm.Expr], name: int, wrong: str) -> None:
        """A call with a wrong expression changes nothing, or leaves it out."""
        mixed = {**{key: str(expr) for key, expr in given.items() if key != name}, name: wrong}
        for act in (self.twin.matcher.add, self.twin.matcher.upsert):
            with pytest.raises(gm.GpumatchError):
                act(mixed)
        good = {key: expr for key, expr in given.items() if key != name and key not in self.twin.model}
        rejected = self.twin.matcher.add(mixed, on_error="collect")
        assert {one.id for one in rejected} == mixed.keys() - good.keys()
        self.twin.model.update(good)

    @rule(pairs=PAIRS)
    def ranges(self, pairs: list[tuple[int, int]]) -> None:
        self.twin.ranges(pairs)

    @rule(pairs=PAIRS)
    def predicates(self, pairs: list[tuple[int, int]]) -> None:
        new = [(name, low) for name, low in pairs if name not in self.twin.model]
        columns = {"id": [name for name, _ in new for _ in "is"], "attribute": ["i", "s"] * len(new)}
        values = [value for _, low in new for value in (str(low), "a")]
        self.twin.matcher.add_predicates({**columns, "op": [">=", "="] * len(new), "value": values})
        self.twin.model.update({name: parse(f"i >= {low} AND s = 'a'") for name, low in new})

    @rule(names=st.lists(IDS_OF_MODEL, max_size=6))
    def remove(self, names: list[int]) -> None:
        self.twin.remove(names)

    @rule(data=st.data())
    def remove_some(self, data: st.DataObject) -> None:
        names = list(self.twin.model)
        self.twin.remove(data.draw(st.lists(st.sampled_from(names), unique=True)) if names else [])

    @rule(given=SUBSCRIPTIONS)
    def replace(self, given: dict[int, gm.Expr]) -> None:
        self.twin.replace({name: expr for name, expr in given.items() if name in self.twin.model})
        self.twin.replace(given)

    @rule(given=SUBSCRIPTIONS)
    def upsert(self, given: dict[int, gm.Expr]) -> None:
        self.twin.upsert(given)

    @rule()
    def compact(self) -> None:
        self.twin.compact(None)

    # What lasts

    @rule(verify=VERIFY, mmap=st.booleans(), move=st.booleans())
    def save(self, verify: Any, mmap: bool, move: bool) -> None:
        """Into another folder, where the history may go on."""
        place = f"{self.base}/{self.places}"
        self.places += move
        self.twin.matcher.save(place)
        self.holds(gm.load(place, mmap=mmap, verify=verify), self.twin.model)
        if not move:
            return
        self.twin.matcher.close()
        self.folder = place
        if self.durable:
            self.twin.matcher = gm.open(place, "a", verify=verify, mmap=mmap, **self.options)
            self.follow()
        else:
            self.twin.matcher = gm.load(place, mmap=mmap, verify=verify, background=self.options["background"])

    @precondition(lambda self: self.durable)
    @rule(crashed=st.booleans(), fsync=FSYNCS, background=st.booleans(), verify=VERIFY)
    def open_again(self, crashed: bool, fsync: str, background: bool, verify: Any) -> None:
        if crashed:
            histories.crash(self.twin.matcher)
        else:
            self.twin.matcher.close()
        self.options = {"background": background, "fsync": fsync}
        self.twin.matcher = gm.open(self.folder, "a", schema=SCHEMA, index=self.index, verify=verify, **self.options)

    @precondition(lambda self: self.durable)
    @rule()
    def refresh(self) -> None:
        assert self.reader is not None
        before = self.reader.version
        assert self.reader.refresh() == (before != self.twin.matcher.version)
        assert self.reader.version == self.twin.matcher.version
        self.holds(self.reader, self.twin.model)
        self.holds(gm.load(self.folder), self.twin.model)

    @precondition(lambda self: self.durable and self.versions)
    @rule(data=st.data())
    def earlier(self, data: st.DataObject) -> None:
        version = data.draw(st.sampled_from(list(self.versions)))
        self.holds(gm.load(self.folder, version=version), self.versions[version])

    @rule()
    def explain(self) -> None:
        for name, expr in list(self.twin.model.items())[-3:]:
            held = self.twin.matcher[name]
            right = [evaluate(expr, event, TYPED) for event in self.batch]
            assert [evaluate(held, event, TYPED) for event in self.batch] == right
            assert [self.twin.matcher.explain(event, name).result for event in self.batch] == right


def run(index: str, count: int, steps: int) -> None:
    machine = type("Machine", (Machine,), {"index": index})
    run_state_machine_as_test(machine, settings=settings(max_examples=count, stateful_step_count=steps))


def test_a_history_equals_a_dict(eager: None) -> None:
    run("auto", 3, 12)


@pytest.mark.parametrize("index", later(*INDEXES, "auto"))
def test_any_history_equals_a_dict(index: str, eager: None) -> None:
    run(index, rounds(80), 30)

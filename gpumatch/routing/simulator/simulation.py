"""Events over an overlay of brokers that take time: an exact simulation, many messages at a time.

A message takes ``latency`` from broker to broker. So all that arrives within one latency can be handled together: its
consequences arrive later. (With FBR, which matches at every hop, all that arrives within a latency and a match.) Each
broker is a queue served in the order of arrival; ties are by event, then by sender. Times are whole nanoseconds and
every answer is what a loop over single messages would give.

The model: a broker routes a message by the topology that is known when it arrives, and holds it until the next hop has
it. If it is lost on the link, the broker sends it again as soon as the failure is noticed, but not before the next
multiple of the latency after the message could have crossed one more link. A source keeps an event until all interested
brokers have it, and knows immediately which have (acknowledgements take no time). It sends the event again to those
that do not have it when it is noticed that a broker has failed with a message of it, and when a broker cannot pass one
on: for lack of a path (then the broker also tries again when the topology changes) or, in MERC, because the topology is
no longer the one that the event was sent under. It sends to brokers without a path when a repair is noticed. FBR does
none of this: its trees stay as they were, and what is lost is lost. They are the trees of next hops from each source; a
flood's first copies, as in ``Network``, may take other shortest paths.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from gpumatch.arrays import Array
from gpumatch.errors import RoutingError
from gpumatch.routing.overlays.checks import expect
from gpumatch.routing.overlays.clusters import Clusters
from gpumatch.routing.overlays.topology import Topology
from gpumatch.routing.simulator.calendar import Batch, Calendar
from gpumatch.routing.simulator.failures import Failures
from gpumatch.routing.simulator.protocols import PROTOCOLS, ClusterRoutes, Costs, PlainRoutes
from gpumatch.routing.simulator.resending import NOT_YET, Sources
from gpumatch.routing.simulator.simulated import Counts, Simulated
from gpumatch.routing.simulator.traffic import Workload


def simulate(
    overlay: Topology | Clusters,
    workload: Workload,
    protocol: str = "d-dbr",
    costs: Costs | None = None,
    failures: Failures | None = None,
    progress: Callable[[int], None] | None = None,
) -> Simulated:
    """Send the workload's events through the overlay.

    ``protocol``: d-dbr, merc (which needs ``Clusters``; the others take their topology) or fbr. ``progress`` gets the
    number of deliveries so far.
    """
    expect("overlay", overlay, Topology, Clusters)
    expect("workload", workload, Workload, hint="Workload.of_matcher(matcher, events, times, sources) asks a matcher")
    if protocol not in PROTOCOLS:
        raise RoutingError(f"the protocol must be one of {', '.join(PROTOCOLS)}, found {protocol!r}")
    if protocol == "merc" and not isinstance(overlay, Clusters):
        raise RoutingError("merc needs Clusters(topology, members) as overlay, found a Topology; see Clusters.grow")
    costs = Costs() if costs is None else costs
    expect("costs", costs, Costs, hint="pass Costs(latency=…, …); clusters are the overlay")
    failures = Failures() if failures is None else failures
    expect("failures", failures, Failures, hint="Failures(changes) takes Changes, such as losses.changes(time)")
    topology = overlay.topology if isinstance(overlay, Clusters) else overlay
    workload.check(topology.brokers)
    costs.check(topology.brokers)
    clusters = overlay if isinstance(overlay, Clusters) and protocol == "merc" else None
    return _Run(topology, workload, protocol, clusters, costs, failures).run(progress)


@dataclass(frozen=True, slots=True)
class _Look:
    """What a window's messages, sorted by broker and arrival, mean to the brokers that they reach."""

    event: Array
    client: Array  # from a client: published here, or sent again
    pair: Array  # of event and broker, -1 if not interested
    fresh: Array  # it is delivered here
    opens: Array  # MERC: this broker sends it on into other clusters
    stale: Array  # … or would, but the topology has changed
    dropped: Array  # it is for this broker, which has it already


@dataclass(frozen=True, slots=True)
class _Sent:
    """Messages that the brokers of a window send, by the message that they come from."""

    row: Array
    cluster: Array
    hop: Array
    size: Array
    entries: Array
    stuck: Array  # by entry of the window's messages: without a path


class _Run:
    """One simulation."""

    def __init__(
        self,
        topology: Topology,
        workload: Workload,
        protocol: str,
        clusters: Clusters | None,
        costs: Costs,
        failures: Failures,
    ) -> None:
        n = topology.brokers
        self.protocol, self.clusters, self.costs = protocol, clusters, costs
        self.outages = failures.outages(topology)
        self.sources = Sources(workload, n, keep_lists=clusters is not None)
        self.free = np.zeros(n, np.int64)  # when each broker has finished all its work
        self.counts = Counts.of(n)
        self.width = costs.latency  # of a window
        if protocol == "fbr":
            self.width += costs.receive + costs.match + costs.subscription * costs.subscriptions * n + costs.send
        self.calendar = Calendar(self.width)
        self.edge = np.full(n, -1)  # index of each edge broker among them
        if clusters is not None:
            self.edge[clusters.edge_brokers] = np.arange(len(clusters.edge_brokers))
        # By task and edge broker; the last column, of all other brokers, stays false.
        self.opened = np.zeros((0, int(self.edge.max(initial=-1)) + 2), bool)
        self.version = 0
        self._learn(topology)

    def _learn(self, topology: Topology) -> None:
        """All brokers know this topology from now on."""
        self.topology = topology
        if self.clusters is None:
            self.routes: PlainRoutes | ClusterRoutes = PlainRoutes(topology)
        else:
            self.routes = ClusterRoutes(topology, self.clusters.members)

    def run(self, progress: Callable[[int], None] | None) -> Simulated:
        width, barriers = self.width, self.outages.barriers
        window = self._next(0)
        while window is not None:
            lo, hi = window * width, (window + 1) * width
            inner = barriers[(barriers > lo) & (barriers < hi)].tolist()
            batch = self.calendar.pop(window)
            for start, end in pairwise((lo, *inner)):
                now = batch.arrive < end
                self._window(start, end, batch.take(np.flatnonzero(now)))
                batch = batch.take(np.flatnonzero(~now))
            self._window(inner[-1] if inner else lo, hi, batch)
            if progress is not None:
                progress(int(np.count_nonzero(self.sources.reached != NOT_YET)))
            window = self._next(hi)
        return self._result()

    def _next(self, time: int) -> int | None:
        """The first window from a time on in which anything happens."""
        later = self.outages.barriers[np.searchsorted(self.outages.barriers, time) :][:1]
        times = [at // self.width for at in (*later.tolist(), self.sources.next()) if at is not None]
        first = self.calendar.next()
        return min(times if first is None else (*times, first), default=None)

    def _window(self, lo: int, hi: int, arrived: Batch) -> None:
        """Everything that arrives from ``lo`` to before ``hi``, when the topology changes at most at ``lo``."""
        news = self._look_around(lo)
        started, again = self.sources.start(lo, hi, self.topology, self.version, news)
        self.counts.again += again
        batch = Batch.of([it for it in (arrived, started) if len(it)])
        if not len(batch):
            return
        event = self.sources.task_event[batch.task]
        batch = batch.take(np.lexsort((batch.cluster, batch.sender, event, batch.arrive, batch.broker)))
        look, row = self._look(batch)
        sent = self._send(batch, look, row)
        service = self._service(batch, look, sent)
        depart = _departures(batch.broker, batch.arrive, service, self.free)
        failed = self.outages.lost_at_broker(batch.broker, batch.arrive, depart)
        self._account(batch, look, service, depart, failed)
        self._leave(batch, look, sent, depart, failed)

    def _look_around(self, time: int) -> bool:
        """Apply failures and repairs at this time, and those known from it on; has the known topology changed?"""
        if time in self.outages.changed:
            self.free[self.outages.changed[time]] = 0  # an empty queue
        version = self.outages.version(time)
        if version == self.version or self.protocol == "fbr":
            return False
        self.version = version
        self._learn(self.outages.known(version))
        return True

    def _look(self, batch: Batch) -> tuple[_Look, Array]:
        """What a window's messages mean to their brokers, and the message of each entry."""
        event = self.sources.task_event[batch.task]
        row = np.repeat(np.arange(len(batch)), batch.size)
        mine = np.zeros(len(batch), bool)
        mine[row[batch.entries == batch.broker[row]]] = True
        client = batch.sender < 0
        pair = self.sources.pair(event, batch.broker)
        fresh = mine & (pair >= 0)
        fresh[fresh] = self.sources.reached[pair[fresh]] == NOT_YET
        fresh &= _first(fresh, pair)
        opens = stale = np.zeros(len(batch), bool)
        if self.clusters is not None:
            edge = self.edge[batch.broker]
            self.opened = _longer(self.opened, self.sources.tasks)
            opens = (client | (mine & (edge >= 0))) & ~self.opened[batch.task, edge]
            stale = opens & (self.sources.task_version[batch.task] != self.version)
            opens &= ~stale
            opens &= _first(opens, batch.task * len(self.edge) + batch.broker)
        return _Look(event, client, pair, fresh, opens, stale, mine & ~(fresh | opens | stale)), row

    def _send(self, batch: Batch, look: _Look, row: Array) -> _Sent:
        """Group the entries that go on by message, cluster and next hop."""
        on = np.flatnonzero(batch.entries != batch.broker[row])
        row, entry = row[on], batch.entries[on]
        cluster = batch.cluster[row]
        if self.clusters is not None:
            more = self._open(batch, np.flatnonzero(look.opens))
            row, cluster, entry = (np.concatenate(both) for both in zip((row, cluster, entry), more, strict=True))
        hop = self.routes.hop(batch.broker[row], cluster, entry)
        stuck = np.zeros(len(batch.entries), bool)
        stuck[on[hop[: len(on)] < 0]] = True  # an edge broker has a path to everyone that it adds
        if stuck.any():
            row, cluster, entry, hop = (column[hop >= 0] for column in (row, cluster, entry, hop))
        clusters = 1 if self.clusters is None else len(self.clusters) + 1
        key = (row * clusters + cluster + 1) * len(self.free) + hop
        order = np.argsort(key, kind="stable")
        key = key[order]
        start = np.flatnonzero(np.diff(key, prepend=-1))
        first = order[start]
        size = np.diff(start, append=len(key))
        return _Sent(row[first], cluster[first], hop[first], size, entry[order], stuck)

    def _open(self, batch: Batch, rows: Array) -> tuple[Array, Array, Array]:
        """MERC: row, cluster and destination of these messages in the clusters that they did not come from."""
        assert isinstance(self.routes, ClusterRoutes)
        routes = self.routes
        broker = batch.broker[rows]
        at, cluster = np.nonzero(routes.cell[:, broker].T >= 0)
        other = cluster != batch.cluster[rows][at]
        at, cluster = at[other], cluster[other]
        which, wanted = self.sources.wanted(batch.task[rows[at]])
        opening, entry = routes.lists(routes.cell[cluster, broker[at]], which, wanted)
        row, cluster = rows[at[opening]], cluster[opening]
        away = entry != batch.broker[row]
        return row[away], cluster[away], entry[away]

    def _service(self, batch: Batch, look: _Look, sent: _Sent) -> Array:
        """How long each message keeps its broker busy."""
        costs, stored = self.costs, self.costs.subscriptions
        match = costs.match + costs.subscription * np.where(self._matches_all(look), stored * len(self.free), stored)
        service = costs.receive + np.where(self._matches(look), match, 0)
        service += costs.send * np.bincount(sent.row, minlength=len(batch))
        if self.protocol != "fbr":
            service += costs.entry * np.bincount(sent.row, sent.size, len(batch)).astype(np.int64)
        if self.clusters is not None:
            fast = self.edge[batch.broker] >= 0
            service[fast] = np.maximum(service[fast] // costs.edge_speed, 1)
        return service

    def _matches(self, look: _Look) -> Array:
        return np.ones(len(look.event), bool) if self.protocol == "fbr" else look.client | look.fresh | look.opens

    def _matches_all(self, look: _Look) -> Array:
        """Where the subscriptions of other brokers are matched, too."""
        return np.ones(len(look.event), bool) if self.protocol == "fbr" else look.client | look.opens

    def _account(self, batch: Batch, look: _Look, service: Array, depart: Array, failed: Array) -> None:
        counts, n = self.counts, len(self.free)
        done = failed < 0
        worked = np.where(done, service, np.clip(failed - depart + service, 0, service))
        counts.last = max(counts.last, int(np.where(done, depart, failed)[worked > 0].max(initial=0)))
        counts.busy += np.bincount(batch.broker, worked, n).astype(np.int64)
        counts.matches += np.bincount(batch.broker[done & self._matches(look)], minlength=n)
        counts.duplicates += int(np.count_nonzero(look.dropped & done))
        counts.lost += int(np.count_nonzero(~done))
        ends = look.fresh & done
        self.sources.deliver(look.pair[ends], depart[ends], batch.hops[ends])
        if self.clusters is not None:
            opened = look.opens & done & (self.edge[batch.broker] >= 0)
            self.opened[batch.task[opened], self.edge[batch.broker[opened]]] = True

    def _leave(self, batch: Batch, look: _Look, sent: _Sent, depart: Array, failed: Array) -> None:
        """Put messages on links; those that fail to get on are held by brokers or reported to sources."""
        latency, detection = self.costs.latency, self.outages.detection
        back = -(-(depart + latency) // latency) * latency  # when it is seen that a message went no further
        done = failed < 0
        leaves = done[sent.row]
        row = sent.row[leaves]
        sender, hop, start = batch.broker[row], sent.hop[leaves], depart[row]
        hops = batch.hops[row] + 1
        self.counts.add_sent(hops, None if self.protocol == "fbr" else sent.size[leaves])
        broken = self.outages.lost_on_link(sender, hop, start, start + latency)
        self.counts.lost += int(np.count_nonzero(broken >= 0))
        columns = (start + latency, hop, sender, sent.cluster[leaves], batch.task[row], hops, sent.size[leaves])
        entries = sent.entries[np.repeat(leaves, sent.size)]
        flying = Batch(*columns, entries)
        if self.protocol != "fbr":
            self.sources.notice(failed[~done] + detection, look.event[~done])
            cut = np.flatnonzero(broken >= 0)
            lost, when = flying.take(cut), np.maximum(broken[cut] + detection, back[row[cut]])
            lost = replace(lost, arrive=when, broker=lost.sender, sender=lost.broker, hops=lost.hops - 1)
            self._hold(lost, start[cut])
            self._go_back(batch, look, sent.stuck, depart, np.where(done, back, -1))
        if (broken >= 0).any():
            flying = flying.take(np.flatnonzero(broken < 0))
        if len(flying):
            self.calendar.add(flying)

    def _go_back(self, batch: Batch, look: _Look, stuck: Array, depart: Array, back: Array) -> None:
        """Report to the sources what cannot go on; brokers hold what has no path until the topology changes.

        ``back``: when it is reported, -1 for what is gone with its broker.
        """
        row = np.repeat(np.arange(len(batch)), batch.size)
        stuck = stuck & (back[row] >= 0)
        rows = np.unique(row[stuck])
        reported = np.union1d(rows, np.flatnonzero(look.stale & (back >= 0)))
        self.sources.notice(back[reported], look.event[reported])
        if self.version < len(self.outages.times):
            news = self.outages.times[self.version] + self.outages.detection
            kept = replace(batch, arrive=np.maximum(back, news), sender=batch.broker)
            self._hold(kept.only(stuck), depart[rows])

    def _hold(self, messages: Batch, since: Array) -> None:
        """Brokers resend messages when these "arrive"; if a broker fails before, it is reported to the sources."""
        failed = self.outages.lost_at_broker(messages.broker, since, messages.arrive)
        gone = failed >= 0
        self.sources.notice(failed[gone] + self.outages.detection, self.sources.task_event[messages.task[gone]])
        kept = messages.take(np.flatnonzero(~gone))
        self.counts.again += len(kept)
        if len(kept):
            self.calendar.add(kept)

    def _result(self) -> Simulated:
        sources, work = self.sources, self.sources.workload
        there = sources.reached != NOT_YET
        event = np.repeat(np.arange(len(work)), np.diff(work.offsets))
        delivered = (event[there], work.destinations[there], sources.reached[there], sources.hops[there])
        missing = np.stack((event[~there], work.destinations[~there]))
        final = len(self.outages.times)
        topology = self.topology if self.version == final else self.outages.known(final)
        return Simulated(self.protocol, work, *delivered, missing, self.counts, topology)


def _departures(broker: Array, arrive: Array, service: Array, free: Array) -> Array:
    """When each message is finished: brokers serve in the order of arrival. Sorted by broker, then by arrival.

    A message starts when it has arrived and the one before it is finished: over the messages up to it, the latest of
    (arrival - work before) plus the work before it. ``free`` is when the brokers can start, and is updated.
    """
    first = np.flatnonzero(np.diff(broker, prepend=-1))
    queue = np.cumsum(np.diff(broker, prepend=broker[0]) != 0)
    before = np.cumsum(service) - service
    before -= before[first][queue]
    slack = np.maximum(arrive, free[broker]) - before  # no later message of a broker is ready before its first one
    low = int(slack.min())
    lift = queue * (int(slack.max()) - low + 1)  # so that the running maximum starts anew with every broker
    depart: Array = np.maximum.accumulate(slack - low + lift) - lift + low + before + service
    last = np.append(first[1:], len(broker)) - 1
    free[broker[last]] = depart[last]
    return depart


def _first(among: Array, key: Array) -> Array:
    """Which of the true ones are the first with their key?"""
    rows = np.flatnonzero(among)
    found = np.zeros(len(among), bool)
    found[rows[np.unique(key[rows], return_index=True)[1]]] = True
    return found


def _longer(array: Array, length: int) -> Array:
    """The same rows, and more that are false if there are fewer than ``length``; it grows by doubling."""
    if len(array) >= length:
        return array
    grown = np.zeros((max(length, 2 * len(array)), array.shape[1]), bool)
    grown[: len(array)] = array
    return grown

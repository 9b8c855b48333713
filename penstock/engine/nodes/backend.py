"""The ray backend: learners at home, lanes on the nodes of a cluster; further learners at home or on nodes.

At home the roles are processes of the local backend, with the receiver instead of rollout workers. Each node has a
host. It runs either the rollout workers of one machine, with a policy worker if inference is central, or one learner of
the group.
"""

from __future__ import annotations

import math
import pickle
import secrets
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from penstock.config import Config, ConfigError
from penstock.engine.backends.local import STOP_SECONDS, LocalBackend
from penstock.engine.backends.restarts import Restarts, RoleDied
from penstock.engine.contracts import RoleSpec
from penstock.engine.messages import (
    Command,
    Died,
    Dismiss,
    DrawFrom,
    Evaluate,
    GoOnWithout,
    Handler,
    Listening,
    NodesSeen,
    Note,
    Report,
)
from penstock.engine.nodes.choosing import Place, nodes_wanted
from penstock.engine.nodes.evaluation import EvaluationShares, PartEvaluated
from penstock.engine.nodes.host import HostReports, NodeHost, NodeLost, gather_seconds, packages_of
from penstock.engine.nodes.node import Gateway, Node, gateways_between
from penstock.engine.nodes.placing import LEAVE_SECONDS, Placement
from penstock.engine.nodes.receiver import RECEIVER
from penstock.engine.nodes.sender import Home
from penstock.engine.nodes.tasks import Tasks
from penstock.engine.roles.specs import EvaluatorRole, LearnerRole, name_of, policy_of
from penstock.engine.watching.time_spent import WALL
from penstock.experience.arena import ExperienceArena
from penstock.experience.layout import RoleKind
from penstock.experience.shards import ShardAddress
from penstock.ipc.ownership import Owned, owner_only
from penstock.ipc.stream import FRESH_SECONDS, OwnDelay
from penstock.runs.machine import about_here, differences
from penstock.runs.status import NodeStatus

CONNECT_SECONDS = 120.0  # for a node to start its roles and connect
KNOCK_INTERVAL = 2.0  # seconds between two checks of the head node
LOOK_INTERVAL = 0.25  # seconds between two checks of nodes whose gateways ask for their reports
MOST_UNANSWERED = 3  # consecutive checks without an answer, after which the head node is lost


class NodesBackend(Owned):
    """Runs learners at home, and starts hosts; a lost host is replaced on any suitable machine.

    Parameters
    ----------
    arena
        Arena of the run: its lanes mirror those of all nodes.
    specs
        Roles of the run on one machine.
    handle
        Called with a role's name and each of its reports.
    restarts
        Restarts of the roles at home.

    Attributes
    ----------
    has_lanes
        Whether a node that steps lanes has connected.

    Raises
    ------
    ConfigError
        A node has package versions other than home's, or no host starts there.
    """

    def __init__(self, arena: ExperienceArena, specs: Sequence[RoleSpec], handle: Handler, restarts: Restarts) -> None:
        from penstock.engine.nodes import cluster, gateway_host, hosted

        self._cluster, self._gateway_host, self._hosted = cluster, gateway_host, hosted
        self._arena = arena
        self._handle = handle
        learners = [spec for spec in specs if isinstance(spec, LearnerRole)]
        self._config: Config = learners[0].algorithm.config
        self._connection = cluster.open_cluster(self._config)
        num_nodes, first_away = self._config.num_nodes, self._config.learners_at_home
        self._cores = arena.shape.num_workers // num_nodes
        self._nodes = [
            Node(number, wanted, number - num_nodes + first_away if wanted.learns else 0)
            for number, wanted in enumerate(nodes_wanted(self._config, self._cores))
        ]
        with_lanes = self._nodes[:num_nodes]
        self._gateways = gateways_between(self._config.gateway_levels, with_lanes)
        self._leaves = [gateway for gateway in self._gateways if not gateway.is_of_gateways]
        self._shards: dict[tuple[str, int], DrawFrom] = {}  # by the learner's name and the gateway's number
        # Gateways, or nodes with lanes, that connect to home; their indices are their numbers at the receiver.
        self._nearest = [each for each in (*self._gateways, *with_lanes) if each.gateway is None]
        self._next_knock = self._next_look = 0.0
        self._unanswered = 0
        self._token, self._run = secrets.token_bytes(32), secrets.randbits(63)
        self._address: tuple[str, int] | None = None  # of the receiver, once it listens
        self._delay = OwnDelay()
        self._pumped_at = math.inf
        evaluator = next(spec for spec in specs if isinstance(spec, EvaluatorRole))
        self._packages = packages_of(evaluator.env)
        self._about_home = about_here(self._packages)
        self.has_lanes = False
        # Of evaluators on nodes.
        self._evaluations = EvaluationShares(evaluator, arena) if self._config.evaluator == "node" else None
        self._tasks = Tasks(specs, arena.shape, self._cores, self._evaluations)
        self._is_closed = False
        self._placement = Placement(
            self._connection, self._start_host, self._nodes, self._config, self._run, self._handle
        )
        with ExitStack() as on_failure:
            self._connection.num_users += 1
            on_failure.callback(self._disconnect)
            on_failure.callback(self._placement.release)
            self._placement.begin()
            roles = self._tasks.of_home(
                self._connection.home, self._token, self._run, [each.nodes for each in self._nearest],
                missing=[each.number_there for each in self._nearest if not self._is_placed(each)],
            )  # fmt: skip
            self._local = LocalBackend(arena, roles, self._take, restarts)
            on_failure.callback(self._local.close, 0.0)
            self._require_alike()
            on_failure.pop_all()

    def start(self) -> None:
        """Start the roles at home; each host is sent its task once it has started."""
        self._local.start()
        there, asked = sum(node.host is not None for node in self._nodes), self._config.nodes_requested
        if self._config.address is not None:
            self._handle("cluster", Note(f"the run is on the cluster {self._connection.name}"))
        if requested := self._placement.requested:
            self._handle("cluster", Note(f"{there} of {asked} nodes are there; requested: {requested}"))
        elif there < len(self._nodes):
            self._handle("cluster", Note(f"the run begins with {there} of {asked} nodes, and adds others that join"))
        if self._evaluations is not None and (remark := self._evaluations.remark):
            self._handle("cluster", Note(remark))
        for node in self._nodes:
            if node.rank:  # the receiver reports the others
                node.update_learner(is_connected=False)
                self._show(node)

    def pump(self, timeout: float) -> None:
        """Deliver reports of roles and hosts for up to `timeout` seconds; replace lost nodes, place missing ones.

        Raises
        ------
        RoleDied, LauncherDied
            A role at home that cannot be replaced is gone.
        """
        self._delay.observe(max(0.0, time.monotonic() - self._pumped_at))
        self._local.pump(timeout)
        self._pumped_at = time.monotonic()
        if self._is_head_gone:  # the roles at home can still be asked for a checkpoint
            return
        self._require_head()
        hosts = [(node, node.host) for node in (*self._gateways, *self._nodes) if node.host is not None]
        self._hosted.poll_answers(host for node, host in hosts if not node.is_watched)
        for node, seconds in self._placement.draining():
            self._ask_to_go(node, "Ray drains its machine", seconds)
        for gateway in self._gateways:
            try:
                self._advance_gateway(gateway)
            except NodeLost as lost:
                self._lose_gateway(gateway, str(lost))
        is_due = (now := time.monotonic()) >= self._next_look
        self._next_look = now + LOOK_INTERVAL if is_due else self._next_look
        for node in self._nodes:
            if node.is_watched and not is_due:  # its gateway reports for it
                continue
            try:
                self._advance(node)
            except NodeLost as lost:
                self._lose(node, str(lost))
        self._placement.place()
        self._place_gateways()
        self._placement.look_for_late()

    def send(self, role: str, command: Command) -> bool:
        """Send a command to a role at home, or to evaluators; False if the role is gone for good, or on a node."""
        if self._evaluations is not None and isinstance(command, Evaluate):
            self._evaluations.command(command)
            self._evaluations.send(self._nodes)
            return True
        return self._local.send(role, command)

    @property
    def pids(self) -> dict[str, int]:
        """Process ids of the roles at home."""
        return self._local.pids

    @property
    def num_nodes(self) -> int:
        """Number of nodes of the run, lost ones included."""
        return len(self._nodes)

    def hosts_cpu(self) -> list[tuple[float, dict[str, float]]]:
        """Return `NodeHost.cpu` of each node whose host has its task; waits for the answers."""
        return [node.host.cpu() for node in self._nodes if node.host is not None and node.has_begun]

    @owner_only
    def close(self, patience: float = STOP_SECONDS) -> None:
        """Stop all roles everywhere, and end the connection to the cluster. A second call does nothing."""
        if self._is_closed:
            return
        self._is_closed = True
        head_is_gone = self._is_head_gone or not self._connection.has_head  # then hosts end by themselves, without Ray
        hosts = [each.host for each in (*self._nodes, *self._gateways) if each.host is not None and not head_is_gone]
        try:
            for host in hosts if patience else ():
                host.stop(patience)
            self._local.close(patience)
        finally:
            for host in hosts:
                host.kill(patience)
            if not head_is_gone:
                self._placement.release()
            self._disconnect(head_is_gone=head_is_gone)

    def _disconnect(self, *, head_is_gone: bool = False) -> None:
        self._connection.num_users -= 1
        self._cluster.close_cluster(head_is_gone=head_is_gone)

    # -- nodes -----------------------------------------------------------------------------------------------------

    @property
    def _is_head_gone(self) -> bool:
        return self._unanswered >= MOST_UNANSWERED

    def _require_head(self) -> None:
        """Raise `RoleDied`, once, after several unanswered checks of the head node, before Ray ends this process."""
        now = time.monotonic()
        if now >= self._next_knock:
            self._next_knock = now + KNOCK_INTERVAL
            self._unanswered = 0 if self._connection.has_head else self._unanswered + 1
            if self._is_head_gone:
                raise RoleDied("the head node of the Ray cluster is gone, and all nodes with it")

    def _start_host(self, node: Node, place: Place) -> Any:
        """Start the host of a node."""
        return self._start(NodeHost, node, place, place.cores, gather_seconds(len(self._nodes)))

    def _start(self, kind: type[NodeHost], node: Node, place: Place, cores: int, gathers: float) -> Any:
        """Start the host of a node or gateway, which takes some of the reserved cores, and gathers for some seconds."""
        name, resources = f"{node.name}, host {node.incarnation + 1}, of run {self._run:x}", node.wanted.resources
        return self._hosted.Hosted(kind, place, cores, resources, name, self._packages, gathers)

    def _require_alike(self) -> None:
        """Wait until all hosts have started, and compare their software with that of home."""
        for node in self._nodes:
            if node.host is None:
                if self._placement.may_be_missing(node):
                    continue
                raise ConfigError(f"{node.name} has no machine: it is lost, or another run reserved it; start again")
            try:
                self._compare(node, self._hosted.BEGIN_SECONDS)
            except NodeLost as lost:
                raise ConfigError(f"{node.name} on {node.host.machine} cannot be used: {lost}") from lost

    def _compare(self, node: Node, patience: float) -> None:
        assert node.host is not None
        if unlike := differences(self._about_home, node.host.about(patience)):
            raise ConfigError(
                f"{node.name} on {node.host.machine} has {unlike}: install the same versions there, or leave it out"
            )

    def _advance(self, node: Node) -> None:
        """Send its task to a host that has started; deliver the reports of a host that has its task.

        Raises
        ------
        NodeLost
            The host is gone, is too late, has other software than home, or has left as requested.
        """
        if node.host is None:
            return
        if node.going and (node.status.has_left or time.monotonic() > node.gone_by):
            raise NodeLost("everything has arrived" if node.status.has_left else "its time is up")
        if not node.has_begun:
            self._begin(node, node.host)
            return
        if time.monotonic() > node.connected_by:
            of_learner = f"its learner has not started within {CONNECT_SECONDS:.0f} s"
            raise NodeLost(of_learner if node.rank else self._unheard(node))
        if node.gateway is not None:
            if not node.is_watched and node.host.is_begun() and node.gateway.host is not None:
                node.gateway.host.watch(node.number_there, node.incarnation, node.host)
                node.is_watched = True
            return
        is_connected = time.monotonic() - node.last_bytes_at < FRESH_SECONDS
        if node.rank or node.tries:  # no bytes have shown yet that its machine is alive
            is_connected |= node.host.is_late(self._delay.seconds) and self._connection.reaches(node.host.machine)
        if (answer := node.host.answer(is_connected=is_connected, delay=self._delay.seconds)) is not None:
            self._deliver(node, answer)

    def _begin(self, node: Node, host: Any) -> None:
        """Send its task to a host that has started, once the receiver that it connects to listens.

        Raises
        ------
        NodeLost
            The host has not started, or has other software than home.
        """
        address = self._above(node)
        if not host.is_begun():
            return
        if address is None and not node.rank:
            if node.waits_for_gateway:
                host.wait_for_gateway()
            return
        try:
            self._compare(node, 1.0)
        except ConfigError as error:
            self._placement.avoid(node)
            raise NodeLost(str(error)) from error
        if address is None:
            host.begin(self._tasks.of_learner(node.rank, host.cores))
        else:
            host.begin(self._tasks.of_node(self._home_of(node, address), node.number))
        node.has_begun, node.waits_for_gateway = True, False
        node.connected_by = time.monotonic() + CONNECT_SECONDS
        self._share_evaluation()

    def _above(self, node: Node) -> tuple[str, int] | None:
        """Return the address that a node connects to, its gateway's or home's; None: not listening, or a learner."""
        if node.rank:
            return None
        return self._address if node.gateway is None else node.gateway.address

    def _unheard(self, node: Node) -> str:
        return "it is not connected to {}:{}".format(*self._above(node) or ("home", "?"))

    def _home_of(self, node: Node, address: tuple[str, int]) -> Home:
        return Home(address, self._token, self._run, node.number_there, node.incarnation)

    def _deliver(self, node: Node, answer: HostReports) -> None:
        """Deliver the reports and gauges of a host; raises `NodeLost` where it has failed."""
        for role, report in answer.reports:
            if self._evaluations is not None and isinstance(report, PartEvaluated):
                if (evaluated := self._evaluations.completed(report)) is not None:
                    self._handle(role, evaluated)
                self._share_evaluation()
                continue
            if isinstance(report, Died) and role == RoleKind.EVALUATOR:
                self._share_evaluation(lost=node)
            self._handle(f"{role} of {node.name}", report)
        shape = self._arena.shape
        for role, gauges in answer.gauges.items():
            kind, _, number = role.partition("-")
            is_rollout = kind == RoleKind.ROLLOUT
            name = f"{kind}-{int(number) + node.number * self._cores}" if is_rollout else role
            # Only this gauge: the node's clock has another origin, and its cores are not home's.
            if is_rollout or node.rank or node.number == 0:  # node 0's policy worker stands for those of all nodes
                self._arena.gauges[shape.gauge_row(name)][WALL] = gauges[WALL]
            if node.rank and gauges[WALL].any() and not node.status.is_connected:
                node.update_learner(is_connected=True)
                self._greet(node)
                self._show(node)
        if answer.failure:
            raise NodeLost(answer.failure)
        if answer.going and not node.going:
            self._placement.avoid(node)
            self._ask_to_go(node, answer.going, LEAVE_SECONDS)

    def _ask_to_go(self, node: Node, why: str, seconds: float) -> None:
        """Grant a node nothing more, and let it leave when everything has arrived, or after some seconds."""
        assert node.host is not None
        node.going, node.gone_by = why, time.monotonic() + seconds
        if node.rank or not node.has_begun:  # there is nothing to wait for
            node.gone_by = 0.0
        else:
            self._tell_receiver(node, Dismiss(node.number_there))
        self._handle(node.name, Note(f"{node.name} on {node.host.machine} is asked to leave: {why}"))

    def _lose(self, node: Node, why: str) -> None:
        """Drop the host of a node; its lanes stand still until it has another."""
        machine = node.lose()
        node.is_missed = True
        self._show(node)
        if not node.rank:
            self._tell_receiver(node, GoOnWithout(node.number_there))
        is_lost = "has left" if node.going else "is lost"
        self._handle(node.name, Note(f"{node.name} on {machine} {is_lost}: {why}\n{self._placement.without(node)}"))
        self._share_evaluation(lost=node)

    def _share_evaluation(self, lost: Node | None = None) -> None:
        """Send evaluators the parts that are still to be played, those of a lost evaluator included."""
        if self._evaluations is not None:
            if lost is not None:
                self._evaluations.lose(lost.number)
            self._evaluations.send(self._nodes)

    def _tell_receiver(self, node: Node, command: Command) -> None:
        """Send a command to the receiver that a node, or a gateway, connects to."""
        if node.gateway is None:
            self._local.send(RECEIVER, command)
        elif node.gateway.host is not None and node.gateway.has_begun:
            node.gateway.host.send(RECEIVER, pickle.dumps(command))

    # -- gateways --------------------------------------------------------------------------------------------------

    def _is_placed(self, node: Node) -> bool:
        """Whether a node, or any node of a gateway, has a host."""
        return any(self._nodes[number].host is not None for number in node.nodes)

    def _place_gateways(self) -> None:
        """Start a host for each gateway without one, on the machine of one of its nodes; it reserves no core."""
        for gateway in self._gateways:
            if gateway.host is not None or gateway.not_before > time.monotonic():
                continue
            nodes = [self._nodes[number] for number in gateway.nodes]
            places = [node.place for node in nodes if node.host is not None and node.place is not None]
            if places and self._connection.has_head:
                kind, place = self._gateway_host.GatewayHost, places[-1 if gateway.is_of_gateways else 0]
                gateway.take(self._start(kind, gateway, place, 0, gather_seconds(len(self._gateways))))

    def _advance_gateway(self, gateway: Gateway) -> None:
        """Send its task to a gateway's host that has started; deliver its reports, and those of its nodes' hosts.

        Raises
        ------
        NodeLost
            The host is gone, too late, or has been asked to end.
        """
        host, address = gateway.host, self._above(gateway)
        if host is None:
            return
        if not gateway.has_begun:
            if host.is_begun() and address is not None:
                missing = [each.number_there for each in gateway.below if not self._is_placed(each)]
                parts = [each.nodes for each in gateway.below]
                home, ip = self._home_of(gateway, address), host.machine.address.rpartition(":")[0]
                shard = None if gateway.is_of_gateways else self._leaves.index(gateway)
                host.begin(self._tasks.of_gateway(home, ip, parts, missing, shard))
                gateway.has_begun, gateway.connected_by = True, time.monotonic() + CONNECT_SECONDS
            return
        if time.monotonic() > gateway.connected_by:
            raise NodeLost(self._unheard(gateway))
        is_connected = time.monotonic() - gateway.last_bytes_at < FRESH_SECONDS or bool(gateway.tries)
        answer = host.answer(is_connected=is_connected, delay=self._delay.seconds)
        if answer is None:
            return
        for role, report in answer.reports:
            if isinstance(report, Listening) and role == RECEIVER:
                gateway.address = report.address
            elif isinstance(report, Listening):
                at = ShardAddress(gateway.number, report.address, self._token, self._run, gateway.incarnation)
                learner = name_of(RoleKind.LEARNER, policy_of(role))
                self._shards[learner, gateway.number] = found = DrawFrom(at)
                self._local.send(learner, found)
            else:
                self._handle(f"{role} of {gateway.name}", report)
        self._take_statuses(gateway.below, answer.seen)
        for number, incarnation, of_host in answer.below:
            node = gateway.below[number]
            if node.host is not None and node.incarnation == incarnation:
                try:
                    self._deliver(node, of_host)
                except NodeLost as lost:
                    self._lose(node, str(lost))
        if answer.failure or answer.going:
            raise NodeLost(answer.failure or answer.going)

    def _lose_gateway(self, gateway: Gateway, why: str) -> None:
        """Drop the host of a gateway; its nodes, and the gateways below it, connect to its successor."""
        machine = gateway.lose()
        self._tell_receiver(gateway, GoOnWithout(gateway.number_there))
        told = f"{gateway.name} on {machine} is lost: {why}\nits {len(gateway.nodes)} nodes reconnect through another"
        self._handle(gateway.name, Note(told))
        for each in gateway.below:
            if isinstance(each, Gateway):
                if each.host is not None:
                    self._lose_gateway(each, f"{gateway.name} is lost")
            elif each.host is not None and each.has_begun:
                each.wait_for_gateway()
                self._share_evaluation(lost=each)
                try:
                    each.host.wait_for_gateway()
                except NodeLost as lost:
                    self._lose(each, str(lost))
                else:
                    self._show(each)
        self._handle(gateway.name, NodesSeen({}, {gateway.number: gateway.status}))

    def _take_statuses(self, below: Sequence[Node], statuses: Mapping[int, NodeStatus]) -> None:
        """Store and show statuses of nodes or gateways that connect to home or to a gateway, by their numbers there."""
        nodes, gateways = {}, {}
        for place, status in statuses.items():
            each = below[place]
            each.update(status)
            if isinstance(each, Gateway):
                gateways[each.number] = each.status
            else:
                self.has_lanes |= status.is_connected
                self._greet(each)
                if each.number < self._config.least_nodes or each.incarnation:  # an optional node has had a host
                    nodes[each.number] = each.status
        if nodes or gateways:
            self._handle(RECEIVER, NodesSeen(nodes, gateways))

    def _greet(self, node: Node) -> None:
        """Report that a lost node is back."""
        if node.is_missed and node.status.is_connected and node.host is not None:
            node.is_missed = False
            self._handle(node.name, Note(f"{node.name} is back on {node.host.machine}"))

    def _show(self, node: Node) -> None:
        self._handle(node.name, NodesSeen({node.number: node.status}))

    def _take(self, role: str, report: Report) -> None:
        """Pass on a report of a role at home, after completing the statuses of nodes in it."""
        match report:
            case Listening(address):
                self._address = address
            case NodesSeen(statuses):
                self._take_statuses(self._nearest, statuses)
            case Died(story) if role == RECEIVER:
                self._handle(role, Died(f"{story}: nodes reconnect"))
            case Died():
                self._handle(role, report)
                for found in [found for (learner, _), found in self._shards.items() if learner == role]:
                    self._local.send(role, found)  # its successor needs the addresses of the shards
            case _:
                self._handle(role, report)

"""Nodes: machines of a cluster, or parts of one, that step lanes for a run, or hold further learners of it.

Home has the supervisor and the first learner. Its arena has the lanes of all nodes; each node has an arena of its own,
with the lanes and slots of its share.

The path of an observation from a node to home:

1. A rollout worker on the node writes it into a slot of the node's arena, as on one machine.
2. When the slot is full, `sender.Sender` sends it over a `stream.Stream`, with other full slots as one block. Steps for
   a replay buffer go through an outbox on the node instead (`transport.StepTransport`, `sender.StepSender`).
3. At home `poller.Poller` resumes the connection (`link.Link`), which writes the block into the slots that were granted
   to the node, and hands them to the learner (`lanes.NodeLanes`); steps are written into the replay buffer
   (`lanes.StepNodeLanes`).

The path of a version of the weights from home to a node:

1. The learner publishes it in the weights block of home's arena, and wakes the receiver (`tasks.AnnouncedWeights`).
2. `dispatcher.Dispatcher` sends each node the newest version, then control words and grants of slots.
3. The receiving thread of `sender.Sender` publishes it in the node's arena, where rollout workers read it.

Many nodes connect through gateways of at most 64 nodes. A gateway acts as a node towards home, and as home towards its
nodes: blocks arrive in slots of its arena, and its sender forwards them; weights are published there, and its
dispatcher forwards them. The replay buffer may be kept in `shards` at gateways, from which the learner draws.

A run begins with `joining` (settings that fit the cluster) and `backend.NodesBackend`. `placing` finds a machine for
each node (`choosing` chooses them, `cluster` reserves them, `hosted` starts hosts there and asks for their reports),
gives back the machines of nodes that leave, and replaces lost ones. The backend sends each host the roles of its node
(`tasks`); the host runs them and returns their reports (`host.NodeHost`). At home the `receiver` accepts connections.
`learning` has the learner and `evaluation` the evaluator of a node. Only `cluster` and `hosted` import Ray.
"""

"""Groups of learners of one policy, which apply the same gradient, each from its share of a batch.

One batch: the first learner (`leader.Leader`, around the learner of the data path) collects or draws it, and sends it
as a parcel (`parcels`) to the others (`follower.Follower`). Each learns from its share (`rank_learner`), with outputs
and gradients exchanged by `penstock.nn.sharing`; the weights of all stay equal, and the first publishes and saves them.

Learners connect in meetings (`meeting`), by the board (`board`), which is kept by the supervisor's process. When one
dies, the others learn on alone until its successor is ready for the next meeting, and gets its state from one of them.
"""

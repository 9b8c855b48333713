"""Groups of learners of one policy, each on its share of a batch, that apply the same gradient.

For each batch, the first learner (`leader.Leader`, around the learner of the data path) collects or draws it, and sends
it as a parcel (`parcels`) to the others (`follower.Follower`). Each learns from its share (`rank_learner`), and they
exchange outputs and gradients by `penstock.nn.sharing`; all weights stay equal, and the first publishes and saves them.

Learners connect in meetings (`meeting`), by the board (`board`), which is kept by the supervisor's process. When one
dies, the first learns alone until a successor is ready for the next meeting, and gets its state from another learner.
"""

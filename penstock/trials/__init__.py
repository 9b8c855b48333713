"""Trainings on the nodes of a Ray cluster, each a separate process tree, for ``multirun``, ``search`` and ``pbt``.

===========  ====================================================================================
`request`    which command asks for a cluster, and for which resources of each training
`cluster`    places on nodes, trainings there seen from home: one of two modules that import Ray
`host`       a node's side of a training: its processes and its files
`files`      changes of a folder in pieces, and their copy elsewhere
===========  ====================================================================================

Home writes everything that lasts. A training writes into a temporary folder of its node, from which changes are sent
home as they occur; a folder that is verified to be shared is written directly.
"""

"""Choice of guests' actions: one forward pass for each past version in play, or for the newest weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from penstock.engine.acting.inference import SharedWeights
from penstock.experience.arena import NOT_ASKED, ExperienceArena, Pending
from penstock.self_play.arenas import pool_in, seats_in


class GuestInference:
    """Networks of past versions, made at their first use; without a pool, the network of the newest weights.

    A guest samples its actions; if the algorithm does not sample actions, it explores as at the end of training.
    Nothing is recorded.

    Parameters
    ----------
    arena
        Arena of the guests.
    algorithm
        Algorithm of the policy.
    device
        Device of the computation.
    """

    def __init__(self, arena: ExperienceArena, algorithm: Any, device: str) -> None:
        self._arena = arena
        self._pool = pool_in(arena)
        self._algorithm = algorithm
        self._device = torch.device(device)
        self._autocast = algorithm.autocast(self._device)
        self._versions: dict[int, tuple[Any, SharedWeights]] = {}
        shape = arena.shape
        self._lanes = np.arange(shape.num_lanes, dtype=np.int64).reshape(-1, shape.group_size)
        seats = np.tile(seats_in(shape), shape.all_groups)
        self._games = np.repeat(np.arange(len(seats)), seats)  # of each lane, among all games with guests

    @torch.inference_mode()
    def answer(self, pending: Pending) -> None:
        """Choose actions for the guests of the pending groups, and write them into their rows."""
        arena, requests = self._arena, self._arena.requests
        rows, lanes = requests.rows[pending.groups].reshape(-1), self._lanes[pending.groups].reshape(-1)
        noise = requests.noise.reshape(-1, arena.shape.action.noise_size)
        memory = requests.memory(pending)
        is_asked = rows != NOT_ASKED
        places = np.zeros_like(lanes) if self._pool is None else self._pool.playing[self._games[lanes]]
        for place in np.unique(places[is_asked]).tolist():
            asking = (is_asked & (places == place)).nonzero()[0]
            at = rows[asking]
            fields = arena.columns["obs"][at], arena.columns["first"][at], memory[asking], noise[lanes[asking]]
            obs, first, before, numbers = (torch.from_numpy(field).to(self._device) for field in fields)
            with self._autocast:
                choice, after = self._version(place).act(obs, first, before)
                action = choice.sample(numbers)
            arena.columns["action"][at] = action.cpu().numpy()
            memory[asking] = after.cpu().numpy()
        requests.keep_memory(pending, memory)

    def _version(self, place: int) -> Any:
        """Return a network with a place's weights; in a pool these stay there while a game plays against them."""
        if place not in self._versions:
            model = self._algorithm.make_model(self._device)
            block = self._arena.weights if self._pool is None else self._pool.places[place]
            self._versions[place] = model, SharedWeights(model, block)
        model, weights = self._versions[place]
        weights.refresh()
        return model

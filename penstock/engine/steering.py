"""Changes of settings and copies of policies in a running training, on request of the user."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from penstock.config import ConfigError, tunable_values, tuned
from penstock.engine.policies import Policy
from penstock.engine.supervisor import Supervisor
from penstock.engine.transfers import learned_at, require_alike
from penstock.runs.checkpoint import Checkpoint


class Steering:
    """Part of `penstock.engine.trainer.Trainer`: settings and copies of its policies."""

    _policies: list[Policy]
    _supervisor: Supervisor

    def _require_open(self) -> None:
        raise NotImplementedError

    def _record_parent(self, checkpoint: Checkpoint) -> None:
        if (run := self._supervisor.training.run_directory) is not None:
            run.record_parent(self._supervisor.progress.status().steps, checkpoint.path, checkpoint.meta)

    def get_hyperparameters(self) -> dict[Any, Any]:
        """Return the current tunable settings by name; with several policies, ``{policy_id: settings}``.

        Settings that are None or functions of progress are left out.
        """
        self._require_open()
        found = {policy.id: tunable_values(policy.config) for policy in self._policies}
        return found if len(found) > 1 else found[self._policies[0].id]

    def set_hyperparameters(self, settings: Mapping[Any, Any] | None = None, **named: Any) -> None:
        """Set tunable settings, from the next batch on; may be called within `on_update`.

        A learning rate is the base that ``learning_rate_schedule`` multiplies. The values are saved in checkpoints and
        kept when the run is resumed, unless the resume changes them.

        Parameters
        ----------
        settings
            Values by name; with several policies, ``{policy_id: values}`` for any of them.

        Raises
        ------
        ConfigError
            A policy does not exist, a setting is not tunable, or a value is not legal. Nothing is changed then.
        """
        if settings is None or named:
            raise TypeError('settings are given as one dict: set_hyperparameters({"learning_rate": 1e-4})')
        self._require_open()
        by_id: dict[Any, Policy] = {policy.id: policy for policy in self._policies}
        if len(by_id) == 1 and not all(isinstance(each, Mapping) for each in settings.values()):
            settings = {next(iter(by_id)): settings}
        if not settings or not settings.keys() <= by_id.keys():
            raise ConfigError(f"settings are for the policies {list(settings)}; this run has {list(by_id)}")
        for policy, values in settings.items():
            tuned(by_id[policy].untuned, {**by_id[policy].tuned, **values})  # raises before any is set
        for policy, values in settings.items():
            self._supervisor.tune(by_id[policy].number, values)

    def copy_policy(self, parent: int | str | os.PathLike[str], child: int | str = 0) -> None:
        """Continue a policy as a copy of another: weights, normalisations, target networks and optimisers.

        The child keeps its settings, steps and random numbers. Its earlier experience is not learned from.

        Parameters
        ----------
        parent
            Policy to copy; or path of a checkpoint, or of a run, of which the latest checkpoint is used.
        child
            Policy to replace.

        Raises
        ------
        ConfigError
            A policy does not exist, or the two networks differ.
        CheckpointError
            The checkpoint cannot be read, holds only weights, or has another architecture.
        """
        self._require_open()
        by_id: dict[Any, Policy] = {policy.id: policy for policy in self._policies}
        is_place = parent not in by_id and not isinstance(parent, int) and os.path.exists(parent)
        for name in (child,) if is_place else (parent, child):
            if name not in by_id:
                also = ", and no such path" if name is parent and not isinstance(parent, int) else ""
                raise ConfigError(f"there is no policy {name!r}{also}: this run has {list(by_id)}")
        if is_place:
            assert not isinstance(parent, int)
            learned, checkpoint = learned_at(parent, by_id[child])
            self._supervisor.copy(learned, by_id[child].number)
            self._record_parent(checkpoint)
            return
        require_alike([by_id[parent], by_id[child]], "copy_policy")
        if parent != child:
            self._supervisor.copy(by_id[parent].number, by_id[child].number)

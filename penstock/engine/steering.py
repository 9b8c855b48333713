"""Settings that change, and policies that are copied, while a run goes on: how code outside of it steers a trainer."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from penstock.config import ConfigError, tunable_values, tuned
from penstock.engine.policies import Policy
from penstock.engine.supervisor import Supervisor
from penstock.engine.transfers import learned_at, require_alike


class Steering:
    """The part of `penstock.engine.trainer.Trainer` that steers its policies from outside."""

    _policies: list[Policy]
    _supervisor: Supervisor

    def _require_open(self) -> None:
        raise NotImplementedError

    def get_hyperparameters(self) -> dict[Any, Any]:
        """Return the tunable settings as they are now, by name: of several policies, ``{policy_id: settings}``.

        Settings that are None or functions of progress in this run are left out.
        """
        self._require_open()
        found = {policy.id: tunable_values(policy.config) for policy in self._policies}
        return found if len(found) > 1 else found[self._policies[0].id]

    def set_hyperparameters(self, settings: Mapping[Any, Any]) -> None:
        """Go on with other values of tunable settings, from the next batch on; also within `on_update`.

        A learning rate is the base that ``learning_rate_schedule`` multiplies. The values are saved with checkpoints
        and hold when the run is resumed, unless the resume gives the setting itself.

        Parameters
        ----------
        settings
            Values by name; of several policies ``{policy_id: values}``, of any of them.

        Raises
        ------
        ConfigError
            There is no such policy; a setting is not tunable, or its value not legal. Nothing is changed then.
        """
        self._require_open()
        by_id: dict[Any, Policy] = {policy.id: policy for policy in self._policies}
        if len(by_id) == 1 and not all(isinstance(each, Mapping) for each in settings.values()):
            settings = {next(iter(by_id)): settings}
        if not settings or not settings.keys() <= by_id.keys():
            raise ConfigError(f"settings are given for the policies {list(settings)}; there are {list(by_id)}")
        for policy, values in settings.items():
            tuned(by_id[policy].untuned, {**by_id[policy].tuned, **values})  # all are legal, or none is set
        for policy, values in settings.items():
            self._supervisor.tune(by_id[policy].number, values)

    def copy_policy(self, parent: int | str | os.PathLike[str], child: int | str = 0) -> None:
        """Let a policy go on as another is now: weights, normalisations, target networks and optimisers.

        Its settings, steps and random numbers stay its own. What it had collected before is not learned from.

        Parameters
        ----------
        parent
            The policy; or where another run's checkpoint lies, or the run, whose latest is meant.
        child
            Goes on as a copy.

        Raises
        ------
        ConfigError
            There is no such policy, or their networks differ.
        CheckpointError
            The checkpoint cannot be read, holds weights alone, or is of another architecture.
        """
        self._require_open()
        by_id: dict[Any, Policy] = {policy.id: policy for policy in self._policies}
        is_place = parent not in by_id and not isinstance(parent, int) and os.path.exists(parent)
        for name in (child,) if is_place else (parent, child):
            if name not in by_id:
                raise ConfigError(f"there is no policy {name!r} to copy: there are {list(by_id)}")
        if is_place:
            assert not isinstance(parent, int)
            self._supervisor.copy(learned_at(parent, by_id[child]), by_id[child].number)
            return
        require_alike([by_id[parent], by_id[child]], "copy_policy")
        if parent != child:
            self._supervisor.copy(by_id[parent].number, by_id[child].number)

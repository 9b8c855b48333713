"""Dispatch of reports to the parts of the run that they concern."""

from __future__ import annotations

from collections.abc import Mapping
from typing import assert_never

from penstock.engine.evaluations import Evaluations
from penstock.engine.exploits import Exploits
from penstock.engine.messages import (
    ContentsSaved,
    Copied,
    Died,
    Diverged,
    EnvironmentMetrics,
    EnvironmentSteps,
    Episodes,
    Evaluated,
    Failed,
    Learned,
    LearnedInWorker,
    NodeSeen,
    Note,
    Of,
    Ready,
    Report,
    Saved,
    WeightsSet,
)
from penstock.engine.roles.specs import policy_of
from penstock.engine.roles.together import with_policy_names
from penstock.engine.saves import Saves
from penstock.engine.transfers import Transfers
from penstock.engine.turns import Turns
from penstock.engine.watching.chronicle import Chronicle
from penstock.engine.watching.progress import Progress
from penstock.experience.layout import RoleKind

WARNING = "warning: "


class Reports:
    """Hands each report to the parts of the run that it concerns, which are the parameters.

    `of_processes` and `of_roles` say whose processes are, and the roles within them, see `policies_by_role`.
    """

    def __init__(
        self,
        progress: Progress,
        chronicle: Chronicle,
        turns: Turns,
        evaluations: Evaluations,
        saves: Saves,
        transfers: Transfers,
        exploits: Exploits,
        of_processes: Mapping[str, str],
        of_roles: Mapping[str, str],
    ) -> None:
        self._of_processes, self._of_roles = of_processes, of_roles
        self._progress, self._chronicle, self._turns = progress, chronicle, turns
        self._evaluations, self._saves, self._transfers, self._exploits = evaluations, saves, transfers, exploits

    def take(self, role: str, report: Report) -> None:
        """Hear what a role reports."""
        match report:
            case Of(name, said):
                self.take(name, said)
            case Learned():
                self._progress.take_learned(report, policy_of(role))
                self._exploits.learned()
            case LearnedInWorker(policy=policy):
                self._progress.policies[policy].take_learned_in_worker(report)
            case Episodes(finished, successes, policy, is_new):
                self._progress.policies[policy].take_episodes(finished, successes)
                self._exploits.take_episodes(policy, finished, is_new)
            case EnvironmentMetrics(values, policy, is_of_now):
                self._progress.take_metrics(values)
                self._exploits.take_metrics(policy, values, is_of_now)
            case EnvironmentSteps(count):
                self._progress.take_env_steps(count)
            case Evaluated():
                self._evaluations.take(report)
            case Saved(number, error):
                self._saves.take(number, error, policy_of(role))
            case ContentsSaved(number, error, what):
                self._saves.take_contents(number, error, what, policy_of(role))
            case WeightsSet():
                self._transfers.taken()
            case Copied():
                self._transfers.take(report)
            case Diverged(policy, problem):
                self._exploits.diverged(policy, problem)
            case Note(text):
                self._chronicle.event(self._with_role(role, text))
            case NodeSeen(number, status):
                self._progress.nodes[number] = status
            case Died(story):
                self._progress.restarts += 1
                if role == RoleKind.EVALUATOR:
                    self._evaluations.forget()
                elif role == RoleKind.LEARNER:
                    self._saves.ask_again()
                self._chronicle.event(f"{with_policy_names(story, self._of_processes)}\n{role} is replaced")
            case Failed():
                self._turns.take(role, report)
            case Ready():
                pass
            case _:
                assert_never(report)

    def _with_role(self, role: str, text: str) -> str:
        """Note of a role, prefixed with the role's policy unless it serves all."""
        whose = self._of_roles.get(role) or self._of_processes.get(role)
        if whose is None:
            return text
        warning = WARNING if text.startswith(WARNING) else ""
        return f"{warning}{role} {whose}: {text.removeprefix(warning)}"

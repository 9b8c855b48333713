"""Dispatch of reports to the parts of the run that they concern."""

from __future__ import annotations

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
    EpisodeSteps,
    Evaluated,
    Failed,
    FromRole,
    Learned,
    LearnedInWorker,
    Listening,
    NodesSeen,
    Note,
    Ready,
    Report,
    Saved,
    WeightsSet,
)
from penstock.engine.polling import Roles
from penstock.engine.roles.specs import policy_of
from penstock.engine.saves import Saves
from penstock.engine.watching.chronicle import Chronicle
from penstock.engine.watching.progress import Progress
from penstock.experience.layout import RoleKind

WARNING = "warning: "


class Reports:
    """Dispatches each report to the parts of the run that it concerns; the parameters are these parts."""

    def __init__(
        self, progress: Progress, chronicle: Chronicle, roles: Roles, evaluations: Evaluations, saves: Saves,
        exploits: Exploits,
    ) -> None:  # fmt: skip
        self._progress, self._chronicle, self._roles = progress, chronicle, roles
        self._evaluations, self._saves, self._exploits = evaluations, saves, exploits

    def take(self, role: str, report: Report) -> None:
        """Dispatch the report of a role."""
        match report:
            case FromRole(name, of_role):
                self.take(name, of_role)
            case Learned():
                self._progress.take_learned(report, policy_of(role))
                self._exploits.learned()
            case LearnedInWorker(policy=policy):
                self._progress.policies[policy].take_learned_in_worker(report)
            case Episodes(finished, successes, policy, is_new):
                self._progress.policies[policy].take_episodes(finished, successes)
                self._exploits.take_episodes(policy, finished, is_new)
            case EnvironmentMetrics(values, policy, is_new):
                self._progress.take_metrics(values)
                self._exploits.take_metrics(policy, values, is_new)
            case EnvironmentSteps(count):
                self._progress.take_env_steps(count)
            case Evaluated():
                self._evaluations.take(report)
            case Saved(number, error):
                self._saves.take(number, error, policy_of(role))
            case ContentsSaved(number, error, what):
                self._saves.take_contents(number, error, what, policy_of(role))
            case WeightsSet() | Copied():
                self._roles.take_answer(report)
            case Diverged(policy, problem):
                self._exploits.diverged(policy, problem)
            case Note(text):
                self._chronicle.event(self._with_role(role, text))
            case EpisodeSteps(columns):
                self._chronicle.write_episode(columns, policy_of(role))
            case NodesSeen(statuses, gateways):
                self._progress.nodes.update(statuses)
                self._progress.gateways.update(gateways)
            case Died(story):
                self._take_death(role, story)
            case Failed():
                self._roles.take_failure(role, report)
            case Ready() | Listening():
                pass
            case _:
                assert_never(report)

    def _take_death(self, role: str, story: str) -> None:
        """Show that a role died and is replaced, and repeat requests that it leaves unanswered."""
        self._progress.restarts += 1
        if role == RoleKind.EVALUATOR:
            self._evaluations.forget()
        elif role == RoleKind.LEARNER:
            self._saves.repeat_request()
        self._chronicle.event(f"{self._roles.with_policies(story)}\n{role} is replaced")

    def _with_role(self, role: str, text: str) -> str:
        """Return the note of a role, prefixed with role and policy unless the role serves all policies."""
        policies = self._roles.policies_of(role)
        if policies is None:
            return text
        warning = WARNING if text.startswith(WARNING) else ""
        return f"{warning}{role} {policies}: {text.removeprefix(warning)}"

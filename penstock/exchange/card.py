"""The card of a published run: front matter for the Hub, and facts about the training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.play.evaluation import Evaluation
from penstock.runs.formatting import drawn, spread

_MACHINE = ("cpu", "cores", "gpus", "system")
_VERSIONS = ("penstock", "torch", "numpy", "gymnasium", "python")


@dataclass(frozen=True)
class Score:
    """Score of a policy's weights.

    Attributes
    ----------
    policy
        Name of the policy; "" in a run with one.
    which
        "best" or "final".
    steps
        Steps that the weights have learned from.
    evaluation
        Episodes played for the card, if any.
    """

    policy: str
    which: str
    steps: int
    evaluation: Evaluation | None


@dataclass(frozen=True)
class Card:
    """Facts of a published run.

    Attributes
    ----------
    repo
        Repository, "ORG/NAME".
    document
        Content of the published ``config.json``.
    scores
        Scores of the best weights, then of the final ones if any policy's final weights differ from its best.
    seed
        Seed of the environments of these scores.
    has_video, has_metrics
        Whether there is a video, and a table of metrics.
    not_exported
        Reasons why policies have no ONNX file, by the policy's name.
    """

    repo: str
    document: Mapping[str, Any]
    scores: tuple[Score, ...]
    seed: int
    has_video: bool
    has_metrics: bool
    not_exported: Mapping[str, str]

    @property
    def algorithm(self) -> str:
        """Name of the algorithm."""
        return str(self.document["algorithm"])

    @property
    def env(self) -> str:
        """Name of the environment."""
        return str(self.document["run"].get("env_name") or self.document.get("env"))

    def text(self) -> str:
        """Return the content of ``README.md``."""
        return f"---\n{self.front_matter()}\n---\n\n{self._body()}"

    def front_matter(self) -> str:
        """Return the metadata that the Hub reads, as YAML: library, tags, and the mean reward of the best weights."""
        from huggingface_hub import EvalResult, ModelCardData

        results = [
            EvalResult(
                task_type="reinforcement-learning", task_name="reinforcement-learning",
                dataset_type=self.env, dataset_name=self.env, metric_type="mean_reward",
                metric_name=f"mean_reward of {score.policy}" if score.policy else "mean_reward",
                metric_value=_plain_spread(score.evaluation),
            )
            for score in self.scores if score.which == "best" and score.evaluation is not None
        ]  # fmt: skip
        name = self.algorithm.rpartition(":")[2]
        tags = [self.env, "deep-reinforcement-learning", "reinforcement-learning", "penstock", name]
        more: dict[str, Any] = {"model_name": name, "eval_results": results} if results else {}
        return str(ModelCardData(library_name="penstock", tags=tags, **more).to_yaml()).strip()

    def _body(self) -> str:
        name, policies = self.repo.rpartition("/")[2], self.document["run"].get("policies")
        first = f', "{policies[0]}"' if policies else ""
        parts = [
            f"# {self.algorithm.rpartition(':')[2].upper()} on {self.env}",
            "A policy trained with Penstock.",
            *self._scores(),
            "## Use",
            f"```bash\npenstock hub pull {self.repo} {name}\npenstock eval {name}\n```",
            f'```python\nimport penstock\n\npolicy = penstock.load_policy("{name}"{first})\n'
            "action = policy.act(observation)\n```",
            "`penstock resume` trains it further from the final weights, with a fresh optimiser.",
            *self._code(),
            "## Training",
            drawn(self._training(), markdown=True),
            "All settings are in `config.json`.",
            "## Files",
            drawn(self._files(), markdown=True),
            *(f"No ONNX file{f' of {name}' if name else ''}: {reason}" for name, reason in self.not_exported.items()),
        ]
        return "\n\n".join(parts) + "\n"

    def _scores(self) -> list[str]:
        played = [score for score in self.scores if score.evaluation is not None]
        if not played:
            return ["No episodes were played for this card."]
        has_names = any(score.policy for score in played)
        heading = ("policy",) * has_names + ("weights", "steps", "mean return", "episodes")
        rows = [heading]
        for score in played:
            assert score.evaluation is not None
            given_up = f", {score.evaluation.unfinished} of them given up" if score.evaluation.unfinished else ""
            rows.append((
                *((score.policy,) * has_names), score.which, f"{score.steps:,}",
                spread(score.evaluation.mean_return, score.evaluation.std_return),
                f"{score.evaluation.episodes}{given_up}",
            ))  # fmt: skip
        also = " The best weights are also the final ones." if self._best_is_final else ""
        return [
            drawn(rows, markdown=True),
            "Mean and standard deviation of undiscounted returns. Actions are deterministic, the most probable ones. "
            f"Environments are new, with seed {self.seed}; their episodes did not select the weights.{also}",
        ]

    @property
    def _best_is_final(self) -> bool:
        return all(score.which == "best" for score in self.scores)

    def _training(self) -> list[tuple[str, str]]:
        run = self.document["run"]
        commands = [run.get("command"), *(each.get("command") for each in run.get("resumed", ()))]
        machine, versions = run.get("machine") or {}, run.get("versions") or {}
        facts = {
            "command": "; then ".join(f"`{_in_words(each)}`" for each in commands if each) or "unknown",
            "commit": run.get("commit") or "unknown",
            "commit of Penstock": run.get("penstock_commit"),
            "seed": self.document.get("seed"),
            "steps": f"{max(score.steps for score in self.scores):,}",
            "begun": run.get("created"),
            "machine": ", ".join(f"{key} {_in_words(machine[key])}" for key in _MACHINE if machine.get(key)),
            "versions": ", ".join(f"{key} {versions[key]}" for key in _VERSIONS if key in versions),
        }
        rows = [(key, str(value)) for key, value in facts.items() if value not in (None, "")]
        return [("training", ""), *rows]

    def _files(self) -> list[tuple[str, str]]:
        files = {
            "`checkpoints/best/`": "weights with the best evaluation in training (safetensors), and their description",
            "`checkpoints/<steps>/`": "weights at the end of training",
            "`config.json`": "algorithm, settings, command, versions",
        }
        if self._best_is_final:
            del files["`checkpoints/best/`"]
        if self.document["run"].get("policies"):
            files = {f"`policies/<name>/{key[1:]}": what for key, what in files.items() if "checkpoints" in key} | files
            files = {key: what for key, what in files.items() if not key.startswith("`checkpoints")}
        if self.has_metrics:
            files["`metrics.csv`"] = "metrics over time; of many rows, only the lowest and highest of each stretch"
        if self.has_video:
            files["`replay.mp4`"] = "a video of an episode"
        if len(self.not_exported) < max(1, len(self.document["run"].get("policies") or ())):
            files["`*.onnx`"] = "the best policy for other programs, from raw observations to actions; its contract"
        return [("file", "content"), *files.items()]

    def _code(self) -> list[str]:
        """Return a note about code that is not part of the repository."""
        named = [str(self.document.get(key)) for key in ("env", "encoder") if ":" in str(self.document.get(key))]
        if not named:
            return []
        return [
            f"The run names code that is not part of this repository: {', '.join(f'`{each}`' for each in named)}. It "
            "must be in place, and is imported only with `--trust-code` (in Python, `trust_code=True`)."
        ]


def _plain_spread(evaluation: Evaluation) -> str:
    """Return mean and standard deviation in the form that the Hub's tables expect."""
    return f"{evaluation.mean_return:.2f} +/- {evaluation.std_return:.2f}"


def _in_words(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)

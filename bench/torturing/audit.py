"""Comparison of a run directory with the ledger after a life."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from pathlib import Path

from penstock.replay import Field, NStep, Prioritized, ReplayBuffer, ReplayFileError, Uniform
from penstock.runs.checkpoint import CheckpointError, verify_checkpoint
from penstock.runs.store import CheckpointStore
from torturing import ledger
from torturing.plan import LANES, SEGMENT_LENGTH, WORKERS, DataPath

MISCOUNTED, BROKEN, LOST = "steps twice or lost", "ended badly", "users' files lost"
NOTES = ("notes.txt", "checkpoints/notes.txt", "checkpoints/2024/notes.txt")
"""Files of the user in a run directory."""
Wrong = list[tuple[str, str]]
"""Violations: kind and description of each."""


class UsersFiles:
    """Files of the user, which must not change."""

    def __init__(self) -> None:
        self._contents: dict[Path, bytes] = {}

    def put(self, path: Path, *, makes_folder: bool = True) -> None:
        """Write a file of the user, if it does not exist."""
        if path not in self._contents:
            if makes_folder:
                path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"my own {path.name}")
            self.adopt(path)

    def adopt(self, path: Path) -> None:
        """Treat a file, or all files below a folder, as the user's, with their current content."""
        self._contents |= contents_below(path)

    def forget(self, folder: Path) -> None:
        """Drop the files below a folder that the story has removed."""
        self._contents = {path: data for path, data in self._contents.items() if not path.is_relative_to(folder)}

    def lost(self) -> Wrong:
        """Return the files that were deleted or changed."""
        lost = [str(path) for path, data in self._contents.items() if not path.is_file() or path.read_bytes() != data]
        return [(LOST, ", ".join(lost))] if lost else []


def contents_below(path: Path) -> dict[Path, bytes]:
    """Return the content of a file, or of each file below a folder."""
    files = [path] if path.is_file() else [each for each in path.rglob("*") if each.is_file()]
    return {each: each.read_bytes() for each in files}


def changed_by_a_refusal(before: dict[Path, bytes], after: dict[Path, bytes]) -> Wrong:
    """Return the files that a refused command deleted or changed; the log may grow, and the lock be freed."""
    wrong = []
    for path, data in before.items():
        found = after.get(path)
        is_log = path.name == "log.txt" and found is not None and found.startswith(data)
        if found != data and not is_log and path.name != "run.lock":
            wrong.append((LOST, f"{path} was {'deleted' if found is None else 'changed'} by a refused command"))
    return wrong


class RunFiles:
    """Checkpoints and replay files of a run, and those that the story has damaged.

    Parameters
    ----------
    run_dir
        The run directory.

    Attributes
    ----------
    damaged
        Names of checkpoints, and "replay".
    users
        Files of the user.
    """

    def __init__(self, run_dir: Path) -> None:
        self.run_dir = run_dir
        self.store = CheckpointStore(run_dir / "checkpoints")
        self.replay = run_dir / "replay"
        self.damaged: set[str] = set()
        self.users = UsersFiles()

    def write_notes(self) -> None:
        """Put files of the user into the run directory and a checkpoint, if they are not there yet."""
        for name in NOTES:
            self.users.put(self.run_dir / name)
        for steps in self.store.steps()[-2:-1]:  # it is not among those that are pruned soon
            with suppress(FileNotFoundError):
                self.users.put(self.store.path_of(steps) / "notes.txt", makes_folder=False)

    def is_intact(self, steps: int) -> bool:
        """Return whether the checkpoint of this step can be loaded."""
        try:
            verify_checkpoint(self.store.path_of(steps))
        except (CheckpointError, OSError):
            return False
        return True

    def newest_intact(self) -> int:
        """Return the steps of the checkpoint that `penstock resume` continues from; 0 if there is none."""
        return next((steps for steps in reversed(self.store.steps()) if self.is_intact(steps)), 0)

    def checkpoints(self) -> set[tuple[int, int]]:
        """Return steps and inode of each checkpoint, so that a rewritten one counts as new."""
        found = set()
        for steps in self.store.steps():
            with suppress(FileNotFoundError):
                found.add((steps, self.store.path_of(steps).stat().st_ino))
        return found

    def new_since(self, before: set[tuple[int, int]]) -> list[int]:
        """Return the steps of the checkpoints written since, in ascending order."""
        return sorted(steps for steps, _ in self.checkpoints() - before)


def checkpoints(files: RunFiles, base: int, new: list[int]) -> Wrong:
    """Return violations in the checkpoints of a life that resumed from `base` steps."""
    wrong = []
    for steps in new:
        if not files.is_intact(steps):
            if str(steps) not in files.damaged:
                wrong.append((BROKEN, f"the checkpoint of step {steps} is damaged, but not by the story"))
        elif steps < base:
            wrong.append((MISCOUNTED, f"it resumed from {base}, but wrote a checkpoint of step {steps}"))
    return wrong


def steps(account: ledger.Account, path: DataPath, base: int, new: list[int], kills: int, in_order: bool) -> Wrong:
    """Compare the ledger of a life with its checkpoints.

    Parameters
    ----------
    account
        The ledger.
    path
        The data path.
    base, new
        Steps where the life began, and those of the checkpoints that it wrote.
    kills
        Roles killed in it.
    in_order
        Whether the life ended with a last checkpoint.
    """
    wrong = []
    if account.twice or account.lost or account.torn:
        wrong.append((MISCOUNTED, f"{account.twice} twice, {account.lost} lost, {account.torn} rows torn"))
    if path.learns == "segments" and account.sums:
        (sums,) = account.sums.values()  # there is one learner
        for at in new:
            if at - base not in sums:
                nearest = base + min(sums, key=lambda learned, at=at: abs(base + learned - at))
                wrong.append((MISCOUNTED, f"a checkpoint says {at}, the ledger {nearest}"))
    if path.learns == "workers" and in_order and new:
        # Each killed or ending worker may have recorded one batch that was not counted.
        allowed = (kills + WORKERS) * SEGMENT_LENGTH * LANES // WORKERS
        if abs(base + account.steps - new[-1]) > allowed:
            wrong.append((MISCOUNTED, f"the run says {new[-1]}, the ledger {base + account.steps}"))
    return wrong


def last_word(text: str, files: RunFiles) -> Wrong:
    """Return violations in the last reported steps of an interrupted run: they must equal its last checkpoint's."""
    said = re.search(r"interrupted after ([\d,]+) steps", text)
    newest = files.newest_intact()
    if said is None or int(said[1].replace(",", "")) != newest:
        return [(BROKEN, f"its last checkpoint is of step {newest}, but it printed {said and said[0]!r}")]
    return []


def replay(files: RunFiles, path: DataPath) -> tuple[int, Wrong]:
    """Check the saved replay buffer: each step is present at most once, and none is missing between others.

    Returns
    -------
    steps : int
        Steps found.
    wrong : list
    """
    config = json.loads((files.run_dir / "config.json").read_text())
    number = Field((), "float32")
    fields = {"obs": Field((3,)), "action": Field((), "int64"), "reward": number}
    fields["next_obs"] = Field((3,), next_of="obs")
    if path.algorithm == "CountedApeX":  # it stores the values from which first priorities are computed
        fields |= {"value": number, "next_value": Field((), "float32", next_of="value")}
    prioritized = Prioritized(config["priority_alpha"], config["priority_beta"], normalize="batch")
    buffer = ReplayBuffer(
        config["buffer_size"], fields, sampler=prioritized if config["prioritized"] else Uniform(),
        n_step=NStep(1, config["gamma"]), seed=config["seed"],
    )  # fmt: skip
    try:
        buffer.load(files.replay)
    except ReplayFileError as error:
        is_known = "replay" in files.damaged
        return 0, [] if is_known else [(BROKEN, f"the replay files are damaged, but not by the story: {error}")]
    files.damaged.discard("replay")  # a resumed run has written new ones
    keys = ledger.keys_of(buffer.get_all()["obs"])
    twice, lost = ledger.twice_and_lost(keys)
    return len(keys), [(MISCOUNTED, f"in the replay buffer: {twice} twice, {lost} lost")] if twice or lost else []

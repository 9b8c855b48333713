"""Serial runs that are stopped, killed, damaged and resumed, each compared with a twin without faults.

A serial run is a function of its initial state. So every checkpoint of a life must equal, bit for bit, the twin's
checkpoint of the same step. The twin starts from a copy of the run directory, made at the beginning of the life,
without damaged files. It is trained beyond the life's last checkpoint.
"""

from __future__ import annotations

import shutil
import signal
from pathlib import Path

from penstock.runs.checkpoint import CheckpointError, verify_checkpoint
from penstock.runs.store import CheckpointStore
from torturing.plan import Life
from torturing.run import Run
from torturing.story import CHECKPOINT_INTERVAL, FLAGS, SECONDS, Player


class TwinPlayer(Player):
    """Plays stories of serial runs."""

    def _train(self, run_dir: Path) -> list[str]:
        flags = f"{FLAGS} {self._path.flags} --seed {self._story.number} --total-steps 1000000000 --backend serial"
        return [
            "train", f"torturing.counted:{self._path.algorithm}", *flags.split(), "--keep-checkpoints", "100000",
            "--checkpoint-interval", str(CHECKPOINT_INTERVAL), "--eval-interval", str(10 * CHECKPOINT_INTERVAL),
            "--env-kwargs", f"seconds={SECONDS}", "--run-dir", str(run_dir),
        ]  # fmt: skip

    def _live(self, name: str, life: Life | None) -> bool:
        twin_dir = self._folder / f"twin-{name}"
        if self._files.store.steps():
            self._copy_what_is_intact(twin_dir)
        base, before = self._files.newest_intact(), self._files.checkpoints()
        if not super()._live(name, life):
            return False
        self._compare(name, twin_dir, base, self._files.new_since(before), is_last=life is None)
        shutil.rmtree(twin_dir)
        return True

    def _copy_what_is_intact(self, twin_dir: Path) -> None:
        shutil.copytree(self._run_dir, twin_dir)
        twins = CheckpointStore(twin_dir / "checkpoints")
        for path in [*map(twins.path_of, twins.steps()), twins.best_path]:
            try:
                verify_checkpoint(path)
            except CheckpointError:
                shutil.rmtree(path, ignore_errors=True)
        if "replay" in self._files.damaged:
            shutil.rmtree(twin_dir / "replay")

    def _compare(self, name: str, twin_dir: Path, base: int, new: list[int], *, is_last: bool) -> None:
        """Train the twin equally far, and compare the checkpoints that both have."""
        twins = CheckpointStore(twin_dir / "checkpoints")
        arguments = ["resume", str(twin_dir)] if twin_dir.exists() else self._train(twin_dir)
        if is_last:
            arguments += self._last_budget(base)
        self._doing = "compared with its twin"
        run = Run(arguments, self._folder, f"twin {name}", self._patience)
        with self._noting(run):
            if is_last:
                self._expect_end(run, 0, "done after")
            else:
                while max(twins.steps(), default=0) <= new[-1]:
                    run.wait_for_progress("progress of the twin")
                run.process.send_signal(signal.SIGKILL)
                run.wait_for_end()
            common = sorted(set(new) & set(twins.steps()))
            different = [steps for steps in common if contents(self._files.store, steps) != contents(twins, steps)]
            self.report.compared += len(common)
            if different or not common:
                self._note(run, "results differ", f"of {len(common)} checkpoints, those of the steps {different}")


def contents(store: CheckpointStore, steps: int) -> object:
    """Return the sizes and digests of a checkpoint's weights and state."""
    return verify_checkpoint(store.path_of(steps))["files"]

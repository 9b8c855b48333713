"""A dashboard that is stopped, killed and restarted, of a run that trains and a copied run that is hostile.

It must answer after each fault and show both runs; in any case, the run keeps training and no file is touched.
"""

from __future__ import annotations

import http.client
import json
import random
import re
import shutil
import signal
from contextlib import suppress
from pathlib import Path

from torturing.commands import CommandPlayer
from torturing.disk import hostile
from torturing.plan import COPY, DASHBOARD, STATUS, Fault, Life
from torturing.run import Hang, Run
from torturing.story import FLAGS, GRACE, INTERRUPTED, LAST, SECONDS, Player, Report

ADDRESS = re.compile(r"http://127\.0\.0\.1:(\d+)/\?token=([\w-]+)")


class DashboardPlayer(Player):
    """Plays stories of ``penstock dashboard``."""

    def play(self) -> Report:
        """Train a run, and start and end dashboards meanwhile."""
        self._copied = self._disk.path / "copied"
        flags = f"{FLAGS} {self._path.flags} --backend serial --total-steps 1000000000 --checkpoint-interval 1000"
        arguments = [
            "train", f"torturing.counted:{self._path.algorithm}", *flags.split(), "--env-kwargs", f"seconds={SECONDS}",
            "--run-dir", str(self._run_dir),
        ]  # fmt: skip
        training = Run(arguments, self._folder, LAST, self._patience)
        with self._noting(training):
            training.wait_until(self._files.store.steps, "a checkpoint")
            self._files.write_notes()
            for number, life in enumerate(self._story.lives):
                self._look(training, str(number), life)
            self._doing = "ending"
            training.process.send_signal(signal.SIGTERM)
            self._expect_end(training, INTERRUPTED, "resume:   penstock resume")
            self._note_all(training, self._files.users.lost())
            self._look_at_what_is_left(training)
            self._audit(training, 0, [self._files.newest_intact()])
        return self.report

    def _look(self, training: Run, name: str, life: Life) -> None:
        """Start a dashboard, apply the planned faults to it and to the runs, and end it."""
        self._doing = "starting"
        self.report.lives += 1
        self._renew_the_copy()
        dashboard = Run(["dashboard", str(self._disk.path)], self._folder, f"dashboard {name}", self._patience)
        dashboard.wait_until(lambda: ADDRESS.search(dashboard.text), "the address")
        self._expect_answers(dashboard)
        for fault in life.faults:
            self._suffer_beside(training, dashboard, fault)
            self._count(fault)
            self._expect_answers(dashboard)
        self._doing = f"ended by {life.ending}"
        signum = getattr(signal, life.ending.kind)
        dashboard.process.send_signal(signum)
        code = dashboard.wait_for_end()
        if code not in (-signum, 0, INTERRUPTED):
            self._note(dashboard, "ended badly", f"exit code {code}")
        seconds, left = dashboard.left_after_the_end(GRACE, training)
        self.report.slowest_end = max(self.report.slowest_end, seconds)
        if left:
            self._note(dashboard, "processes left", ", ".join(left))
        if "Traceback" in dashboard.text:
            self._note(dashboard, "ended badly", "a traceback")
        self._count(life.ending)
        self._note_all(dashboard, self._files.users.lost())
        training.wait_for_progress(f"progress after {life.ending}")

    def _suffer_beside(self, training: Run, dashboard: Run, fault: Fault) -> None:
        self._wait(training, fault.after)
        self._doing = f"suffering {fault}"
        dice = random.Random(fault.dice)
        if fault.kind == "SIGSTOP":
            pid = (dashboard if fault.target == DASHBOARD else training).process.pid
            CommandPlayer.stop([pid], fault.seconds)
            return
        self._files.users.forget(self._copied)
        if fault.kind == "removed":
            shutil.rmtree(self._copied, ignore_errors=True)
            self._expect_answers(dashboard)
        self._renew_the_copy()
        if fault.kind == "hostile":
            files = ("config.json", "status.json", "metrics.jsonl") if fault.target == COPY else (STATUS,)
            for file in files:
                (self._copied / file).write_bytes(hostile(dice.random(), ("algorithm", "run", "state", "steps")))
        elif fault.kind == "unreadable":
            for file in self._copied.iterdir() if fault.target == COPY else (self._copied / STATUS,):
                if file.is_file():
                    file.chmod(0)
        self._files.users.adopt(self._copied)

    def _renew_the_copy(self) -> None:
        """Replace the copied run by a fresh copy of the run's files."""
        self._files.users.forget(self._copied)
        self._copied.mkdir(exist_ok=True)
        for name in ("config.json", "status.json", "metrics.jsonl", "log.txt"):
            (self._copied / name).unlink(missing_ok=True)
            with suppress(FileNotFoundError):
                shutil.copyfile(self._run_dir / name, self._copied / name)
        self._files.users.adopt(self._copied)

    def _expect_answers(self, dashboard: Run) -> None:
        """Check that the overview has the run, and that each page of each run answers."""
        status, body = self._ask(dashboard, "/api/runs")
        rows = json.loads(body) if status == 200 else {}
        runs = rows["runs"] if isinstance(rows, dict) and "runs" in rows else rows
        names = {Path(row.get("path", row.get("name", ""))).name for row in runs}
        if self._run_dir.name not in names:
            self._note(dashboard, "ended badly", f"its overview answered {status}: {body[:300]!r}")
        for row in runs:
            for page in ("", "/history", "/lineage", "/progress", "/files"):
                status, body = self._ask(dashboard, f"/api/runs/{row['id']}{page}")
                if status >= 500:
                    self._note(dashboard, "ended badly", f"{row['id']}{page} answered {status}: {body[:300]!r}")

    def _ask(self, dashboard: Run, path: str) -> tuple[int, bytes]:
        found = ADDRESS.search(dashboard.text)
        assert found is not None
        connection = http.client.HTTPConnection("127.0.0.1", int(found[1]), timeout=self._patience)
        try:
            connection.request("GET", path, headers={"Cookie": f"penstock-{found[1]}={found[2]}"})
            answer = connection.getresponse()
            return answer.status, answer.read()
        except TimeoutError:
            raise Hang(f"{path} of the dashboard was awaited for {self._patience:.0f} s") from None
        finally:
            connection.close()


__all__ = ["DashboardPlayer"]

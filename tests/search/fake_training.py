"""A program that pretends to be ``penstock train`` and ``resume``, in milliseconds; tests of a search start it.

It "learns" in ten steps of 100, each with an evaluation whose return is 100 x learning rate + seed + progress in
percent. What it does at step 500 is told by FAKE_TRIAL_<number>: hang, linger (and take its time to end), fail, die,
save and die, find the disk full, or be interrupted. Its checkpoint is meta.json.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path

STEPS, EVERY = 1000, 100


def flags(words: list[str]) -> dict[str, str]:
    return dict(zip(words[::2], words[1::2], strict=True))


def read(run: Path) -> dict[str, float] | None:
    """The checkpoint of a run of this program, as a search reads those of real ones."""
    try:
        return json.loads((run / "meta.json").read_text())
    except OSError:
        return None


def main(verb: str, name: str, *words: str) -> int:
    told = flags(list(words))
    run = Path(name if verb == "resume" else told["--run-dir"])
    if verb == "train":
        assert name == "appo"
        run.mkdir()
        (run / "told.json").write_text(json.dumps(told))
    else:
        told = {**json.loads((run / "told.json").read_text()), **told}
    began = json.loads((run / "meta.json").read_text())["steps"] if verb == "resume" else 0
    with open(run / "begun.txt", "a") as file:
        more = " ".join(words) if verb == "resume" else ""
        file.write(f"{verb} at {began} {more} on {sorted(os.sched_getaffinity(0))} by {os.getpid()}\n")
    done = began

    mode = os.environ.get(f"FAKE_TRIAL_{run.name.split('-')[1]}")

    def save() -> None:
        (run / "meta.json").write_text(json.dumps({"steps": done, "seconds": done / 1000}))

    def end(*_: object) -> None:
        if mode == "linger":
            time.sleep(1.0)
        save()
        os._exit(130)

    signal.signal(signal.SIGTERM, end)
    for steps in range(began + EVERY, STEPS + 1, EVERY):
        value = 100 * float(told["--learning-rate"]) + int(told["--seed"]) + steps / 10
        line = json.dumps({"steps": steps, "seconds": steps / 1000, "return": value})
        with open(run / "evaluations.jsonl", "a") as file:
            file.write(line + "\n")
        done = steps
        if steps == 500 and verb == "train":
            match mode:
                case "hang" | "linger":
                    while True:
                        signal.pause()
                case "fail":
                    print("some lines\nerror: the pole broke\nand more")
                    return 1
                case "no room":
                    print("error: nodes=2 asks for 2 nodes; the cluster has none")
                    return 2
                case "full disk":
                    save()
                    print("error: the last checkpoint could not be saved: No space left on device")
                    return 5
                case "die" | "save and die":
                    if mode == "save and die":
                        save()
                    os.kill(os.getpid(), signal.SIGKILL)
                case "interrupted":
                    end()
    (run / "meta.json").write_text(json.dumps({"steps": STEPS, "seconds": 1.0}))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

"""Results of a long measurement, kept one by one, so that who is interrupted goes on."""

import json


class KeptRuns:
    """Runs of before, in a file of a line for each. A run is asked for by what decides it, which has
    the "commit" too: one of a tree that no commit has is not written down."""

    def __init__(self, path):
        self.path = path
        # The last line may be half of one.
        lines = path.read_text(encoding="utf-8").split("\n")[:-1] if path.exists() else []
        self.runs = [json.loads(line) for line in lines]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")

    def find(self, key):
        return next((run["result"] for run in self.runs if run["key"] == key), None)

    def keep(self, key, result):
        run = {"key": key, "result": result}
        self.runs.append(run)
        if key["commit"] == "unknown" or key["commit"].endswith("-dirty"):
            return
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(run) + "\n")

"""Ranks of a job, as processes of a user, each at a daemon of this machine."""

import os
import subprocess

from service import check, fail, identity


class Rank:
    """One process of rank.c. `daemon` is the folder of the daemon's sockets."""

    def __init__(self, program, user, job, daemon="/run/tern", arena_bytes=64 << 20):
        environment = {**os.environ, "TERN_JOB": job, "TERN_SOCKET": f"{daemon}/ternd.sock"}
        self.process = subprocess.Popen([program, str(arena_bytes)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True, env=environment, cwd="/", **identity(user))
        self.name = f"{user}'s rank of {job}"
        self.refusal = ""
        greeting = self.process.stdout.readline()
        if not greeting.startswith("ok "):
            self.refusal = greeting.strip()

    @property
    def pid(self):
        return self.process.pid

    def tell(self, *words):
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()

    def reply(self):
        line = self.process.stdout.readline()
        return line.strip() or f"ended with status {self.process.wait()}"

    def answer(self):
        line = self.reply()
        if line != "ok" and not line.startswith("ok "):
            fail(f"{self.name}: {line}")
        return line[3:]

    def ask(self, *words):
        self.tell(*words)
        return self.answer()

    def end(self):
        self.process.stdin.close()
        check(self.process.wait() == 0, f"{self.name}: status {self.process.returncode}")


class Job:
    """A group with a rank at each of the daemons, and a tensor."""

    def __init__(self, program, user, job, daemons, tensor, count):
        self.ranks = [Rank(program, user, job, daemon) for daemon in daemons]
        for rank in self.ranks:
            check(not rank.refusal, f"{rank.name}: {rank.refusal}")
        self.id = self.ranks[0].ask("mint")
        self.ask_all(*(("join", self.id, number, len(self.ranks)) for number in range(len(self.ranks))))
        self.ask_all(*([("declare", tensor, count)] * len(self.ranks)))

    def ask_all(self, *questions):
        for rank, words in zip(self.ranks, questions):
            rank.tell(*words)
        for rank in self.ranks:
            rank.answer()

    def reduce(self, times=1):
        """Fails unless every element of every result is right on every rank."""
        self.ask_all(*([("reduce", times)] * len(self.ranks)))

    def end(self):
        for rank in self.ranks:
            rank.end()

#!/usr/bin/python3
"""Two users of one machine under the installed units: run by root in a guest, with build/deb filled by `make deb`.

    two_users_test.py FOLDER_WITH_DEBS

Alice and Bob each train over the service and an instance of its template, as if those were two nodes. What is
shown to either is his own, nothing of the other's can be touched, and who takes too much is refused alone.
Carol is a member of the group tern.
"""

import contextlib
import json
import os
import pathlib
import pwd
import socket
import sys

from ranks import Job, Rank
from service import (CONFIG, acting_as, check, compile_program, eventually, find_packages, identity,
                     install_packages, logged, main_pid, run, step, ternctl)

HERE = pathlib.Path(__file__).resolve().parent
DAEMONS = ("/run/tern", "/run/tern-other")
UNITS = ("ternd.service", "ternd@other.service")
USERS = ("alice", "bob")
BAD_SECRET, QUOTA_EXCEEDED = "error 12 ", "error 15 "  # of tern.h
REFUSED = 4  # the status of ternctl


def other_than(user):
    return USERS[1 - USERS.index(user)]


def of(verb, user, *words):
    """What the user is shown at the service."""
    return ternctl(verb, *words, **identity(user))


def begin(debs, folder):
    install_packages(debs)
    for user in USERS:
        run("useradd", "--no-create-home", user)
    run("useradd", "--no-create-home", "--groups", "tern", "carol")
    (CONFIG.parent / "other.toml").write_text('[network]\nlisten = "127.0.0.1:7701"\n', encoding="utf-8")
    run("systemctl", "start", "ternd@other")
    program = compile_program(HERE / "rank.c", folder)
    jobs = {user: Job(program, user, f"{user}-job", DAEMONS, f"{user}-layer", 100_000) for user in USERS}
    for job in jobs.values():
        job.reduce(5)
    return program, jobs


# ---- Seeing


def see(jobs):
    for user in USERS:
        for verb, key, own in (("clients", "job", "job"), ("groups", "job", "job"), ("tensors", "name", "layer"),
                               ("tuner", "name", "layer")):
            names = [row[key] for row in of(verb, user)]
            check(set(names) == {f"{user}-{own}"}, f"{user} is shown {verb} of {names}")
            for observer in ("root", "carol"):
                names = {row[key] for row in of(verb, observer)}
                check(names == {f"{each}-{own}" for each in USERS}, f"{observer} is shown {verb} of {names}")
        status = of("status", user)
        check((status["clients"], status["groups"], status["standing"]) == (1, 1, "user"), f"{user}'s status: {status}")
        check([row["pid"] for row in of("clients", user)] == [jobs[user].ranks[0].pid], f"{user}'s process")
    check(of("status", "carol")["clients"] == 2, "what a member of the group is shown")


def see_nothing_of_others():
    for user in USERS:
        other = other_than(user)
        shown = [run("ternctl", *words, **identity(user)) for words in (
            ["status"], ["clients"], ["groups"], ["tensors"], ["tuner"], ["explain", f"{user}-layer"],
            ["top", "--once", "--interval", "0.05"], ["top", "tensors", "--once", "--interval", "0.05"])]
        archive = f"/tmp/{user}.tar.gz"
        run("ternctl", "dump", "--output", archive, **identity(user))
        shown.append(run("tar", "--extract", "--to-stdout", "--file", archive))
        shown.append(run("journalctl", "--no-pager", "-u", "ternd*", status=None, **identity(user)))
        check(not any(f"{other}-" in text for text in shown), f"{user} is shown something of {other}: {shown}")
        # A tensor of another is one that does not exist.
        refusals = [run("ternctl", "explain", tensor, status=None, **identity(user)).replace(tensor, "")
                    for tensor in (f"{other}-layer", "nosuch-layer")]
        check(refusals[0] == refusals[1] and "no tensor" in refusals[0], f"the refusals differ: {refusals}")
        for words in (["peers"], ["counters"], ["policy"], ["trace", "start"],
                      ["counters", "--file", "/run/tern/control.counters"]):
            run("ternctl", *words, status=REFUSED, **identity(user))
    for words in (["peers"], ["counters"], ["counters", "--file", "/run/tern/control.counters"]):
        run("ternctl", *words, **identity("carol"))


# ---- Touching


def innards(pid):
    """Every way into a process's memory that has a name."""
    folders = [f"/proc/{pid}/fd", f"/proc/{pid}/map_files"]
    return [f"/proc/{pid}/mem", f"/proc/{pid}/maps", f"/proc/{pid}/environ",
            *(f"{folder}/{name}" for folder in folders for name in os.listdir(folder))]


def openable(paths):
    """Those that this process, as whomever it acts, can open to read or to write."""
    found = []
    for path in paths:
        for mode in (os.O_RDONLY, os.O_RDWR):
            try:
                os.close(os.open(path, mode | os.O_NONBLOCK))
                found.append(path)
            except OSError:
                continue
    return found


def arenas(pid):
    return [path for path in innards(pid) if os.path.islink(path) and "/memfd:" in os.readlink(path)]


def touch(jobs):
    daemons = [main_pid(unit) for unit in UNITS]
    files = [str(path) for place in ("/var/lib/tern", "/dev/shm") for path in pathlib.Path(place).rglob("*")]
    files += [f"{folder}/control.counters" for folder in DAEMONS]
    for user in USERS:
        own = [rank.pid for rank in jobs[user].ranks]
        theirs = [rank.pid for rank in jobs[other_than(user)].ranks]
        for pid in daemons + theirs:
            check(openable(arenas(pid)), f"root finds no arena in process {pid}, so this proves nothing")
        paths = [path for pid in daemons + theirs for path in innards(pid)] + files
        with acting_as(user):
            found, seen = openable(paths), openable(f"/proc/{pid}/mem" for pid in own)
        check(not found, f"{user} can open {found}")
        check(len(seen) == 2 * len(own), f"{user} cannot open what is his, so what he cannot open proves nothing")


def join_with_a_wrong_secret(program, jobs):
    secret = jobs["alice"].id
    forged = secret[:-1] + ("1" if secret[-1] == "0" else "0")
    for daemon in DAEMONS:
        rank = Rank(program, "bob", "bob-job", daemon)
        rank.tell("join", forged, 0, 2)
        reply = rank.reply()
        check(reply.startswith(BAD_SECRET), f"a join without the secret at {daemon}: {reply}")
        rank.end()
    jobs["alice"].reduce()


# ---- Taking


def take_too_much(program, jobs):
    CONFIG.write_text('[limits]\nmax_clients_per_user = 2\nmax_arena_bytes = "128MiB"\n', encoding="utf-8")
    run("systemctl", "reload", "ternd")
    eventually(lambda: logged("max_clients_per_user: 2, was 64"), "the reload")
    greedy = Rank(program, "bob", "bob-job", arena_bytes=128 << 20)
    check(greedy.refusal.startswith(QUOTA_EXCEEDED) and "max_arena_bytes" in greedy.refusal,
          f"an arena that is too large: {greedy.refusal}")
    second, third = Rank(program, "bob", "bob-job"), Rank(program, "bob", "bob-job")
    check(not second.refusal, f"as many clients as he may have: {second.refusal}")
    check(third.refusal.startswith(QUOTA_EXCEEDED) and "max_clients_per_user = 2" in third.refusal,
          f"one client more: {third.refusal}")
    eventually(lambda: logged(f"uid {pwd.getpwnam('bob').pw_uid} was refused"), "the journal names who was refused")
    check(ternctl("counters")["quota_refusals"]["value"] == 2, "refusals are not counted")
    # Nobody else has noticed, and he goes on with what he has.
    other = Rank(program, "alice", "alice-job")
    check(not other.refusal, f"another user's second client: {other.refusal}")
    for job in jobs.values():
        job.reduce()
    second.end()

    def begins_another():
        rank = Rank(program, "bob", "bob-job")
        if not rank.refusal:
            rank.end()
        return not rank.refusal
    eventually(begins_another, "who has ended one client may begin another")
    other.end()


# ---- Telling


def tell_the_journal(jobs):
    """What happens to a job, a group, a tensor or a peer is found by the journal's field of that."""
    one, other = jobs["bob"].ranks
    one.tell("reduce", 1)
    eventually(lambda: any(row["job"] == "bob-job" and row["ops_in_flight"] > 0 for row in ternctl("groups")),
               "the operation has begun")
    other.process.kill()
    check(one.reply().startswith("error "), "an operation goes on without its other rank")
    about = ("TERN_JOB=bob-job", "TERN_TENSOR=bob-layer")
    eventually(lambda: logged("of bob-layer failed", *about), "the journal has the operation by job and tensor")
    group = json.loads(run("journalctl", "--output", "json", "--lines", "1", *about))["TERN_GROUP"]
    check(logged(f"group {group} epoch", f"TERN_GROUP={group}"), "the journal has nothing by the group")
    check(not logged("bob-", "TERN_JOB=alice-job"), "a line of Bob's has Alice's field")
    with socket.create_connection(("127.0.0.1", 7700)) as stranger:
        name = f"127.0.0.1:{stranger.getsockname()[1]}"
        stranger.sendall(b"GET / HTTP/1.0\r\n\r\n" * 20)
        with contextlib.suppress(ConnectionError):
            stranger.recv(1)
    eventually(lambda: logged("refused a connection", f"TERN_PEER={name}"), "the journal has a stranger by his address")


def end_of_one(jobs):
    for rank in jobs["bob"].ranks:
        rank.process.kill()
    jobs["alice"].reduce(5)
    eventually(lambda: not of("clients", "bob"), "Bob's processes are forgotten")
    check([row["job"] for row in of("groups", "alice")] == ["alice-job"], "Alice's group")
    jobs["alice"].end()
    eventually(lambda: not ternctl("clients"), "all are forgotten")


def main():
    folder = pathlib.Path("/tmp/two_users_test")
    folder.mkdir()
    folder.chmod(0o755)
    step("two users train under the installed units")
    program, jobs = begin(find_packages(sys.argv[1]), folder)
    for text, action in (
            ("each sees his own, observers see all", lambda: see(jobs)),
            ("nobody sees anything of the other's", see_nothing_of_others),
            ("nobody can open the other's memory, nor the daemons'", lambda: touch(jobs)),
            ("nobody joins a group without its secret", lambda: join_with_a_wrong_secret(program, jobs)),
            ("who takes too much is refused, alone", lambda: take_too_much(program, jobs)),
            ("the journal tells whom a line is about", lambda: tell_the_journal(jobs)),
            ("the end of one does not touch the other", lambda: end_of_one(jobs))):
        step(text)
        action()
    print("PASSED", flush=True)


if __name__ == "__main__":
    main()

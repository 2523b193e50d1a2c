"""Start jobs without importing PyTorch again: fork each from a process that has imported it.

The import takes two seconds, longer than many short runs. FEDGRID_WARM names a process; the
workflow sets its own. The first command starts a keeper, a process that imports the large packages
but nothing of fedgrid, so that a job never runs old code. Later commands send their arguments,
environment, folder and standard streams to the keeper, which forks a child for each. A command
waits, passes signals on, and ends as its child ends. The keeper ends with the named process. If
anything fails before the fork, and on systems other than Linux, a command starts as usual.

The socket has no file, and both sides check that the other side is the same user.
"""

import contextlib
import hashlib
import importlib
import json
import os
import runpy
import selectors
import signal
import socket
import struct
import subprocess
import sys
import traceback
from typing import Any, TextIO

PACKAGES = ("torch", "safetensors.torch", "pandas", "matplotlib.figure")
# What `torch.func.grad` imports at its first call, in every stacked run: it takes two seconds. A
# command that asks meanwhile waits, for less time than the other packages would take it.
LATER = ("torch._dynamo",)
PASSED_ON = ("SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1", "SIGUSR2")  # Windows lacks the last three
NUMBER = struct.Struct("q")  # a message of the keeper: the child's id, then its wait status
STREAMS = 3  # standard input, output and error


# -- the command's side ---------------------------------------------------------------------------


def hand_over() -> None:
    """Run this command in a child of the keeper and exit as it exits; return if that fails."""
    owner, module = os.environ.pop("FEDGRID_WARM", ""), sys.modules["__main__"].__spec__
    if not (owner and module and hasattr(os, "pidfd_open") and hasattr(os, "memfd_create")):
        return
    if keeper := connected(name(owner)):
        child = asked(keeper, module.name)
        return None if child is None else wait(keeper, child)
    # Start a keeper for later jobs; if several start at once, only one can bind the address.
    nowhere: Any = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
    with contextlib.suppress(OSError):
        command = [sys.executable, "-m", "fedgrid.runtime.warm", owner]
        subprocess.Popen(command, **nowhere, start_new_session=True)


def name(owner: str) -> str:
    """Return the keeper's address, a hash of all that the import of the packages depends on."""
    threads = sorted(item for item in os.environ.items() if item[0].endswith("_NUM_THREADS"))
    about = json.dumps([owner, sys.executable, sys.path[1:], threads])
    return f"\0fedgrid-{os.getuid()}-{hashlib.sha256(about.encode()).hexdigest()[:16]}"


def connected(address: str) -> socket.socket | None:
    keeper = socket.socket(socket.AF_UNIX)
    with contextlib.suppress(OSError):
        keeper.connect(address)
        if same_user(keeper):
            return keeper
    keeper.close()
    return None


def same_user(peer: socket.socket) -> bool:
    pid_uid_gid = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return struct.unpack("3i", pid_uid_gid)[1] == os.getuid()


def asked(keeper: socket.socket, module: str) -> int | None:
    """Send the command to the keeper; return the id of the child, or None if the keeper ended."""
    request = os.memfd_create("fedgrid")
    os.write(request, json.dumps([module, sys.argv, dict(os.environ)]).encode())
    os.lseek(request, 0, os.SEEK_SET)
    folder = os.open(".", os.O_RDONLY)
    with contextlib.suppress(OSError):
        socket.send_fds(keeper, [b"!"], [*range(STREAMS), folder, request])
        return heard(keeper)
    return None


def heard(keeper: socket.socket) -> int | None:
    """Return a number from the keeper, or None if the keeper ended."""
    with contextlib.suppress(OSError):
        said = keeper.recv(NUMBER.size, socket.MSG_WAITALL)
        return NUMBER.unpack(said)[0] if said else None
    return None


def wait(keeper: socket.socket, child: int) -> None:
    for passed in PASSED_ON:
        signal.signal(getattr(signal, passed), lambda number, frame: os.kill(child, number))
    status = heard(keeper)
    if status is None:
        sys.exit("the keeper process of PyTorch was killed, and this job with it")
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


# -- the keeper's side ----------------------------------------------------------------------------


def keep(owner: int) -> None:
    """Serve until the process `owner` and all children have ended."""
    listener = socket.socket(socket.AF_UNIX)
    try:
        listener.bind(name(str(owner)))
        ended = os.pidfd_open(owner)
    except OSError:
        return  # another keeper was faster, or the owner has ended
    for passed in PASSED_ON:  # SLURM sends them to every process of a job; the children decide
        signal.signal(getattr(signal, passed), signal.SIG_IGN)
    import_each(PACKAGES)
    listener.listen()
    import_each(LATER)
    # By the child's pidfd, its process id and the connection of the command.
    children: dict[int, tuple[int, socket.socket]] = {}
    with selectors.DefaultSelector() as watched:
        watched.register(listener, selectors.EVENT_READ)
        watched.register(ended, selectors.EVENT_READ)
        while children or listener.fileno() >= 0:
            for key, _ in watched.select():
                if key.fileobj is listener:
                    accept(listener, watched, children)
                elif key.fileobj == ended:
                    watched.unregister(ended)
                    watched.unregister(listener)
                    listener.close()
                elif key.fd in children:
                    finish(key.fd, watched, children)
                else:  # the process that waited was killed, so kill the child, too
                    watched.unregister(key.fileobj)
                    os.kill(key.data, signal.SIGKILL)


def import_each(packages: tuple[str, ...]) -> None:
    for package in packages:
        with contextlib.suppress(ImportError):
            importlib.import_module(package)


def accept(
    listener: socket.socket, watched: Any, children: dict[int, tuple[int, socket.socket]]
) -> None:
    client, _ = listener.accept()
    if not same_user(client):
        return client.close()
    _, files, _, _ = socket.recv_fds(client, 1, STREAMS + 2)
    if len(files) != STREAMS + 2:
        return client.close()
    keeper = os.getpid()
    child = os.fork()
    if not child:
        listener.close()  # otherwise new commands would connect to it after the keeper's end
        work(keeper, files)
    for file in files:
        os.close(file)
    ended = os.pidfd_open(child)
    children[ended] = child, client
    watched.register(ended, selectors.EVENT_READ)
    watched.register(client, selectors.EVENT_READ, data=child)
    with contextlib.suppress(OSError):
        client.send(NUMBER.pack(child))


def finish(ended: int, watched: Any, children: dict[int, tuple[int, socket.socket]]) -> None:
    """Tell the process that waits how the child ended."""
    child, client = children.pop(ended)
    watched.unregister(ended)
    os.close(ended)
    _, status = os.waitpid(child, 0)
    with contextlib.suppress(KeyError, ValueError):
        watched.unregister(client)
    with contextlib.suppress(OSError):
        client.send(NUMBER.pack(status))
    client.close()


# -- the child ------------------------------------------------------------------------------------


def work(keeper: int, files: list[int]) -> None:
    """Run the requested command; never return."""
    code = 1
    try:
        for passed in PASSED_ON:
            signal.signal(getattr(signal, passed), signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)  # as in every Python
        import ctypes

        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: to end with the keeper
        if os.getppid() != keeper:
            return
        *streams, folder, request = files
        for stream, file in enumerate(streams):
            os.dup2(file, stream)
        sys.stdout, sys.stderr = map(reopen, (sys.stdout, sys.stderr))
        os.fchdir(folder)
        with os.fdopen(request) as asked_for:
            module, sys.argv, environment = json.load(asked_for)
        os.environ.clear()
        os.environ.update(environment)
        sys.path[0] = os.getcwd()
        runpy.run_module(module, run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(OSError):
            sys.stdout.flush()
        os._exit(code)


def reopen(stream: TextIO) -> TextIO:
    """Return a stream anew: whether one can seek is known of the file that it had at first."""
    file = stream.fileno()
    lines = 1 if os.isatty(file) or stream is sys.stderr else -1
    return open(file, "w", lines, stream.encoding, stream.errors, closefd=False)


if __name__ == "__main__":
    keep(int(sys.argv[1]))

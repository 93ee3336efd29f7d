"""What separates hostile code from this machine: namespaces, Landlock, no new privileges, limits.

Covered, each as far as the kernel lets us, and the achieved level is reported in words:
- network: an empty network namespace; without one, Landlock refuses TCP
- files: Landlock; writing only in the job's own folder, reading only system and Python folders
- other processes: user, pid and mount namespaces with their own /proc; nothing outlives the job
- privileges: no_new_privs, no capabilities
- memory (RLIMIT_AS, not where CUDA reserves address space), file size, core dumps, open files, processes

Not covered: kernel bugs, side channels, GPU memory of other processes, UDP without a network namespace, and
secrets in files below system folders that the same user may read (`/etc`).
"""

from __future__ import annotations

import ctypes
import errno
import os
import resource
import struct
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

_libc = ctypes.CDLL(None, use_errno=True)

_CLONE_NEWNS = 0x00020000
_CLONE_NEWIPC = 0x08000000
_CLONE_NEWUSER = 0x10000000
_CLONE_NEWPID = 0x20000000
_CLONE_NEWNET = 0x40000000
_WORDS = {
    _CLONE_NEWUSER: "user",
    _CLONE_NEWNET: "net",
    _CLONE_NEWPID: "pid",
    _CLONE_NEWIPC: "ipc",
    _CLONE_NEWNS: "mount",
}
_ATTEMPTS = (
    _CLONE_NEWUSER | _CLONE_NEWNET | _CLONE_NEWPID | _CLONE_NEWIPC | _CLONE_NEWNS,
    _CLONE_NEWNET | _CLONE_NEWPID | _CLONE_NEWIPC | _CLONE_NEWNS,  # root where user namespaces are off
    _CLONE_NEWUSER | _CLONE_NEWNET | _CLONE_NEWPID,
    _CLONE_NEWUSER | _CLONE_NEWNET,
    _CLONE_NEWNET,
)

_MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MS_REC, _MS_PRIVATE = 2, 4, 8, 0x4000, 0x40000
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 1, 36, 38

_SYS_LANDLOCK_CREATE, _SYS_LANDLOCK_ADD, _SYS_LANDLOCK_RESTRICT = 444, 445, 446
_LANDLOCK_VERSION_FLAG = 1
_LANDLOCK_PATH_BENEATH = 1
_FS_EXECUTE, _FS_WRITE, _FS_READ, _FS_LIST = 1, 2, 4, 8
_FS_TRUNCATE = 1 << 14
_FS_RIGHTS_BY_ABI = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1}
_NET_TCP = 0b11  # bind, connect
_SCOPES = 0b11  # abstract unix sockets, signals

_MAX_PROCESSES = 1024


# --------------------------------------------------------------------------------- namespaces


def enter_namespaces() -> tuple[str, ...]:
    """Leave as many of the machine's namespaces as the kernel allows; what was left, in words.

    The pid namespace begins with the next fork. Call it in a process of one thread.
    """
    uid, gid = os.geteuid(), os.getegid()
    for flags in _ATTEMPTS:
        if _libc.unshare(flags) == 0:
            if flags & _CLONE_NEWUSER:
                _map_ids(uid, gid)
            return tuple(word for flag, word in _WORDS.items() if flags & flag)
    return ()


def _map_ids(uid: int, gid: int) -> None:
    with suppress(OSError):
        Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")
    Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")


def enter_own_proc() -> bool:
    """Inside the new pid and mount namespaces: a /proc that shows only our own processes."""
    if _libc.mount(None, b"/", None, _MS_REC | _MS_PRIVATE, None) != 0:
        return False
    flags = _MS_NOSUID | _MS_NODEV | _MS_NOEXEC
    if _libc.mount(b"proc", b"/proc", b"proc", flags, None) != 0:
        return False
    with suppress(OSError):  # per pid namespace from Linux 6.14 on; before, it is not ours to write
        if Path("/proc/self").readlink() == Path("1"):
            _write_own_pid_limit()
    return True


def _write_own_pid_limit() -> None:
    release = tuple(int(part) for part in os.uname().release.split("-")[0].split(".")[:2])
    if release >= (6, 14):
        Path("/proc/sys/kernel/pid_max").write_text(str(_MAX_PROCESSES))


def die_with_parent() -> None:
    _libc.prctl(_PR_SET_PDEATHSIG, 9, 0, 0, 0)


def adopt_orphans() -> None:
    """Grandchildren whose parent died become this process's children."""
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


# ------------------------------------------------------------------------------ restrictions


def restrict(
    folder: Path, readable: Iterable[Path], memory_bytes: int, limit_address_space: bool
) -> list[str]:
    """Give up what the job does not need, for good; what was achieved, in words."""
    set_limits(memory_bytes, limit_address_space)
    _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    achieved = ["landlock"] if _landlock(folder, readable) else []
    _drop_capabilities()
    return achieved


def set_limits(memory_bytes: int, limit_address_space: bool) -> None:
    _lower(resource.RLIMIT_CORE, 0)
    _lower(resource.RLIMIT_NOFILE, 1024)
    _lower(resource.RLIMIT_FSIZE, memory_bytes)
    _lower(resource.RLIMIT_NPROC, 2 * _MAX_PROCESSES)  # the kernel ignores it for the machine's root
    if limit_address_space:
        _lower(resource.RLIMIT_AS, _address_space() + memory_bytes)


def _lower(which: int, limit: int) -> None:
    hard = resource.getrlimit(which)[1]
    if hard == resource.RLIM_INFINITY or hard > limit:
        resource.setrlimit(which, (limit, limit))


def _address_space() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    return pages * resource.getpagesize()


def _drop_capabilities() -> None:
    header = struct.pack("<II", 0x20080522, 0)
    _libc.capset(header, bytes(24))


def readable_folders() -> list[Path]:
    """System folders and what Python itself is loaded from: what a job may read beside its folder."""
    system = ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc", "/opt", "/proc", "/sys", "/dev"]
    python = [sys.prefix, sys.base_prefix, *(path for path in sys.path if path)]
    found = {Path(path).resolve() for path in [*system, *python, *_library_folders()] if Path(path).is_dir()}
    return sorted(found)


def _library_folders() -> list[str]:
    """Folders of every library this process has mapped: what a driver may be found in."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    files = {line.split(maxsplit=5)[5] for line in lines if line.count("/")}
    return [str(Path(file).parent) for file in files if ".so" in file]


# ---------------------------------------------------------------------------------- Landlock


def _landlock(folder: Path, readable: Iterable[Path]) -> bool:
    abi = _libc.syscall(_SYS_LANDLOCK_CREATE, None, 0, _LANDLOCK_VERSION_FLAG)
    if abi < 1:
        return False
    rights = _FS_RIGHTS_BY_ABI[min(abi, 3)]
    ruleset = _create_ruleset(abi, rights)
    if ruleset < 0:
        return False
    for path in readable:
        _allow(ruleset, path, rights & (_FS_EXECUTE | _FS_READ | _FS_LIST))
    for path in [Path("/proc"), *_device_files()]:
        _allow(ruleset, path, rights & (_FS_WRITE | _FS_READ | _FS_TRUNCATE))
    _allow(ruleset, folder, rights)
    restricted: int = _libc.syscall(_SYS_LANDLOCK_RESTRICT, ruleset, 0)
    os.close(ruleset)
    return restricted == 0


def _create_ruleset(abi: int, rights: int) -> int:
    net, scopes = (_NET_TCP if abi >= 4 else 0), (_SCOPES if abi >= 6 else 0)
    attributes = struct.pack("<QQQ", rights, net, scopes)
    size = 24 if abi >= 6 else 16 if abi >= 4 else 8
    return int(_libc.syscall(_SYS_LANDLOCK_CREATE, attributes, size, 0))


def _allow(ruleset: int, path: Path, rights: int) -> None:
    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.EACCES, errno.ENOTDIR):
            return
        raise
    if not path.is_dir():
        rights &= _FS_EXECUTE | _FS_WRITE | _FS_READ | _FS_TRUNCATE
    rule = struct.pack("<Qi", rights, fd)
    _libc.syscall(_SYS_LANDLOCK_ADD, ruleset, _LANDLOCK_PATH_BENEATH, rule, 0)
    os.close(fd)


def _device_files() -> list[Path]:
    """What a process must be able to write to: the usual sinks and the NVIDIA driver's devices."""
    plain = [Path("/dev") / name for name in ("null", "zero", "full", "random", "urandom", "tty", "dxg")]
    return [*plain, *Path("/dev").glob("nvidia*"), *Path("/dev").glob("dri/*")]


# -------------------------------------------------------------------------------- description


def describe(namespaces: Iterable[str], achieved: Iterable[str], own_proc: bool) -> str:
    """As "user+net+pid namespaces, landlock, limits", or "weak: ..." where essential parts are missing."""
    names, rest = list(namespaces), list(achieved)
    parts = [f"{'+'.join(names)} namespaces"] if names else []
    parts += ["own /proc"] if own_proc else []
    text = ", ".join([*parts, *rest, "limits"])
    strong = {"net", "pid"} <= set(names) and "landlock" in rest
    return text if strong else f"weak: {text} only"

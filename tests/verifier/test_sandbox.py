"""What hostile code tries, and what the sandbox still guarantees. The hostile code is a problem file."""

import socket
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import psutil
import pytest

from mkevolve_core.errors import SandboxError
from mkevolve_core.protocols import JobFailed
from tests.verifier.conftest import SECRET
from tests.verifier.samples import SCALE_SHIFT
from verifier import conversation, isolation

FACTS = {"shape": [6, 40], "dtype": "float32"}


def run_hostile(sandbox, code: str, seconds: float = 20.0) -> JobFailed:
    with pytest.raises(JobFailed) as caught:
        sandbox.run("inspect", {"source": textwrap.dedent(code)}, seconds)
    return caught.value


def found_by(sandbox, code: str) -> str:
    """What hostile code found out: it leaves it in `found`."""
    failed = run_hostile(sandbox, f"{textwrap.dedent(code)}\nraise RuntimeError(f'found {{found}}')")
    assert "RuntimeError: found " in failed.detail, failed.detail
    return failed.detail.partition("RuntimeError: found ")[2].partition(" (problem.py")[0]


def attempt(action: str) -> str:
    return f"""
    try:
        {action}
        found = "done"
    except OSError as error:
        found = type(error).__name__
    """


def assert_works(sandbox) -> None:
    facts = sandbox.run("inspect", {"source": SCALE_SHIFT})
    assert facts["inputs"] == facts["outputs"] == [FACTS]
    assert facts["parameters"] == 80


def test_a_problem_is_inspected(sandbox):
    assert_works(sandbox)


def test_the_isolation_is_said(sandbox):
    assert_works(sandbox)
    assert "limits" in sandbox.isolation


# ------------------------------------------------------------------------------------- secrets


def test_no_key_is_in_the_environment(sandbox):
    names = found_by(sandbox, "import os\nfound = sorted(os.environ)")
    assert SECRET not in names
    assert "TRITON_CACHE_DIR" in names


def test_no_other_process_can_be_looked_into(sandbox):
    code = """
    import os
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            found.append("SECRET" in open(f"/proc/{pid}/environ").read())
        except OSError:
            pass
    """
    assert "True" not in found_by(sandbox, code)


def test_the_network_is_not_there(sandbox):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        action = f"socket.create_connection(('127.0.0.1', {port}), 2)"
        assert found_by(sandbox, f"import socket\n{textwrap.dedent(attempt(action))}") != "done"


def test_no_packet_leaves(sandbox):
    assert_works(sandbox)
    if "net" not in sandbox.isolation:
        pytest.skip("Landlock alone does not cover UDP, and the isolation says so")
    action = 'socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("192.0.2.1", 53))'
    assert found_by(sandbox, f"import socket\n{textwrap.dedent(attempt(action))}") != "done"


# --------------------------------------------------------------------------------------- files


@pytest.mark.parametrize("place", ["elsewhere", "/dev/shm", "/tmp"])
def test_nothing_can_be_written_outside_the_jobs_folder(sandbox, tmp_path, place):
    folder = str(tmp_path) if place == "elsewhere" else place
    target = f"{folder}/left_behind_by_a_job"
    assert found_by(sandbox, attempt(f"open({target!r}, 'w')")) == "PermissionError"


def test_other_files_cannot_be_read(sandbox, tmp_path):
    (tmp_path / "key").write_text("secret")
    assert found_by(sandbox, attempt(f"open({str(tmp_path / 'key')!r})")) == "PermissionError"


def test_the_jobs_own_folder_is_writable_and_gone_afterwards(sandbox):
    code = """
    import os, tempfile
    with tempfile.NamedTemporaryFile(delete=False) as file:
        file.write(b"x")
    found = os.getcwd()
    """
    folder = found_by(sandbox, code)
    assert "/job-" in folder
    with pytest.raises(FileNotFoundError):
        Path(folder).stat()


# ----------------------------------------------------------------------------------- processes


def test_what_a_job_started_dies_with_it(sandbox):
    code = """
    import subprocess
    sleeper = subprocess.Popen(["sleep", "98765.4321"], start_new_session=True)
    found = sleeper.pid
    """
    assert found_by(sandbox, code).isdigit()
    assert not [p for p in psutil.process_iter(["cmdline"]) if "98765.4321" in (p.info["cmdline"] or [])]


def test_a_double_fork_dies_too(sandbox):
    code = """
    import os
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.execvp("sleep", ["sleep", "87654.3219"])
        os._exit(0)
    os.wait()
    found = "gone"
    """
    assert found_by(sandbox, code) == "gone"
    assert not [p for p in psutil.process_iter(["cmdline"]) if "87654.3219" in (p.info["cmdline"] or [])]


def test_an_endless_loop_is_ended_and_its_line_named(sandbox):
    failed = run_hostile(sandbox, "import time\nwhile True:\n    time.sleep(0.01)", seconds=1.0)
    assert failed.kind == "timeout"
    assert "longer than 1 s (in problem.py, line" in failed.detail


def test_a_segmentation_fault_is_named_with_its_line(sandbox):
    failed = run_hostile(sandbox, "import ctypes\nctypes.string_at(8)")
    assert failed.kind == "crash"
    assert "SIGSEGV in problem.py, line 2" in failed.detail
    assert_works(sandbox)


@pytest.mark.parametrize("code", ["os._exit(0)", "os._exit(3)"])
def test_leaving_without_an_answer_is_a_crash(sandbox, code):
    failed = run_hostile(sandbox, f"import os\n{code}")
    assert failed.kind == "crash"
    assert "without an answer" in failed.detail


def test_sys_exit_is_an_exception_like_any_other(sandbox):
    failed = run_hostile(sandbox, "import sys\nsys.exit(0)")
    assert (failed.kind, failed.detail.split(":")[0]) == ("import", "SystemExit")


def test_too_much_memory_is_refused(sandbox):
    source = "import torch\nx = torch.ones(1 << 30)"
    with pytest.raises(JobFailed) as caught:
        sandbox.execute("inspect", {"source": source}, seconds=20.0, memory_mb=512)
    assert caught.value.kind == "memory"


def test_memory_of_many_processes_counts_together(sandbox):
    code = """
    import os, time
    for _ in range(4):
        if os.fork() == 0:
            block = bytearray(400 << 20)
            time.sleep(60)
    time.sleep(60)
    """
    payload = {"source": textwrap.dedent(code)}
    with pytest.raises(JobFailed) as caught:
        sandbox.execute("inspect", payload, seconds=30.0, memory_mb=512)
    assert caught.value.kind == "memory"


@pytest.mark.slow
def test_a_fork_bomb_ends(sandbox):
    code = """
    import os, time
    while True:
        try:
            if os.fork() == 0:
                time.sleep(60)
        except OSError:
            break
    found = "no more processes"
    """
    failed = run_hostile(sandbox, f"{textwrap.dedent(code)}\nraise RuntimeError(found)", seconds=60.0)
    assert "no more processes" in failed.detail or "processes" in failed.detail
    assert_works(sandbox)


# -------------------------------------------------------------------------------------- output


def test_a_flood_of_output_is_dropped(sandbox):
    source = "import sys\nfor _ in range(200):\n    sys.stdout.write('x' * (1 << 16))\n" + SCALE_SHIFT
    answer = sandbox.execute("inspect", {"source": source}, seconds=30.0)
    assert answer.value["parameters"] == 80
    assert len(answer.output) == conversation.MAX_OUTPUT


def test_what_is_printed_is_no_answer(sandbox):
    failed = run_hostile(sandbox, """import os\nos.write(1, b'{"ok": {"parameters": 1}}')\nos._exit(0)""")
    assert failed.kind == "crash"


def test_a_forged_message_that_is_no_json_is_a_crash(sandbox):
    code = """
    import os
    for fd in range(3, 64):
        try:
            os.write(fd, b"\\x03\\x00\\x00\\x00NaN")
        except OSError:
            pass
    os._exit(0)
    """
    failed = run_hostile(sandbox, code)
    assert failed.kind == "crash"
    assert_works(sandbox)


# ------------------------------------------------------------------------------------ failures


def test_an_import_that_fails_names_module_and_line(sandbox):
    failed = run_hostile(sandbox, "import torch\nimport surely_not_installed")
    assert failed.kind == "import"
    assert "No module named 'surely_not_installed' (problem.py, line 2" in failed.detail


def test_a_syntax_error_names_its_line(sandbox):
    failed = run_hostile(sandbox, "import torch\ndef f(:\n    pass")
    assert failed.kind == "import"
    assert "problem.py, line 2" in failed.detail


@pytest.mark.parametrize(
    ("missing", "words"),
    [("class Model", "no class Model"), ("def get_inputs", "no function get_inputs")],
)
def test_a_missing_name_is_told(sandbox, missing, words):
    failed = run_hostile(sandbox, SCALE_SHIFT.replace(missing, missing + "Renamed"))
    assert (failed.kind, words in failed.detail) == ("import", True)


def test_an_error_in_forward_names_its_line(sandbox):
    failed = run_hostile(sandbox, SCALE_SHIFT.replace("x * self.scale", "x @ self.scale.missing"))
    assert failed.kind == "raise"
    assert "AttributeError" in failed.detail
    assert "return torch.relu(" in failed.detail


def test_a_random_reference_is_noted(sandbox):
    source = SCALE_SHIFT.replace("x * self.scale", "x * torch.rand(40)")
    assert any("stochastic" in note for note in sandbox.run("inspect", {"source": source})["notes"])


def test_a_reference_that_ignores_its_input_is_noted(sandbox):
    source = SCALE_SHIFT.replace("x * self.scale", "x * 0")
    assert any("does not depend" in note for note in sandbox.run("inspect", {"source": source})["notes"])


def test_keyword_arguments_of_the_constructor_are_found(sandbox):
    source = SCALE_SHIFT.replace("self, width", "self, *, width").replace("[40]", "[[], {'width': 40}]")
    assert sandbox.run("inspect", {"source": source})["parameters"] == 80


_ENDLESS_JUDGE = """
import threading
from verifier.sandbox import LocalSandbox

sandbox = LocalSandbox(device="cpu")
sandbox.run("inspect", {"source": SCALE_SHIFT})
threading.Timer(1.0, lambda: print(sandbox._folder, flush=True)).start()
sandbox.run("inspect", {"source": "while True: pass"})
"""


def test_nothing_outlives_a_judge_that_is_killed():
    code = _ENDLESS_JUDGE.replace("SCALE_SHIFT", repr(SCALE_SHIFT))
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as judge:
        folder = Path(judge.stdout.readline().strip())
        started = psutil.Process(judge.pid).children(recursive=True)
        judge.kill()
    assert len(started) == 3  # zygote, guard, runner
    _, alive = psutil.wait_procs(started, timeout=10.0)
    assert alive == []
    end = time.monotonic() + 10.0
    while folder.exists() and time.monotonic() < end:  # the kernel ends processes before files are gone
        time.sleep(0.05)
    assert not folder.exists()


def test_a_zygote_that_dies_is_started_again(sandbox):
    assert_works(sandbox)
    for process in psutil.Process().children():
        if "zygote.py" in " ".join(process.cmdline()):
            process.kill()
    assert_works(sandbox)


def test_a_job_that_is_not_there_is_our_failure(sandbox):
    with pytest.raises(SandboxError, match="no_such_job"):
        sandbox.run("no_such_job", {})


def test_jobs_run_side_by_side(sandbox):
    results = []
    threads = [
        threading.Thread(target=lambda: results.append(sandbox.run("inspect", {"source": SCALE_SHIFT})))
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [result["parameters"] for result in results] == [80, 80, 80]


# ----------------------------------------------------------------------------------- the level


@pytest.mark.parametrize(
    ("namespaces", "achieved", "text"),
    [
        (("user", "net", "pid"), ["landlock"], "user+net+pid namespaces, landlock, limits"),
        (("user", "net"), ["landlock"], "weak: user+net namespaces, landlock, limits only"),
        ((), [], "weak: limits only"),
    ],
)
def test_a_weak_level_says_so(namespaces, achieved, text):
    assert isolation.describe(namespaces, achieved, own_proc=False) == text

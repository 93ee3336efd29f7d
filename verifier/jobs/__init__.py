"""What runs in the sandbox: one module a job, `run(payload) -> dict` in plain JSON, in a process of its
own.

Hostile sources are written to files in the current folder (the job's own) and loaded from there, so that
errors can name their line. A failure of hostile code is raised as `JobFailed`; `runner.hostile` makes one
of any exception. A job that takes or gives memfds defines `run_with_memory(payload, fds) -> (dict, fds)`.
"""

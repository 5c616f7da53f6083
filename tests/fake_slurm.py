"""As much of SLURM as submitit uses, on this machine: ``sbatch``, ``srun`` and ``sacct`` for a PATH.

An array's tasks start with the environment of a real one, at most as many at a time as it says.
"""

import os
import re
import subprocess
import sys
from pathlib import Path


def install(folder):
    """Write the commands and return the folder for PATH."""
    folder.mkdir()
    for name in ("sbatch", "srun", "sacct"):
        command = folder / name
        command.write_text(f'#!/bin/sh\nexec {sys.executable} {Path(__file__).resolve()} {name} "$@"\n')
        command.chmod(0o755)
    return folder


def sbatch(file):
    # A real one keeps the text: the file is moved away as soon as this returns.
    script = Path(file).read_text()
    kept = Path(file).with_suffix(".kept")
    kept.write_text(script)
    subprocess.Popen(
        [sys.executable, __file__, "array", kept, str(os.getpid())], start_new_session=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    print(f"Submitted batch job {os.getpid()}")


def array(kept, job_id):
    last, limit = re.search(r"--array=0-(\d+)%(\d+)", Path(kept).read_text()).groups()
    running = []
    for task in range(int(last) + 1):
        while sum(process.poll() is None for process in running) >= int(limit):
            os.wait()
        environment = {
            "SLURM_JOB_ID": f"{job_id}{task}", "SLURM_ARRAY_JOB_ID": job_id, "SLURM_ARRAY_TASK_ID": str(task),
            "SLURM_NTASKS": "1", "SLURM_JOB_NUM_NODES": "1", "SLURM_NODEID": "0", "SLURM_PROCID": "0",
            "SLURM_LOCALID": "0", "SLURM_JOB_NODELIST": "node1", "SLURM_JOB_NAME": "tielab",
            "SLURM_CPUS_PER_TASK": "1",
        }  # fmt: skip
        running.append(subprocess.Popen(["bash", kept], env={**os.environ, **environment}))
    for process in running:
        process.wait()


def srun(*arguments):
    assert os.environ["SRUN_CPUS_PER_TASK"] == "1"
    words = list(arguments)
    output = None
    while words[0].startswith("--"):
        if words.pop(0) == "--output":
            output = words.pop(0)
    for mark, name in (("%A", "SLURM_ARRAY_JOB_ID"), ("%a", "SLURM_ARRAY_TASK_ID"), ("%t", "SLURM_PROCID")):
        output = output.replace(mark, os.environ[name])
    Path(output).parent.mkdir(parents=True, exist_ok=True)
    with Path(output).open("a") as file:
        sys.exit(subprocess.run(words, stdout=file, stderr=subprocess.STDOUT).returncode)


def sacct(*arguments):
    print("JobID|State")


if __name__ == "__main__":
    {"sbatch": sbatch, "array": array, "srun": srun, "sacct": sacct}[sys.argv[1]](*sys.argv[2:])

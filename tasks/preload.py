"""Imported by the process that all workers are forked from, which has loaded what is heavy before (tasks/worker.py)."""

import signal
import threading

from tqdm import tqdm

# Ctrl-C reaches every process of a terminal; multiprocessing ignores it too, but only after these imports.
signal.signal(signal.SIGINT, signal.SIG_IGN)
# A scheduler sends TERM to every process of a job: this one ends with its workers, which may need time to save a step.
signal.signal(signal.SIGTERM, signal.SIG_IGN)

# Its own lock holds a semaphore of the system in each worker, which a worker that is killed leaves behind.
tqdm.set_lock(threading.RLock())

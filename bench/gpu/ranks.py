#!/usr/bin/env python3
"""Starts N ranks on this host, with the variables of torchrun: ranks.py N PROGRAM ARGUMENT...

What rank 0 prints is printed here; what others print is the last lines of the output if one fails. The exit code is that of the
first rank that failed; the others then have ten seconds to end.
"""
import os
import socket
import subprocess
import sys
import tempfile
import time

GRACE_S = 10


def free_port():
    with socket.socket() as one:
        one.bind(("localhost", 0))
        return one.getsockname()[1]


def start(count, words):
    common = dict(os.environ, WORLD_SIZE=str(count), LOCAL_WORLD_SIZE=str(count), MASTER_ADDR="localhost", MASTER_PORT=str(free_port()))
    others = [tempfile.TemporaryFile("w+") for _ in range(1, count)]
    ranks = [subprocess.Popen(words, env=dict(common, RANK=str(rank), LOCAL_RANK=str(rank)), stderr=subprocess.STDOUT,
                              stdout=others[rank - 1] if rank else None) for rank in range(count)]
    return ranks, others


def wait_for(ranks):
    """(rank, exit code) of the first that fails; (0, 0) if none does."""
    first, patience = None, None
    while None in (codes := [rank.poll() for rank in ranks]):
        if any(codes) and not first:
            first, patience = first_failure(codes), time.monotonic() + GRACE_S
        if patience and time.monotonic() > patience:
            for rank in ranks:
                rank.kill()
        time.sleep(0.05)
    return first or first_failure(codes)


def first_failure(codes):
    return next(((rank, code) for rank, code in enumerate(codes) if code), (0, 0))


def main():
    ranks, others = start(int(sys.argv[1]), sys.argv[2:])
    rank, code = wait_for(ranks)
    if code and rank > 0:
        others[rank - 1].seek(0)
        if said := others[rank - 1].read()[-2000:].strip():  # what all ranks found is told by rank 0 alone
            print(f"rank {rank}:", said, sep="\n", flush=True)
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main())

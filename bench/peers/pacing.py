"""Lets programs take turns: each waits for a line on its standard input, does a turn, and prints "done".

A peer in Python calls `serve`; `Turns` is the other end, for such a peer and for `athanor bench ... --paced`. So other load on
the machine affects all of them, and while one has its turn the others sleep.
"""
import json
import statistics
import subprocess
import sys
import time


def gemm_peak_flops():
    """Returns the best rate of the same threads in a square bfloat16 multiplication, in FLOP/s."""
    import torch  # only the peers have it

    best = 0.0
    for n in (1024, 2048):
        a, b = torch.randn(n, n).bfloat16(), torch.randn(n, n).bfloat16()
        out = torch.empty(n, n, dtype=torch.bfloat16)
        for _ in range(8):
            start = time.perf_counter()
            torch.mm(a, b, out=out)
            best = max(best, 2 * n**3 / (time.perf_counter() - start))
    return best


def peak_rss_bytes():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM:"))


def serve(call, warmup, result):
    """Calls `call()`, which returns its seconds: some times untimed, then N times for each line "steps N".

    At the end of its input it prints {"times_s": ..., "median_s": ...} and what `result()` adds, as JSON.
    """
    for _ in range(warmup):
        call()
    print("ready", flush=True)
    times_s = []
    for line in sys.stdin:
        times_s += [call() for _ in range(int(line.split()[1]))]
        print("done", flush=True)
    print(json.dumps({**result(), "times_s": times_s, "median_s": statistics.median(times_s), "min_s": min(times_s),
                      "max_s": max(times_s)}), flush=True)


class Turns:
    """The other end: a process that does a turn on request."""

    def __init__(self, command, **options):
        self.command = [str(word) for word in command]
        self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **options)
        self.wait_for("ready")

    def wait_for(self, word):
        for line in self.process.stdout:
            if line.strip() == word:
                return
        sys.exit(f"{' '.join(self.command)} ended with {self.process.wait()} before it said {word!r}; try it alone")

    def turn(self, steps=1):
        self.process.stdin.write(f"steps {steps}\n")
        self.process.stdin.flush()
        self.wait_for("done")

    def finish(self):
        """Ends the process's input; returns the rest of its output."""
        self.process.stdin.close()
        said = self.process.stdout.read()
        if self.process.wait() != 0:
            sys.exit(f"{' '.join(self.command)} ended with {self.process.returncode}")
        return said

"""The context switch in a program of its own: the machine-specific switch and the fallback."""

import subprocess
from pathlib import Path

import pytest

from fuser.runtime import cxx

CSRC = Path(__file__).resolve().parents[2] / "csrc"

# Fibers count alternately with values in callee-saved registers and their own rounding mode, throw
# and catch, and use the complete stack. Prints "right", then nanoseconds per switch.
PROGRAM = """
#include <cfenv>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "host/fiber.h"

using namespace fuser;
using namespace fuser::host;

Context home;
struct Counter {
  Context context;
  StackSpan stack;
  int mode;
  long turns;
  double thirds;
  bool caught;
  bool aligned;
};
Counter counters[2];

void require(bool right, const char* what) {
  if (right) return;
  std::printf("wrong: %s\\n", what);
  std::exit(1);
}

__attribute__((noinline)) void thrower(int depth) {
  volatile char room[64] = {};
  if (depth == 0) throw 42;
  thrower(depth - 1);
  room[0] = 1;
}

void count(void* argument) {
  Counter& self = *static_cast<Counter*>(argument);
  alignas(32) volatile char probe[32] = {};
  self.aligned = reinterpret_cast<size_t>(&probe) % 32 == 0;
  std::fesetround(self.mode);
  std::memset(self.stack.low, 0x5A, self.stack.bytes - 4096);  // all of it is there
  try {
    thrower(20);
  } catch (int value) {
    self.caught = value == 42;
  }
  long a = 1, b = 2, c = 3, d = 4, e = 5;
  volatile double one = 1.0, three = 3.0;
  for (;;) {
    self.thirds = one / three;
    ++self.turns;
    a += b; b += c; c += d; d += e; e += 1;
    switch_context(self.context, home);
    require(e == 5 + self.turns, "registers");
  }
}

struct PingPong { Context context; PingPong* other; long left; };
PingPong players[2];
void play(void* argument) {
  PingPong& self = *static_cast<PingPong*>(argument);
  while (self.left-- > 0) switch_context(self.context, self.other->context);
  switch_context(self.context, home);
}

int main() {
  StackSet stacks = acquire_stacks(2, 32 << 10);
  const int modes[] = {FE_UPWARD, FE_DOWNWARD};
  for (int i = 0; i < 2; ++i) {
    counters[i].mode = modes[i];
    counters[i].stack = stack_at(stacks, i);
    require(counters[i].stack.bytes >= 32 << 10, "stack size");
    start_context(counters[i].context, counters[i].stack.low, counters[i].stack.bytes, count,
                  &counters[i]);
  }
  for (long turn = 1; turn <= 1000; ++turn)
    for (Counter& counter : counters) {
      switch_context(home, counter.context);
      require(counter.turns == turn, "turns");
      require(std::fegetround() == FE_TONEAREST, "rounding mode of the caller");
    }
  require(counters[0].thirds > counters[1].thirds, "rounding modes of the fibers");
  require(counters[0].caught && counters[1].caught, "exceptions");
  require(counters[0].aligned && counters[1].aligned, "stack alignment");

  release_stacks(stacks);
  StackSet again = acquire_stacks(1, 32 << 10);
  require(again.base == stacks.base, "stacks are reused");
  StackSet larger = acquire_stacks(2, 64 << 10);
  require(larger.base != stacks.base, "stacks in use are not handed out");
  release_stacks(again);
  release_stacks(larger);
  try {
    acquire_stacks(size_t{1} << 40, 64 << 10);
    require(false, "too many stacks");
  } catch (const Fault& fault) {
    require(fault.rule == "host-stacks", "rule");
  }

  StackSet two = acquire_stacks(2, 16 << 10);
  const long rounds = 1000000;
  for (int i = 0; i < 2; ++i) {
    players[i].other = &players[1 - i];
    players[i].left = rounds;
    const StackSpan stack = stack_at(two, i);
    start_context(players[i].context, stack.low, stack.bytes, play, &players[i]);
  }
  const auto begin = std::chrono::steady_clock::now();
  switch_context(home, players[0].context);
  const std::chrono::duration<double, std::nano> taken = std::chrono::steady_clock::now() - begin;
  std::printf("right %.2f ns per switch\\n", taken.count() / (2 * rounds));
}
""".replace("using namespace fuser;", '#include "base/error.h"\nusing namespace fuser;')


@pytest.mark.parametrize("define", ["", "-DFUSER_FIBER_UCONTEXT"], ids=["own", "ucontext"])
def test_fibers(tmp_path: Path, define: str) -> None:
    source, program = tmp_path / "fibers.cpp", tmp_path / "fibers"
    source.write_text(PROGRAM)
    command = [
        *cxx.compiler().command,
        "-std=c++20",
        "-O2",
        f"-I{CSRC}",
        *([define] * bool(define)),
    ]
    files = [str(source), str(CSRC / "host" / "fiber.cpp"), "-o", str(program), "-pthread"]
    subprocess.run([*command, *files], check=True)
    done = subprocess.run([str(program)], capture_output=True, text=True, timeout=120)
    print(done.stdout, done.stderr)
    assert done.returncode == 0, done.stdout
    assert done.stdout.startswith("right")

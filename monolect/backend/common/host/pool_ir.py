"""Emit the native code of the thread pool as LLVM IR text: waiting, sharing a command, the workers' loop, entry points.

What it does not do: start threads or load code; `thread_pool` does.

How a command is shared. The caller publishes `fn`, `args` and `n`, and then the *word*: a count of jobs, with the
number P of participants in its low bits. Thread t of P owns the indices t, t+P, t+2P ..., so a thread works on the same
part of the data in every kernel. Each participant has a cache line with two words, `claim` and `done`. A thread that
sets `claim` to the current word by compare-and-swap runs the share, and then sets `done`. Workers claim only their own
share. The caller, after its own share, takes over shares that no worker has started, so a sleeping worker never delays
a short kernel. A share can be claimed only while its job is current, because a job ends when all its shares are done;
so the published fields are safe to read after the claim. Idle workers spin on the word, then sleep in a futex. The
caller wakes them only if one sleeps, and on other CPUs than its own (`thread_affinity`).
"""

from typing import Final

from monolect.backend.common.host.thread_affinity import affinity_source

COMMAND_BYTES: Final = 24  # size of a command: fn, args, n_threads
SPIN_LIMIT: Final = 20_000  # pauses, about 0.3-0.8 ms: a worker spins through gaps between steps, then sleeps
_LOCK_SPIN_LIMIT: Final = 2_000  # pauses before a thread that waits for the mutex sleeps
LINE_BYTES: Final = 128  # two cache lines, as the adjacent-line prefetcher loads them in pairs
_COUNT_BITS: Final = 10  # low bits of the word, which hold the number of participants
_STOP: Final = (1 << _COUNT_BITS) - 1  # above any number of participants: tells the workers to return

# Byte offsets into the pool structure. Each line of definitions has its own cache line to avoid false sharing.
_WORD, _FN, _ARGS, _N = 0, 8, 16, 24
_SLEEPERS: Final = 1 * LINE_BYTES
_LOCK: Final = 2 * LINE_BYTES
SIZE, START = 3 * LINE_BYTES, 3 * LINE_BYTES + 8  # participants available; callback that starts the workers
SHARES: Final = 4 * LINE_BYTES  # a line for each participant: claim, done, and the two fields of `thread_affinity`

_SYSCALLS: Final = {"x86_64": (202, 24), "aarch64": (98, 124)}  # numbers of futex, sched_yield
_SYSCALL_ASM: Final = {
    "x86_64": ('"syscall"', '"={rax},{rax},{rdi},{rsi},{rdx},{r10},~{rcx},~{r11},~{memory}"'),
    "aarch64": ('"svc #0"', '"={x0},{x8},{x0},{x1},{x2},{x3},~{memory}"'),
}
_PAUSE_ASM: Final = {"x86_64": "pause", "aarch64": "yield"}


def _primitives(machine: str, is_linux: bool) -> str:
    """Return the IR of system-dependent functions: `pause` of the CPU, `yield` to other threads, `wait` (sleep while a
    32-bit word has a value) and `wake` n waiters.
    """
    pause = f"""
define internal void @pause() alwaysinline {{
  call void asm sideeffect "{_PAUSE_ASM[machine]}", "~{{memory}}"()
  ret void
}}
"""
    if not is_linux:  # no futex: `wait` sleeps for 50 microseconds, and its caller checks the word again
        return (
            pause
            + """
declare i32 @sched_yield()
declare i32 @usleep(i32)
define internal void @yield() { call i32 @sched_yield() ret void }
define internal void @wait(ptr %word, i32 %value) noinline { call i32 @usleep(i32 50) ret void }
define internal void @wake(ptr %word, i32 %n) noinline { ret void }
"""
        )
    futex, sched_yield = _SYSCALLS[machine]
    code, constraints = _SYSCALL_ASM[machine]
    return (
        pause
        + f"""
define internal i64 @syscall(i64 %number, ptr %a, i64 %b, i64 %c) noinline {{
  %r = call i64 asm sideeffect {code}, {constraints}(i64 %number, ptr %a, i64 %b, i64 %c, i64 0)
  ret i64 %r
}}
define internal void @yield() {{ call i64 @syscall(i64 {sched_yield}, ptr null, i64 0, i64 0) ret void }}
define internal void @wait(ptr %word, i32 %value) noinline {{  ; FUTEX_WAIT_PRIVATE
  %wide = zext i32 %value to i64
  call i64 @syscall(i64 {futex}, ptr %word, i64 128, i64 %wide)
  ret void
}}
define internal void @wake(ptr %word, i32 %n) noinline {{  ; FUTEX_WAKE_PRIVATE
  %wide = zext i32 %n to i64
  call i64 @syscall(i64 {futex}, ptr %word, i64 129, i64 %wide)
  ret void
}}
"""
    )


# A mutex of three states: 0 free, 1 held, 2 held and a thread may sleep on it.
_MUTEX: Final = f"""
define internal void @lock(ptr %m) noinline {{
entry:
  br label %try
try:
  %count = phi i32 [0, %entry], [%next, %spin]
  %swap = cmpxchg ptr %m, i32 0, i32 1 acquire monotonic
  %held = extractvalue {{ i32, i1 }} %swap, 1
  br i1 %held, label %done, label %spin
spin:
  call void @pause()
  %next = add i32 %count, 1
  %more = icmp ult i32 %next, {_LOCK_SPIN_LIMIT}
  br i1 %more, label %try, label %contend
contend:
  %old = atomicrmw xchg ptr %m, i32 2 acquire
  %free = icmp eq i32 %old, 0
  br i1 %free, label %done, label %sleep
sleep:
  call void @wait(ptr %m, i32 2)
  br label %contend
done:
  ret void
}}
define internal void @unlock(ptr %m) noinline {{
  %old = atomicrmw xchg ptr %m, i32 0 release
  %waited = icmp eq i32 %old, 2
  br i1 %waited, label %wake, label %done
wake:
  call void @wake(ptr %m, i32 1)
  br label %done
done:
  ret void
}}
"""

_SHARE: Final = f"""
define internal void @run_share(ptr %fn, ptr %args, i64 %first, i64 %step, i64 %n) noinline {{
entry:
  %any = icmp slt i64 %first, %n
  br i1 %any, label %loop, label %done
loop:
  %i = phi i64 [%first, %entry], [%next, %loop]
  call void %fn(ptr %args, i64 %i)
  %next = add i64 %i, %step
  %more = icmp slt i64 %next, %n
  br i1 %more, label %loop, label %done
done:
  ret void
}}
define internal ptr @share(ptr %pool, i64 %t) alwaysinline {{
  %offset = mul i64 %t, {LINE_BYTES}
  %from = add i64 %offset, {SHARES}
  %p = getelementptr i8, ptr %pool, i64 %from
  ret ptr %p
}}
; Words only grow, so a claim below the word belongs to an earlier job: moving it forward takes the share, once.
define internal i1 @take_share(ptr %claim, i64 %word) noinline {{
  %old = load atomic i64, ptr %claim monotonic, align 8
  %open = icmp ult i64 %old, %word
  br i1 %open, label %take, label %lost
take:
  %swap = cmpxchg ptr %claim, i64 %old, i64 %word acq_rel monotonic
  %taken = extractvalue {{ i64, i1 }} %swap, 1
  ret i1 %taken
lost:
  ret i1 false
}}
"""

_WORKER: Final = f"""
define void @worker_loop(ptr %pool, i64 %t) {{
entry:
  %fn.p = getelementptr i8, ptr %pool, i64 {_FN}
  %args.p = getelementptr i8, ptr %pool, i64 {_ARGS}
  %n.p = getelementptr i8, ptr %pool, i64 {_N}
  %sleepers.p = getelementptr i8, ptr %pool, i64 {_SLEEPERS}
  %claim.p = call ptr @share(ptr %pool, i64 %t)
  %done.p = getelementptr i8, ptr %claim.p, i64 8
  call void @publish_thread_id(ptr %claim.p)
  br label %idle
idle:
  %seen = phi i64 [0, %entry], [%word, %job], [%word, %compete], [%word, %run]
  br label %look
look:
  %count = phi i32 [0, %idle], [%next, %spin], [0, %woken]
  %word = load atomic i64, ptr %pool acquire, align 8
  %same = icmp eq i64 %word, %seen
  br i1 %same, label %spin, label %job
spin:
  call void @pause()
  %next = add i32 %count, 1
  %more = icmp ult i32 %next, {SPIN_LIMIT}
  br i1 %more, label %look, label %doze
doze:  ; count this sleeper, then look once more: the caller publishes the word, then reads the count
  atomicrmw add ptr %sleepers.p, i32 1 seq_cst
  %again = load atomic i64, ptr %pool seq_cst, align 8
  %still = icmp eq i64 %again, %seen
  br i1 %still, label %sleep, label %woken
sleep:
  %low = trunc i64 %seen to i32
  call void @wait(ptr %pool, i32 %low)
  br label %woken
woken:
  atomicrmw sub ptr %sleepers.p, i32 1 seq_cst
  br label %look
job:
  %p = and i64 %word, {(1 << _COUNT_BITS) - 1}
  %mine = icmp ult i64 %t, %p
  br i1 %mine, label %claim, label %idle
claim:
  %stop = icmp eq i64 %p, {_STOP}
  br i1 %stop, label %leave, label %compete
compete:
  %taken = call i1 @take_share(ptr %claim.p, i64 %word)
  br i1 %taken, label %run, label %idle
run:
  %fn = load atomic ptr, ptr %fn.p monotonic, align 8
  %args = load atomic ptr, ptr %args.p monotonic, align 8
  %n = load atomic i64, ptr %n.p monotonic, align 8
  call void @run_share(ptr %fn, ptr %args, i64 %t, i64 %p, i64 %n)
  store atomic i64 %word, ptr %done.p release, align 8
  br label %idle
leave:
  ret void
}}
"""

_SHARED_COMMAND: Final = f"""
define internal void @run_shared(ptr %pool, ptr %fn, ptr %args, i64 %n) noinline {{
entry:
  %fn.p = getelementptr i8, ptr %pool, i64 {_FN}
  %args.p = getelementptr i8, ptr %pool, i64 {_ARGS}
  %n.p = getelementptr i8, ptr %pool, i64 {_N}
  %sleepers.p = getelementptr i8, ptr %pool, i64 {_SLEEPERS}
  %lock.p = getelementptr i8, ptr %pool, i64 {_LOCK}
  %size.p = getelementptr i8, ptr %pool, i64 {SIZE}
  %start.p = getelementptr i8, ptr %pool, i64 {START}
  %start = load atomic ptr, ptr %start.p acquire, align 8
  %cold = icmp ne ptr %start, null
  br i1 %cold, label %begin, label %enter
begin:
  call void %start()
  br label %enter
enter:
  %now = load atomic i64, ptr %size.p acquire, align 8
  %solo = icmp sle i64 %now, 1
  br i1 %solo, label %serial, label %contend
serial:
  call void @run_share(ptr %fn, ptr %args, i64 0, i64 1, i64 %n)
  ret void
contend:
  call void @lock(ptr %lock.p)
  %size = load atomic i64, ptr %size.p acquire, align 8
  %few = icmp slt i64 %n, %size
  %p = select i1 %few, i64 %n, i64 %size
  store atomic ptr %fn, ptr %fn.p monotonic, align 8
  store atomic ptr %args, ptr %args.p monotonic, align 8
  store atomic i64 %n, ptr %n.p monotonic, align 8
  %old = load atomic i64, ptr %pool monotonic, align 8
  %base = and i64 %old, -{1 << _COUNT_BITS}
  %job = add i64 %base, {1 << _COUNT_BITS}
  %word = or i64 %job, %p
  store atomic i64 %word, ptr %pool seq_cst, align 8
  %sleepers = load atomic i32, ptr %sleepers.p seq_cst, align 4
  %asleep = icmp ne i32 %sleepers, 0
  br i1 %asleep, label %rouse, label %own
rouse:
  call void @avoid_caller_cpu(ptr %pool, i64 %size)
  call void @wake(ptr %pool, i32 {2**31 - 1})
  br label %own
own:
  call void @run_share(ptr %fn, ptr %args, i64 0, i64 %p, i64 %n)
  br label %help
help:  ; take over the shares that no worker has started
  %h = phi i64 [1, %own], [%h.next, %helped]
  %help.more = icmp ult i64 %h, %p
  br i1 %help.more, label %offer, label %join
offer:
  %claim.p = call ptr @share(ptr %pool, i64 %h)
  %taken = call i1 @take_share(ptr %claim.p, i64 %word)
  br i1 %taken, label %run, label %helped
run:
  call void @run_share(ptr %fn, ptr %args, i64 %h, i64 %p, i64 %n)
  %finished.p = getelementptr i8, ptr %claim.p, i64 8
  store atomic i64 %word, ptr %finished.p release, align 8
  br label %helped
helped:
  %h.next = add i64 %h, 1
  br label %help
join:  ; wait for the shares that workers have started
  %j = phi i64 [1, %help], [%j.next, %joined]
  %join.more = icmp ult i64 %j, %p
  br i1 %join.more, label %look, label %leave
look:
  %count = phi i32 [0, %join], [%next, %pause], [%count, %give]
  %share.p = call ptr @share(ptr %pool, i64 %j)
  %done.p = getelementptr i8, ptr %share.p, i64 8
  %done = load atomic i64, ptr %done.p acquire, align 8
  %ready = icmp eq i64 %done, %word
  br i1 %ready, label %joined, label %delay
delay:
  %patient = icmp ult i32 %count, {SPIN_LIMIT}
  br i1 %patient, label %pause, label %give
pause:
  call void @pause()
  %next = add i32 %count, 1
  br label %look
give:  ; the worker may be waiting for this core
  call void @yield()
  br label %look
joined:
  %j.next = add i64 %j, 1
  br label %join
leave:
  call void @unlock(ptr %lock.p)
  ret void
}}
"""

# `lanes` is an array of 8-byte words: n + 1 starts for n threads, then items {fn, args, thread}. The items of lane t go
# from start t to start t + 1, in words from the beginning of `lanes`.
_LANE: Final = """
define void @run_lane(ptr %lanes, i64 %t) {
entry:
  %start.p = getelementptr i64, ptr %lanes, i64 %t
  %end.p = getelementptr i64, ptr %start.p, i64 1
  %start = load i64, ptr %start.p, align 8
  %end = load i64, ptr %end.p, align 8
  %any = icmp slt i64 %start, %end
  br i1 %any, label %loop, label %done
loop:
  %i = phi i64 [%start, %entry], [%next, %loop]
  %item = getelementptr ptr, ptr %lanes, i64 %i
  %args.p = getelementptr ptr, ptr %item, i64 1
  %thread.p = getelementptr ptr, ptr %item, i64 2
  %fn = load ptr, ptr %item, align 8
  %args = load ptr, ptr %args.p, align 8
  %thread = load i64, ptr %thread.p, align 8
  call void %fn(ptr %args, i64 %thread)
  %next = add i64 %i, 3
  %more = icmp slt i64 %next, %end
  br i1 %more, label %loop, label %done
done:
  ret void
}
"""

_ENTRY_POINTS: Final = f"""
define void @run_commands(ptr %pool, ptr %table, i64 %n) {{
entry:
  %any = icmp sgt i64 %n, 0
  br i1 %any, label %loop, label %done
loop:
  %i = phi i64 [0, %entry], [%next, %ran]
  %command = getelementptr [{COMMAND_BYTES} x i8], ptr %table, i64 %i
  %args.p = getelementptr i8, ptr %command, i64 8
  %n_threads.p = getelementptr i8, ptr %command, i64 16
  %fn = load ptr, ptr %command, align 8
  %args = load ptr, ptr %args.p, align 8
  %n_threads = load i64, ptr %n_threads.p, align 8
  %alone = icmp sle i64 %n_threads, 1
  br i1 %alone, label %inline, label %shared
inline:
  call void %fn(ptr %args, i64 0)
  br label %ran
shared:
  call void @run_shared(ptr %pool, ptr %fn, ptr %args, i64 %n_threads)
  br label %ran
ran:
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %n
  br i1 %more, label %loop, label %done
done:
  ret void
}}
define void @resize(ptr %pool, i64 %size) {{  ; set the number of participants, and clear the start callback
  %lock.p = getelementptr i8, ptr %pool, i64 {_LOCK}
  %size.p = getelementptr i8, ptr %pool, i64 {SIZE}
  %start.p = getelementptr i8, ptr %pool, i64 {START}
  call void @lock(ptr %lock.p)
  store atomic i64 %size, ptr %size.p release, align 8
  store atomic ptr null, ptr %start.p release, align 8
  call void @unlock(ptr %lock.p)
  ret void
}}
define void @stop_workers(ptr %pool) {{  ; between jobs; commands run on their callers afterwards
  %lock.p = getelementptr i8, ptr %pool, i64 {_LOCK}
  %size.p = getelementptr i8, ptr %pool, i64 {SIZE}
  %start.p = getelementptr i8, ptr %pool, i64 {START}
  call void @lock(ptr %lock.p)
  store atomic i64 1, ptr %size.p release, align 8
  store atomic ptr null, ptr %start.p release, align 8
  %old = load atomic i64, ptr %pool monotonic, align 8
  %base = and i64 %old, -{1 << _COUNT_BITS}
  %job = add i64 %base, {1 << _COUNT_BITS}
  %word = or i64 %job, {_STOP}
  store atomic i64 %word, ptr %pool seq_cst, align 8
  call void @wake(ptr %pool, i32 {2**31 - 1})
  call void @unlock(ptr %lock.p)
  ret void
}}
"""


def pool_source(machine: str, is_linux: bool = True) -> str:
    """Return the LLVM IR of the pool: `run_commands`, `run_lane`, `worker_loop`, `resize` and `stop_workers`."""
    system = _primitives(machine, is_linux) + affinity_source(machine, is_linux)
    return system + _MUTEX + _SHARE + _WORKER + _SHARED_COMMAND + _LANE + _ENTRY_POINTS


__all__ = ["COMMAND_BYTES", "LINE_BYTES", "SHARES", "SIZE", "START", "pool_source"]

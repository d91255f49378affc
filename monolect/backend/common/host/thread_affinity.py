"""Emit LLVM IR that keeps a worker from being woken on the caller's CPU (Linux sched_setaffinity).

Schedulers prefer to wake a thread on the CPU of the thread that wakes it. The caller does not wait: it computes, and
takes over the shares that no worker has started. A worker on its CPU would not run before the next scheduler tick
(4 ms). The caller would do all of the work, and the worker would sleep on the same CPU again: every step would run on
one core. So before the caller wakes workers, it removes its CPU from the affinity mask of each worker, and restores the
CPU that it removed the last time.

What it does not do: choose a CPU for a worker, or move a worker that is awake. A mask does not change if fewer CPUs
than workers would be left, or if the system refuses the change.
"""

from typing import Final

SET_BYTES: Final = 128  # size of an affinity mask: one bit a CPU
THREAD, AVOIDED = 16, 24  # byte offsets in a share: the worker's thread id; the CPU removed from its mask, plus one

_SYSCALLS: Final = {  # numbers of getcpu, gettid, sched_getaffinity, sched_setaffinity
    "x86_64": (309, 186, 204, 203),
    "aarch64": (168, 178, 123, 122),
}


def affinity_source(machine: str, is_linux: bool) -> str:
    """Return the IR of `publish_thread_id`, which each worker runs first, and of `avoid_caller_cpu`, which the caller
    runs before it wakes workers. On other systems than Linux both do nothing.
    """
    if not is_linux:
        return """
define internal void @publish_thread_id(ptr %share) { ret void }
define internal void @avoid_caller_cpu(ptr %pool, i64 %size) { ret void }
"""
    getcpu, gettid, get_set, put_set = _SYSCALLS[machine]
    return _publish_thread_id(gettid) + _SETS + _avoid_caller_cpu(getcpu, get_set, put_set)


def _publish_thread_id(gettid: int) -> str:
    """Return the IR of a function that stores the worker's thread id in its share, where the caller reads it."""
    return f"""
define internal void @publish_thread_id(ptr %share) noinline {{
  %thread.p = getelementptr i8, ptr %share, i64 {THREAD}
  %thread = call i64 @syscall(i64 {gettid}, ptr null, i64 0, i64 0)
  store atomic i64 %thread, ptr %thread.p monotonic, align 8
  ret void
}}
"""


# IR of `size_of`, the number of CPUs in an affinity mask, and `put`, which adds a CPU to a mask or removes it
_SETS: Final = f"""
declare i64 @llvm.ctpop.i64(i64)
define internal i64 @size_of(ptr %set) noinline {{
entry:
  br label %loop
loop:
  %i = phi i64 [0, %entry], [%next, %loop]
  %n = phi i64 [0, %entry], [%more, %loop]
  %p = getelementptr i64, ptr %set, i64 %i
  %word = load i64, ptr %p, align 8
  %bits = call i64 @llvm.ctpop.i64(i64 %word)
  %more = add i64 %n, %bits
  %next = add i64 %i, 1
  %again = icmp ult i64 %next, {SET_BYTES // 8}
  br i1 %again, label %loop, label %done
done:
  ret i64 %more
}}
define internal void @put(ptr %set, i64 %cpu, i1 %there) noinline {{
  %at = lshr i64 %cpu, 6
  %bit = and i64 %cpu, 63
  %p = getelementptr i64, ptr %set, i64 %at
  %one = shl i64 1, %bit
  %others = xor i64 %one, -1
  %old = load i64, ptr %p, align 8
  %without = and i64 %old, %others
  %with = or i64 %old, %one
  %new = select i1 %there, i64 %with, i64 %without
  store i64 %new, ptr %p, align 8
  ret void
}}
"""


def _avoid_caller_cpu(getcpu: int, get_set: int, put_set: int) -> str:
    """Return the IR of a function that changes the affinity mask of each worker whose thread id is known.

    It adds the CPU that it removed the last time, and removes the CPU that the caller runs on. It leaves the mask if
    fewer CPUs than workers would be left.
    """
    words = SET_BYTES // 8
    return f"""
define internal void @avoid_caller_cpu(ptr %pool, i64 %size) noinline {{
entry:
  %cpu.p = alloca i64, align 8
  %set = alloca [{words} x i64], align 8
  store i64 0, ptr %cpu.p, align 8
  %failed = call i64 @syscall(i64 {getcpu}, ptr %cpu.p, i64 0, i64 0)
  %cpu = load i64, ptr %cpu.p, align 8
  %mark = add i64 %cpu, 1
  %known = icmp eq i64 %failed, 0
  %fits = icmp ult i64 %cpu, {8 * SET_BYTES}
  %good = and i1 %known, %fits
  br i1 %good, label %each, label %leave
each:
  %t = phi i64 [1, %entry], [%next, %after]
  %more = icmp ult i64 %t, %size
  br i1 %more, label %look, label %leave
look:
  %share = call ptr @share(ptr %pool, i64 %t)
  %thread.p = getelementptr i8, ptr %share, i64 {THREAD}
  %avoided.p = getelementptr i8, ptr %share, i64 {AVOIDED}
  %thread = load atomic i64, ptr %thread.p monotonic, align 8
  %avoided = load i64, ptr %avoided.p, align 8
  %same = icmp eq i64 %avoided, %mark
  %absent = icmp sle i64 %thread, 0
  %skip = or i1 %same, %absent
  br i1 %skip, label %after, label %ask
ask:
  store [{words} x i64] zeroinitializer, ptr %set, align 8
  %place = ptrtoint ptr %set to i64
  %who = inttoptr i64 %thread to ptr
  %got = call i64 @syscall(i64 {get_set}, ptr %who, i64 {SET_BYTES}, i64 %place)
  %told = icmp sgt i64 %got, 0
  br i1 %told, label %restore, label %after
restore:
  %was = icmp ne i64 %avoided, 0
  br i1 %was, label %back, label %out
back:
  %last = sub i64 %avoided, 1
  call void @put(ptr %set, i64 %last, i1 true)
  br label %out
out:
  call void @put(ptr %set, i64 %cpu, i1 false)
  %left = call i64 @size_of(ptr %set)
  %with_caller = add i64 %left, 1
  %wide = icmp uge i64 %with_caller, %size
  br i1 %wide, label %change, label %after
change:
  %refused = call i64 @syscall(i64 {put_set}, ptr %who, i64 {SET_BYTES}, i64 %place)
  %changed = icmp eq i64 %refused, 0
  br i1 %changed, label %note, label %after
note:
  store i64 %mark, ptr %avoided.p, align 8
  br label %after
after:
  %next = add i64 %t, 1
  br label %each
leave:
  ret void
}}
"""


__all__ = ["affinity_source"]

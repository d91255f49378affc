"""Where the pool's workers run: LLVM IR that keeps one from waking on the processor its caller is busy on.

Schedulers like to wake a thread where the one that wakes it runs. The caller does not wait there: it computes, and
takes over the shares nobody has started. So such a worker does not run before the next tick of the system (4 ms), the
caller does all of the work, and the worker falls asleep where it was: step after step on one core. Before it wakes
workers, the caller therefore takes its own processor out of the set that each may run on, and puts back the one that
was taken out last time.

What it does not do: choose a processor for a worker, or move one that is awake. Sets that would leave fewer processors
than there are workers stay as they are, and so does any set that the system does not let us change.
"""

from typing import Final

SET_BYTES: Final = 128  # of processors, one bit each
THREAD, AVOIDED = 16, 24  # in a share: the worker's number in the system; the processor taken out, plus one

_NUMBERS: Final = {  # getcpu, gettid, sched_getaffinity, sched_setaffinity
    "x86_64": (309, 186, 204, 203),
    "aarch64": (168, 178, 123, 122),
}


def placing(machine: str, is_linux: bool) -> str:
    """IR of `introduce` (a worker notes who it is) and `give_room` (before workers are woken)."""
    if not is_linux:
        return """
define internal void @introduce(ptr %share) { ret void }
define internal void @give_room(ptr %pool, i64 %size) { ret void }
"""
    getcpu, gettid, get_set, put_set = _NUMBERS[machine]
    return _introduce(gettid) + _SETS + _give_room(getcpu, get_set, put_set)


def _introduce(gettid: int) -> str:
    """A worker writes its number in the system to its share, where the caller finds it."""
    return f"""
define internal void @introduce(ptr %share) noinline {{
  %thread.p = getelementptr i8, ptr %share, i64 {THREAD}
  %thread = call i64 @syscall(i64 {gettid}, ptr null, i64 0, i64 0)
  store atomic i64 %thread, ptr %thread.p monotonic, align 8
  ret void
}}
"""


# size_of: the processors of a set; put: one more of them, or one less
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


def _give_room(getcpu: int, get_set: int, put_set: int) -> str:
    """The caller, for each worker that has said who it is: ask for its set; put back the processor that was taken out
    last time; take out the one the caller runs on, where as many are left as there are workers.
    """
    words = SET_BYTES // 8
    return f"""
define internal void @give_room(ptr %pool, i64 %size) noinline {{
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

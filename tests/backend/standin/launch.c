// One launch of one kernel, for a processor that is emulated: read from standard input, run, written back. No library.
// Input, in 8-byte words: number of the kernel, threads, bytes of local memory, arguments; for each of these its bytes,
// or -1 and its value; then the contents of the buffers. Output: the contents of the buffers.
typedef long word;
typedef void kernel(word* args, word thread);
extern kernel* const kernels[];

static word call(word number, word a, word b, word c) {
#if defined(__aarch64__)
  register word x8 __asm__("x8") = number, x0 __asm__("x0") = a, x1 __asm__("x1") = b, x2 __asm__("x2") = c;
  __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2) : "memory");
  return x0;
#else
  register word a7 __asm__("a7") = number, a0 __asm__("a0") = a, a1 __asm__("a1") = b, a2 __asm__("a2") = c;
  __asm__ volatile("ecall" : "+r"(a0) : "r"(a7), "r"(a1), "r"(a2) : "memory");
  return a0;
#endif
}
enum { READ = 63, WRITE = 64, EXIT = 93, MOST = 64 };

static void move(word what, char* p, word n) {
  while (n > 0) {
    word done = call(what, what == READ ? 0 : 1, (word)p, n);
    if (done <= 0) call(EXIT, 1, 0, 0);
    p += done;
    n -= done;
  }
}

static char arena[64 << 20] __attribute__((aligned(64)));
static word head[4], rows[MOST][2], args[1 + MOST];

void _start(void) {
  move(READ, (char*)head, sizeof head);
  char* free = arena;
  args[0] = (word)free;
  free += (head[2] + 63) / 64 * 64;
  for (int i = 0; i < head[3]; i++) {
    move(READ, (char*)rows[i], 8);
    if (rows[i][0] < 0) move(READ, (char*)&rows[i][1], 8);
    else rows[i][1] = (word)free, free += (rows[i][0] + 63) / 64 * 64;
    args[1 + i] = rows[i][1];
  }
  for (int i = 0; i < head[3]; i++) if (rows[i][0] > 0) move(READ, (char*)rows[i][1], rows[i][0]);
  for (word t = 0; t < head[1]; t++) kernels[head[0]](args + 1, t);
  for (int i = 0; i < head[3]; i++) if (rows[i][0] > 0) move(WRITE, (char*)rows[i][1], rows[i][0]);
  call(EXIT, 0, 0, 0);
}

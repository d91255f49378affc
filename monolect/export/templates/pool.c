/* ---- threads: those that are awake take parts of a task, the caller too; who finds none spins, then sleeps ---- */
enum { POOL_SPINS = 20000 };
static pthread_mutex_t pool_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t pool_more = PTHREAD_COND_INITIALIZER;
static void (*pool_task)(i64 part);
static _Atomic uint64_t pool_state; /* round << 32 | parts << 16 | parts that are taken */
static atomic_uint pool_left, pool_asleep;

static int pool_is_open(uint64_t state) { return (state & 0xffff) < (state >> 16 & 0xffff); }

static void pool_pause(unsigned spins) {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#endif
  if (spins % 2048 == 2047) sched_yield();
}

static int pool_take(void) {
  if (!pool_is_open(atomic_load(&pool_state))) return 0;
  const uint64_t state = atomic_fetch_add(&pool_state, 1);
  if (!pool_is_open(state)) return 0;
  pool_task((i64)(state & 0xffff));
  atomic_fetch_sub(&pool_left, 1);
  return 1;
}

static void *pool_worker(void *unused) {
  for (unsigned spins = 0;; spins++) {
    if (pool_take()) spins = 0;
    if (spins < POOL_SPINS) {
      pool_pause(spins);
      continue;
    }
    pthread_mutex_lock(&pool_lock);
    atomic_fetch_add(&pool_asleep, 1);
    while (!pool_is_open(atomic_load(&pool_state))) pthread_cond_wait(&pool_more, &pool_lock);
    atomic_fetch_sub(&pool_asleep, 1);
    pthread_mutex_unlock(&pool_lock);
  }
  return unused;
}

static void parallel(void (*task)(i64 part), unsigned parts) {
  static uint64_t round;
  pool_task = task;
  atomic_store(&pool_left, parts);
  atomic_store(&pool_state, ++round << 32 | (uint64_t)parts << 16);
  if (atomic_load(&pool_asleep)) {
    pthread_mutex_lock(&pool_lock);
    pthread_cond_broadcast(&pool_more);
    pthread_mutex_unlock(&pool_lock);
  }
  while (pool_take()) {}
  for (unsigned spins = 0; atomic_load(&pool_left); spins++) pool_pause(spins);
}

static int pool_start(void) {
  for (int k = 1; k < THREADS; k++) {
    pthread_t made;
    if (pthread_create(&made, NULL, pool_worker, NULL)) return 0;
    pthread_detach(made);
  }
  return 1;
}
